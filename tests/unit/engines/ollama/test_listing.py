"""Which models of an Ollama can be put behind the gate."""

import pytest

from onegate.engines.base import EngineUnavailable
from onegate.engines.ollama import listing
from onegate.engines.ollama.listing import fit, main


def holds(link, *names, **given):
    link.documents["/api/tags"] = {"models": [{"name": name} | given for name in names]}


async def test_names_in_the_servers_order_without_the_tag_that_no_name_needs(link):
    holds(link, "b:latest", "a:7b")
    assert await fit(link) == ["b", "a:7b"]


async def test_what_would_leave_the_machine_is_left_out_and_not_asked_about(link):
    holds(link, "a:cloud", "b:120b-cloud")
    assert await fit(link) == []
    holds(link, "c", remote_host="https://ollama.com")
    assert await fit(link) == []
    assert "/api/show" not in link.paths()
    holds(link, "d")
    link.documents["/api/show"] = {"capabilities": ["completion"], "remote_host": "far"}
    assert await fit(link) == []


async def test_what_only_embeds_is_left_out(link):
    holds(link, "a", "b")
    link.documents["/api/show"] = [{"capabilities": ["embedding"]}, {"capabilities": None}]
    assert await fit(link) == ["b"]


async def test_no_more_than_somebody_reads(link):
    holds(link, *(f"m{i}" for i in range(40)))
    assert len(await fit(link)) == 16


@pytest.mark.parametrize(
    ("names", "code", "out", "err"),
    [
        (["a", "b:7b"], 0, "a\nb:7b\n", ""),
        ([], 69, "", "ollama pull"),
        (EngineUnavailable("nobody answers"), 69, "", "nobody answers: start Ollama"),
    ],
)
def test_what_the_installer_is_told(monkeypatch, capsys, names, code, out, err):
    async def ask(url):
        assert url == "http://127.0.0.1:1"
        if isinstance(names, Exception):
            raise names
        return names

    monkeypatch.setattr(listing, "_ask", ask)
    assert main(["http://127.0.0.1:1"]) == code
    said = capsys.readouterr()
    assert said.out == out
    assert err in said.err


def test_an_address_that_is_none(capsys):
    assert main(["ftp://x"]) == 69
    assert "base_url cannot be used" in capsys.readouterr().err
    assert main([]) == 64
