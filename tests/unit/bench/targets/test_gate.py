"""The daemon as a target, with the client that a test plays."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from onegate.bench.targets import gate as module
from onegate.bench.targets.base import Ask, Broke, Expired, Refused, TargetError
from onegate.bench.targets.gate import GateTarget
from onegate.client.errors import Unavailable, error_of
from onegate.protocol import messages as m
from onegate.protocol.content import Usage
from onegate.protocol.errors import Phase, Reason


def failed(reason: Reason, **more: Any) -> m.Failed:
    fields: dict[str, Any] = {"message": "a sentence", "retryable": True, "phase": Phase.QUEUED}
    return m.Failed(reason=reason, **(fields | more))


class Reply:
    usage = Usage(prompt_tok=9, output_tok=2)
    timings = m.Timings(queue_ms=4.0, e2e_ms=5.0)


class Stream:
    def __init__(self, client: "PlayedClient", options: dict[str, Any]) -> None:
        self._client, self._options = client, options
        self.reply: Reply | None = None

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def __aiter__(self) -> AsyncIterator[m.Chunk]:
        if self._client.error is not None:
            raise self._client.error
        if "progress" in self._options:
            self._options["progress"](m.Started(id=1, rid="r", queue_ms=4.0))
        for text in ("", "a", "b"):
            yield m.Chunk(id=1, n_tok=1, text=text)
        self.reply = Reply()


class Pool:
    model, state, max_context_tok, seats = "tiny", "ready", 64, 4
    identity = None


class Status:
    pools = (Pool(),)


class PlayedClient:
    made: list["PlayedClient"] = []  # noqa: RUF012  emptied by the fixture
    error: Exception | None = None
    unsupported = False

    def __init__(self, socket: str, **options: Any) -> None:
        self.socket, self.options = socket, options
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.closed = False
        self.made.append(self)

    async def connect(self) -> None:
        if self.error is not None:
            raise self.error

    async def status(self) -> Status:
        return Status()

    async def generate(self, text: str, **options: Any) -> "Reply":
        if self.unsupported and "ignore_eos" in options:
            raise error_of(failed(Reason.UNSUPPORTED), started=False)
        self.asked.append((text, options))
        return Reply()

    async def count(self, text: str, **_: Any) -> m.Counted:
        if self.unsupported:
            raise error_of(failed(Reason.UNSUPPORTED), started=False)
        return m.Counted(id=1, n_tok=len(text), exact=True)

    def stream(self, text: str, **options: Any) -> Stream:
        self.asked.append((text, options))
        return Stream(self, options)

    async def close(self) -> None:
        self.closed = True


class Watched:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def started(self, queue_ms: float | None) -> None:
        self.seen.append(queue_ms)

    def piece(self, n_tok: int, *, visible: bool) -> None:
        self.seen.append((n_tok, visible))


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> type[PlayedClient]:
    monkeypatch.setattr(module, "AsyncClient", PlayedClient)
    monkeypatch.setattr(PlayedClient, "made", [])
    return PlayedClient


def asking(**more: Any) -> Ask:
    return Ask(**({"text": "hi", "output_tok": 7, "client": 3} | more))


async def opened(model: str | None = None) -> GateTarget:
    target = GateTarget("/s", model, ready_s=1.0)
    await target.open()
    return target


async def test_an_answer_is_watched_as_it_comes(clients: Any) -> None:
    target = await opened()
    watched = Watched()
    usage = await target.ask(asking(class_="batch", ttft_timeout_ms=500, ticket="t"), watched)
    assert (usage.prompt_tok, usage.output_tok, usage.queue_ms) == (9, 2, 4.0)
    assert watched.seen == [(1, False), (1, True), (1, True)]
    ((text, options),) = clients.made[-1].asked
    assert (text, options) == (
        "hi",
        {
            "max_tokens": 7,
            "ignore_eos": True,
            "class_": "batch",
            "ttft_timeout": 0.5,
            "ticket": "t",
        },
    )


async def test_who_wants_to_hear_of_the_start_does(clients: Any) -> None:
    watched = Watched()
    await (await opened()).ask(asking(follow=True), watched)
    assert watched.seen[0] == 4.0


async def test_the_target_says_what_it_is(clients: Any) -> None:
    facts = await GateTarget("/s", "tiny", ready_s=1.0).open()
    assert (facts.model, facts.context_tok, facts.seats) == ("tiny", 64, 4)


async def test_clients_keep_their_connection_and_ghosts_close_theirs(clients: Any) -> None:
    target = await opened()
    for _ in range(2):
        await target.ask(asking(), Watched())
    assert len(clients.made) == 2  # one that opened, one for number 3
    await target.ask(asking(own_connection=True), Watched())
    assert len(clients.made) == 3
    assert [c.closed for c in clients.made] == [False, False, True]
    await target.aclose()
    assert all(c.closed for c in clients.made)


async def test_an_engine_that_cannot_ignore_an_end_is_not_asked_to(
    clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedClient, "unsupported", True)
    target = await opened(model="tiny")
    await target.ask(asking(), Watched())
    ((_, options),) = clients.made[-1].asked
    assert "ignore_eos" not in options
    assert options["model"] == "tiny"


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (error_of(failed(Reason.CLASS_FULL), started=False), Refused, "class_full"),
        (error_of(failed(Reason.DEADLINE_EXCEEDED), started=False), Expired, "deadline_exceeded"),
        (error_of(failed(Reason.DEADLINE_EXCEEDED), started=True), Expired, "deadline_exceeded"),
        (error_of(failed(Reason.ENGINE_FAILED), started=True), Broke, "engine_failed"),
        (Unavailable("gone"), Broke, "unavailable"),
    ],
)
async def test_how_attempts_end(
    clients: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, kind: Any, reason: str
) -> None:
    target = await opened()
    monkeypatch.setattr(PlayedClient, "error", error)
    with pytest.raises(kind, match=reason):
        await target.ask(asking(), Watched())


async def test_a_hint_reaches_the_caller(clients: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    target = await opened()
    answer = failed(Reason.CLASS_FULL, retry_after_ms=1500, ticket="t")
    monkeypatch.setattr(PlayedClient, "error", error_of(answer, started=False))
    with pytest.raises(Refused) as caught:
        await target.ask(asking(), Watched())
    assert (caught.value.retry_after_ms, caught.value.ticket) == (1500.0, "t")


async def test_no_daemon_is_an_error_and_so_is_no_model(
    clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TargetError, match="/s has no model other; it has tiny"):
        await GateTarget("/s", "other", ready_s=60.0).open()
    monkeypatch.setattr(Pool, "state", "loading")
    for model in ("other", None):
        with pytest.raises(TargetError, match="no model was ready"):
            await GateTarget("/s", model, ready_s=0.01).open()
    monkeypatch.setattr(PlayedClient, "error", Unavailable("nobody listens"))
    with pytest.raises(TargetError, match="/s: nobody listens"):
        await opened()


async def learn_all(target: GateTarget) -> None:
    await target.open()
    await target.count("four")


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("connect", "answered no request within"),
        ("generate", "answered no request within"),
        ("count", "counted no tokens within"),
    ],
)
async def test_a_daemon_that_is_silent_is_not_waited_for_for_ever(
    clients: Any, monkeypatch: pytest.MonkeyPatch, method: str, words: str
) -> None:
    async def never(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PlayedClient, method, never)
    target = GateTarget("/s", None, ready_s=0.01)
    with pytest.raises(TargetError, match=words):
        await learn_all(target)


async def test_it_counts_tokens(clients: Any) -> None:
    assert await (await opened()).count("four") == 4


async def test_where_the_engine_does_not_count_an_answer_says_it(
    clients: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedClient, "unsupported", True)
    target = await opened()
    assert await target.count("four") == Reply.usage.prompt_tok
    assert clients.made[0].asked[-1] == ("four", {"max_tokens": 1})
