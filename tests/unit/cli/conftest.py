"""A gate that a test fills with answers, in the place of the client of every verb."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self

import pytest

from onegate.client.reply import Collector, Reply
from onegate.protocol import messages as m
from onegate.protocol.content import FinishReason, Identity, Usage
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.status import (
    ClassStatus,
    GateStatus,
    NoticeStatus,
    PoolStatus,
    Quantiles,
    RequestStatus,
    Status,
)


class Given:
    """Values that tests are made of."""

    @staticmethod
    def chunk(text: str, kind: str = "text") -> m.Chunk:
        return m.Chunk(id=1, n_tok=1, text=text, kind=kind)  # type: ignore[arg-type]

    @staticmethod
    def reply(text: str = "blue", notices: tuple[m.Notice, ...] = ()) -> Reply:
        collector = Collector()
        collector.add(m.Chunk(id=1, n_tok=1, text=text))
        return collector.finish(
            m.Done(
                id=1,
                rid="r1",
                finish_reason=FinishReason.STOP,
                usage=Usage(prompt_tok=3, output_tok=1),
                timings=m.Timings(queue_ms=0.0, e2e_ms=1.0),
                identity=Identity(engine="scripted", model="tiny"),
                notices=list(notices),
            )
        )

    @staticmethod
    def failed(reason: Reason, **more: object) -> m.Failed:
        fields: dict[str, Any] = {
            "message": "a sentence.",
            "retryable": True,
            "phase": Phase.QUEUED,
        }
        return m.Failed(reason=reason, **(fields | more))

    @staticmethod
    def pool(**more: object) -> PoolStatus:
        fields: dict[str, Any] = {
            "model": "tiny",
            "state": "ready",
            "seats": 16,
            "seats_used": 3,
            "seats_quarantined": 0,
            "restarts": 0,
        }
        return PoolStatus(**(fields | more))

    @staticmethod
    def cls(**more: object) -> ClassStatus:
        fields: dict[str, Any] = {
            "name": "batch",
            "rank": 2,
            "queued": 4,
            "queued_tok": 400,
            "max_queued_tok": 1000,
            "running": 1,
            "admitted": 10,
            "finished": 9,
            "rejected": {},
            "cancelled": 2,
            "expired": 0,
            "failed": 0,
            "preempted": 0,
        }
        return ClassStatus(**(fields | more))

    @classmethod
    def status(cls, **more: object) -> Status:
        fields: dict[str, Any] = {
            "state": "serving",
            "version": "0.1",
            "uptime_s": 90_061.0,
            "gate": GateStatus(
                in_flight=3,
                max_in_flight=64,
                queued=4,
                queued_tok=400,
                max_queued_tok=1000,
                inbound_bytes=0,
                sessions=2,
            ),
            "pools": [cls.pool()],
            "classes": [cls.cls()],
            "notices": [],
        }
        return Status(**(fields | more))

    notice = NoticeStatus
    quantiles = Quantiles

    @staticmethod
    def request(**more: object) -> RequestStatus:
        fields: dict[str, Any] = {
            "rid": "r1",
            "class_": "batch",
            "state": "running",
            "age_ms": 1500,
            "prompt_tok": 3,
            "output_tok": 4,
            "mine": True,
        }
        return RequestStatus(**(fields | more))


class FakeStream:
    def __init__(self, items: list[m.Chunk | BaseException], reply: Reply) -> None:
        self._items = items
        self._final = reply
        self.reply: Reply | None = None
        self.cancelled = False

    def __iter__(self) -> Iterator[m.Chunk]:
        for item in self._items:
            if isinstance(item, BaseException):
                raise item
            yield item
        self.reply = self._final

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancelled = self.reply is None


class Gate:
    """What one verb's client does. `answers[name]` is returned, called or raised."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.opened: list[dict[str, Any]] = []
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.streams: list[FakeStream] = []
        self.chunks: list[m.Chunk | BaseException] = [Given.chunk("bl"), Given.chunk("ue")]

    def __call__(self, socket: str | None = None, **options: Any) -> "Gate":
        self.opened.append({"socket": socket} | options)
        self._raise(self.answers.get("open"))
        return self

    @staticmethod
    def _raise(answer: Any) -> None:
        if isinstance(answer, BaseException):
            raise answer

    def __enter__(self) -> "Gate":
        return self

    def __exit__(self, *_: object) -> None: ...

    def stream(self, **options: Any) -> FakeStream:
        self.calls.append(("stream", (), options))
        reply = self.answers.get("reply", Given.reply())
        self.streams.append(FakeStream(list(self.chunks), reply))
        return self.streams[-1]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.calls.append((name, arguments, keywords))
            answer = self.answers[name]
            self._raise(answer)
            return answer

        return call


@pytest.fixture
def given() -> type[Given]:
    return Given


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    verbs = ("ask", "chat", "whoami", "capacity", "status", "wait_ready", "metrics", "pause")
    more = ("unpause", "cancel", "usage", "release_gpu", "checkup_daemon", "check_config")
    for verb in (*verbs, *more):
        monkeypatch.setattr(f"onegate.cli.{verb}.Client", made)
    return made


class Terminal:
    """Which streams a person sees."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def attach(self, *names: str) -> None:
        import sys

        for name in names:
            self._monkeypatch.setattr(getattr(sys, name), "isatty", lambda: True, raising=False)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal(monkeypatch)
