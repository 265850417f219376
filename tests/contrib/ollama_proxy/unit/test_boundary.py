"""What would leave the machine, told by what a request names."""

import asyncio
import json

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy import boundary as boundary_module
from onegate_ollama_proxy.boundary import Boundary, is_cloud, is_search, upstream_url
from onegate_ollama_proxy.refused import Refused
from onegate_ollama_proxy.upstream import Document, UpstreamDown

NS_PER_S = 1_000_000_000


class Tags:
    """An Ollama that is asked for its list and nothing else."""

    def __init__(self, **hosts: str) -> None:
        self.hosts = hosts
        self.asked = 0
        self.down = False
        self.body: bytes | None = None

    async def ask(self, method, path, *, within_s):
        assert (method, path) == ("GET", "/api/tags")
        self.asked += 1
        await asyncio.sleep(0)
        if self.down:
            raise UpstreamDown("nobody answers")
        models = [{"name": f"{n}:latest", "remote_host": h} for n, h in self.hosts.items()]
        return Document(
            200, "application/json", self.body or json.dumps({"models": models}).encode()
        )


@pytest.fixture
def now(monkeypatch):
    clock = [0]
    monkeypatch.setattr(boundary_module, "monotonic_ns", lambda: clock[0])
    return clock


async def refusal(boundary: Boundary, *given) -> str:
    with pytest.raises(Refused) as error:
        await boundary.check(*given)
    assert error.value.no.status == 403
    assert error.value.no.reason is Reason.BOUNDARY_REFUSED
    return error.value.no.sentence


@pytest.mark.parametrize(
    "name", ["gpt-oss:cloud", "gpt-oss:120b-cloud", "x:CLOUD", " x:20B-Cloud ", "host:5/a/b:cloud"]
)
async def test_a_cloud_name_is_judged_without_asking(name):
    tags = Tags()
    assert "ollama.com" in await refusal(Boundary(upstream=tags, allow_remote=False), name)
    assert tags.asked == 0


@pytest.mark.parametrize(
    "name", ["x", "x:latest", "cloud", "my-cloud", "x:cloudy", "h:cloud/x", ""]
)
def test_other_names_are_not_cloud_names(name):
    assert not is_cloud(name)


async def test_an_alias_of_a_model_elsewhere_is_found_in_the_list():
    boundary = Boundary(upstream=Tags(private="https://ollama.com"), allow_remote=False)
    for name in ("private", "PRIVATE:latest"):
        assert "https://ollama.com" in await refusal(boundary, name)


async def test_a_local_model_passes_and_the_list_is_kept(now):
    tags = Tags(tiny="")
    boundary = Boundary(upstream=tags, allow_remote=False)
    await boundary.check("tiny")
    await boundary.check("tiny")
    assert tags.asked == 1
    now[0] = 31 * NS_PER_S
    await boundary.check("tiny")
    assert tags.asked == 2


async def test_a_name_that_was_not_there_is_looked_for_again_soon(now):
    tags = Tags(tiny="")
    boundary = Boundary(upstream=tags, allow_remote=False)
    await boundary.check("new")
    tags.hosts["new"] = "elsewhere"
    await boundary.check("new")
    assert tags.asked == 1, "not for each request"
    now[0] = 2 * NS_PER_S
    await refusal(boundary, "new")


async def test_an_alias_that_was_just_made_is_seen_after_forget(now):
    tags = Tags(tiny="")
    boundary = Boundary(upstream=tags, allow_remote=False)
    await boundary.check("tiny")
    tags.hosts["tiny"] = "elsewhere"
    boundary.forget()
    await refusal(boundary, "tiny")


async def test_many_at_once_ask_once():
    tags = Tags(tiny="")
    boundary = Boundary(upstream=tags, allow_remote=False)
    await asyncio.gather(*(boundary.check("tiny") for _ in range(20)))
    assert tags.asked == 1


async def test_a_name_nobody_can_be_asked_about_does_not_pass(now):
    tags = Tags(tiny="", private="elsewhere")
    boundary = Boundary(upstream=tags, allow_remote=False)
    await boundary.check("tiny")
    tags.down = True
    now[0] = 31 * NS_PER_S
    await boundary.check("tiny")  # as was known of it
    await refusal(boundary, "private")
    with pytest.raises(Refused) as error:
        await boundary.check("new")
    assert error.value.no.status == 503


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b'{"models":[{"name":1}]}', b"\xff"])
async def test_a_list_that_is_none_lets_nothing_pass(body):
    tags = Tags()
    tags.body = body
    with pytest.raises(Refused) as error:
        await Boundary(upstream=tags, allow_remote=False).check("tiny")
    assert error.value.no.status == 502


async def test_without_an_ollama_there_are_no_aliases():
    boundary = Boundary(upstream=None, allow_remote=False)
    await boundary.check("tiny")
    await refusal(boundary, "tiny:cloud")


async def test_what_is_allowed_is_not_even_looked_at():
    tags = Tags()
    boundary = Boundary(upstream=tags, allow_remote=True)
    await boundary.check("x:cloud", ["web_search"])
    boundary.check_name("x:cloud")
    boundary.check_service("an account")
    assert tags.asked == 0


@pytest.mark.parametrize("kind", ["web_search", "web_search_20250305", "Web_Search", "web_fetch"])
async def test_a_search_is_refused(kind):
    assert is_search(kind)
    boundary = Boundary(upstream=Tags(tiny=""), allow_remote=False)
    assert kind in await refusal(boundary, "tiny", ["function", kind])


def test_a_service_of_the_maker_is_refused():
    with pytest.raises(Refused, match=r"ollama\.com"):
        Boundary(upstream=None, allow_remote=False).check_service("the web")


async def test_a_name_is_shown_as_one_printable_line():
    sentence = await refusal(Boundary(upstream=None, allow_remote=False), "a\nb\x1b[31m:cloud")
    assert sentence.isprintable()


@pytest.mark.parametrize("url", ["http://127.0.0.1:11435", "http://localhost:1/", "http://[::1]:5"])
def test_an_address_of_this_machine(url):
    assert upstream_url(url, allow_remote=False) == url.rstrip("/")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://192.168.1.5:11434", "not this machine"),
        ("http://ollama.example:11434", "not this machine"),
        ("ftp://127.0.0.1", "expected http"),
        ("127.0.0.1:11434", "expected http"),
        ("http://127.0.0.1:1/?a=b", "expected http"),
        ("http://u:p@127.0.0.1:1", "password"),
    ],
)
def test_another_address(url, why):
    with pytest.raises(ValueError, match=why):
        upstream_url(url, allow_remote=False)


def test_another_machine_if_it_may_be():
    assert upstream_url("http://10.0.0.2:1", allow_remote=True) == "http://10.0.0.2:1"
