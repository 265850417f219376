"""Questions that clients ask all the time."""

import asyncio

import pytest

from onegate_ollama_proxy import probes as probes_module
from onegate_ollama_proxy.probes import Probes
from onegate_ollama_proxy.upstream import Document, UpstreamDown, UpstreamStuck

NS_PER_S = 1_000_000_000


class Ollama:
    """Answers each question when told to, with the number of the question."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self.go.set()
        self.status = 200
        self.error: Exception | None = None

    async def ask(self, method, path, *, within_s):
        assert method == "GET"
        self.asked.append(path)
        number = len(self.asked)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return Document(self.status, "text/plain", str(number).encode())


@pytest.fixture
def now(monkeypatch):
    clock = [0]
    monkeypatch.setattr(probes_module, "monotonic_ns", lambda: clock[0])
    return clock


async def test_those_who_ask_at_once_share_one_question():
    ollama = Ollama()
    probes = Probes(ollama)
    told = await asyncio.gather(*(probes.get("/api/tags") for _ in range(9)))
    assert {one.document.body for one in told} == {b"1"}
    assert ollama.asked == ["/api/tags"]
    assert (await probes.get("/api/tags")).document.body == b"2"
    await probes.aclose()


async def test_one_who_leaves_takes_nothing_from_the_others():
    ollama = Ollama()
    ollama.go.clear()
    probes = Probes(ollama)
    first = asyncio.ensure_future(probes.get("/"))  # noqa: TID251 - it is cancelled below
    second = asyncio.ensure_future(probes.get("/"))  # noqa: TID251
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    ollama.go.set()
    assert (await second).document.body == b"1"
    await probes.aclose()


async def test_where_ollama_is_stuck_the_last_answer_is_given_with_its_age(now):
    ollama = Ollama()
    probes = Probes(ollama)
    await probes.get("/api/tags")
    ollama.error = UpstreamStuck("slow")
    now[0] = 7 * NS_PER_S
    told = await probes.get("/api/tags")
    assert (told.document.body, told.age_s) == (b"1", 7)
    with pytest.raises(UpstreamStuck):
        await probes.get("/api/version")
    now[0] = 301 * NS_PER_S
    with pytest.raises(UpstreamStuck):
        await probes.get("/api/tags")
    await probes.aclose()


async def test_an_ollama_that_is_not_there_is_not_made_up():
    ollama = Ollama()
    probes = Probes(ollama)
    await probes.get("/")
    ollama.error = UpstreamDown("gone")
    with pytest.raises(UpstreamDown):
        await probes.get("/")
    await probes.aclose()


async def test_an_error_is_passed_on_and_not_kept():
    ollama = Ollama()
    ollama.status = 500
    probes = Probes(ollama)
    assert (await probes.get("/api/tags")).document.status == 500
    ollama.error = UpstreamStuck("slow")
    with pytest.raises(UpstreamStuck):
        await probes.get("/api/tags")
    await probes.aclose()


async def until(true) -> None:
    while not true():  # noqa: ASYNC110  tasks of the one that is tested do it
        await asyncio.sleep(0)


async def test_an_answer_from_before_a_change_is_not_kept():
    ollama = Ollama()
    ollama.go.clear()
    probes = Probes(ollama)
    before = asyncio.ensure_future(probes.get("/api/tags"))  # noqa: TID251
    await until(lambda: len(ollama.asked) == 1)
    probes.changed()
    ollama.go.set()
    assert (await before).document.body == b"1"
    ollama.error = UpstreamStuck("slow")
    with pytest.raises(UpstreamStuck):
        await probes.get("/api/tags")
    await probes.aclose()


async def test_after_a_change_nobody_is_told_what_was_asked_before_it():
    ollama = Ollama()
    ollama.go.clear()
    probes = Probes(ollama)
    before = asyncio.ensure_future(probes.get("/api/tags"))  # noqa: TID251
    await until(lambda: len(ollama.asked) == 1)
    probes.changed()
    after = asyncio.ensure_future(probes.get("/api/tags"))  # noqa: TID251
    await until(lambda: len(ollama.asked) == 2)
    ollama.go.set()
    assert (await before).document.body == b"1"
    assert (await after).document.body == b"2"
    ollama.error = UpstreamStuck("slow")
    assert (await probes.get("/api/tags")).document.body == b"2"
    await probes.aclose()
