"""A daemon in memory: what a client sends is answered at once, or never."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest

from onegate.client.core import Core, Options
from onegate.client.errors import Unavailable
from onegate.client.session import Session
from onegate.protocol import messages as m
from onegate.protocol.connection import HelloReceived, RequestReceived, ServerConnection
from onegate.protocol.content import FinishReason, Identity, Usage
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.features import KNOWN

LIMITS = m.Limits(
    max_frame_bytes=1 << 20,
    frame_timeout_ms=10_000,
    in_flight_per_session=256,
    classes={
        "loop": m.ClassLimits(max_tokens_default=16, max_tokens_max=64, timeout_ms=20_000),
        "batch": m.ClassLimits(max_tokens_default=16, max_tokens_max=64),
    },
)


def welcome() -> m.Welcome:
    return m.Welcome(
        peer=m.PeerFacts(uid=7, gid=7, pid=7),
        class_="loop",
        ceiling="interactive",
        why=["no hint matched: loop"],
        models=[m.ModelInfo(model="tiny", state="ready", max_context_tok=4096)],
        limits=LIMITS,
        features=["v1"],
        version="0",
    )


def failed(reason: Reason, call_id: int | None = None, **more: object) -> m.Failed:
    fields: dict[str, object] = {"message": "a sentence", "retryable": True, "phase": Phase.QUEUED}
    return m.Failed(reason=reason, id=call_id, **(fields | more))


def answer(call_id: int, *texts: str) -> list[m.DaemonMessage]:
    """A whole answer, one chunk per text."""
    return [
        m.Started(id=call_id, rid=f"r{call_id}", queue_ms=0.0),
        *(m.Chunk(id=call_id, n_tok=1, text=text) for text in texts),
        m.Done(
            id=call_id,
            rid=f"r{call_id}",
            finish_reason=FinishReason.STOP,
            usage=Usage(prompt_tok=3, output_tok=len(texts)),
            timings=m.Timings(queue_ms=0.0, e2e_ms=1.0),
            identity=Identity(engine="scripted", model="tiny"),
        ),
    ]


Script = Callable[[m.ClientMessage], "list[m.DaemonMessage] | None"]


class FakeLink:
    """One connection. The script answers each message; None closes the connection instead."""

    def __init__(self, world: "World", script: Script) -> None:
        self.session = Session()
        self.sent: list[m.ClientMessage] = []
        self.closed = False
        self.arrived = b"nothing"  # what look() finds; b"" is an end of file
        self._world = world
        self._script = script
        self._daemon = ServerConnection(built=KNOWN)

    async def send(self, data: bytes, deadline_ns: int | None) -> None:
        if (ended := self.session.ended) is not None:
            raise ended
        self.send_now(data)

    def send_now(self, data: bytes) -> None:
        for event in self._daemon.receive(data):
            assert isinstance(event, HelloReceived | RequestReceived), event
            self.sent.append(event.message)
            if isinstance(event.message, m.Cancel):
                self._cancel(event.message.id)
                continue
            answers = self._script(event.message)
            if answers is None:
                self.session.feed(b"")
                continue
            for message in answers:
                self.say(message)

    def _cancel(self, call_id: int) -> None:
        live = self._daemon.is_live(call_id)
        self.say(m.Ack(id=call_id, verb="cancel", applied=live))
        if live:
            self.say(failed(Reason.CANCELLED, call_id))

    def say(self, message: m.DaemonMessage) -> None:
        self.session.feed(self._daemon.send(message))

    async def receive(self, call_id: int, deadline_ns: int | None) -> m.DaemonMessage:
        if (message := self.session.take(call_id)) is not None:
            return message
        if (ended := self.session.ended) is not None:
            raise ended
        assert deadline_ns is not None, "this would wait for ever"
        self._world.now_ns = max(self._world.now_ns, deadline_ns)
        raise TimeoutError

    def look(self) -> None:
        if self.arrived == b"":
            self.session.feed(b"")

    def close(self) -> None:
        self.closed = True
        self.session.end(Unavailable("this client is closed"))


class World:
    """A transport whose connections follow `scripts` in turn; a script that is an error is one
    that connecting meets. Sleeping only moves the clock."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000
        self.scripts: list[Script | Exception] = []
        self.links: list[FakeLink] = []
        self.slept_s: list[float] = []

    async def connect(self, path: str, deadline_ns: int) -> FakeLink:
        script = self.scripts.pop(0)
        if isinstance(script, Exception):
            raise script
        self.links.append(FakeLink(self, script))
        return self.links[-1]

    async def sleep(self, seconds: float) -> None:
        self.slept_s.append(seconds)
        self.now_ns += round(seconds * 1e9)

    def lock(self) -> nullcontext[None]:
        return nullcontext()

    def core(self, *scripts: Script | Exception, **options: object) -> Core:
        self.scripts += scripts
        defaults: dict[str, object] = {
            "path": "/nowhere",
            "app": "test",
            "model": None,
            "class_": None,
            "retry": "restart",
            "connect_timeout": 10.0,
            "restart_timeout": 60.0,
            "answer_timeout": 30.0,
        }
        return Core(self, Options(**(defaults | options)))

    @property
    def sent(self) -> list[m.ClientMessage]:
        """Everything but hellos, over all connections."""
        return [x for link in self.links for x in link.sent if not isinstance(x, m.Hello)]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    for module in ("core", "call"):
        monkeypatch.setattr(f"onegate.client.{module}.monotonic_ns", lambda: world.now_ns)
    return world


@pytest.fixture
def wire() -> "Wire":
    return Wire()


class Wire:
    """What scripts are made of."""

    welcome = staticmethod(welcome)
    failed = staticmethod(failed)
    answer = staticmethod(answer)

    @staticmethod
    def script(*answers: "Callable[[m.ClientMessage], list[m.DaemonMessage]] | None") -> Script:
        """Welcome first; then one of `answers` per request."""
        rest = list(answers)

        def script(message: m.ClientMessage) -> list[m.DaemonMessage] | None:
            if isinstance(message, m.Hello):
                return [welcome()]
            follow = rest.pop(0)
            return None if follow is None else follow(message)

        return script

    @classmethod
    def text(cls, *texts: str) -> "Callable[[m.ClientMessage], list[m.DaemonMessage]]":
        return lambda message: answer(message.id, *texts)

    @staticmethod
    def refuse(
        reason: Reason, **more: object
    ) -> "Callable[[m.ClientMessage], list[m.DaemonMessage]]":
        return lambda message: [failed(reason, message.id, **more)]

    @staticmethod
    def silence(message: m.ClientMessage) -> list[m.DaemonMessage]:
        return []
