"""The daemon without its sockets: real gate, core, sessions and verbs around a played engine."""

import asyncio
import gc
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from onegate import clock
from onegate import config as configuration
from onegate.admission.model import PoolView
from onegate.engines.base import (
    Accepted,
    EmbedRequest,
    EmbedResult,
    EngineBroke,
    EngineCapacity,
    EngineChunk,
    EngineLost,
    EngineRequest,
    EngineSnapshot,
    Feature,
    Finished,
    GenerateItem,
    Health,
    PoolChanged,
    PoolInfo,
    PoolState,
    Reservation,
    SeatFreed,
    Sink,
    TokenCount,
)
from onegate.protocol import messages as m
from onegate.protocol.connection import ClientConnection
from onegate.protocol.content import FinishReason, Identity, Message, Params, Tool, Usage
from onegate.protocol.errors import NoticeCode, Phase, Reason
from onegate.protocol.features import KNOWN
from onegate.server import sessions as sessions_module
from onegate.server import turns as turns_module
from onegate.server.account import Accounts
from onegate.server.classify import compile_rules
from onegate.server.closures import Closures
from onegate.server.dispatch import dispatch
from onegate.server.engineroom import EngineRoom
from onegate.server.gate import Gate
from onegate.server.inbound import InboundBytes
from onegate.server.kernel import LinuxKernel
from onegate.server.live import LiveRequests
from onegate.server.log import Level, Log
from onegate.server.metrics import Metrics
from onegate.server.outcome import Outcome
from onegate.server.peercred import Peer
from onegate.server.release import Release
from onegate.server.report import Reporter
from onegate.server.services import Services
from onegate.server.session import Session
from onegate.server.sessions import Sessions
from onegate.server.state import StateDirectory
from onegate.server.translate import class_spec, class_specs, gate_limits, pool_spec
from onegate.server.usage import UsageTable
from onegate.tasks import Tasks

CONFIG = """
[[grant]]
uid = 2000
delegate = true
"""

TINY = PoolInfo(
    model="tiny",
    state=PoolState.READY,
    capacity=EngineCapacity(
        max_seqs=2,
        max_context_tok=4096,
        reservation=Reservation.GROW,
        kv_tok=8192,
        max_bytes_per_tok=16,
    ),
    features=frozenset(Feature),
    params=frozenset(Params.__struct_fields__),
    identity=Identity(engine="played", model="tiny"),
)


class Run:
    """One generation of the played engine: it yields what the test says, in that order."""

    def __init__(self, request: EngineRequest) -> None:
        self.request = request
        self.id = request.id
        self.iterated = False
        self.closed = 0
        self.on_close: Callable[[], Awaitable[None]] | None = None
        self._items: asyncio.Queue[GenerateItem | BaseException | None] = asyncio.Queue()

    def say(self, *items: GenerateItem | BaseException | None) -> None:
        """Yield these; an exception is raised, None ends the iterator."""
        for item in items:
            self._items.put_nowait(item)

    def chunk(self, text: str, *, n_tok: int = 1) -> None:
        ids = [ord(char) for char in text[:n_tok]]
        self.say(EngineChunk(n_tok=n_tok, text=text, token_ids=ids))

    def accept(self, prompt_tok: int = 5) -> None:
        self.say(Accepted(prompt_tok=prompt_tok))

    def finish(self, n_tok: int = 1) -> None:
        usage = Usage(prompt_tok=5, output_tok=n_tok)
        self.say(Finished(finish_reason=FinishReason.STOP, usage=usage))

    def __aiter__(self) -> AsyncIterator[GenerateItem]:
        return self

    async def __anext__(self) -> GenerateItem:
        self.iterated = True
        item = await self._items.get()  # does not suspend while there is one
        if item is None:
            raise StopAsyncIteration
        if isinstance(item, BaseException):
            raise item
        return item

    async def aclose(self) -> None:
        self.closed += 1
        if self.on_close is not None:
            await self.on_close()


class PlayedEngine:
    """An engine that does nothing by itself."""

    def __init__(self, *pools: PoolInfo) -> None:
        self.infos = {pool.model: pool for pool in pools}
        self.runs: list[Run] = []
        self.on_generate: Callable[[EngineRequest], None] = lambda request: None
        self.on_count: Callable[..., Awaitable[TokenCount]] | None = None
        self.on_load: Callable[[str], Awaitable[None]] | None = None
        self.on_embed: Callable[[EmbedRequest], Awaitable[EmbedResult]] | None = None
        self.counts: list[dict[str, Any]] = []
        self.on_unload: Callable[[str], Awaitable[None]] | None = None
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.cold = False
        self.snapshots: dict[str, EngineSnapshot] = {}
        self.closed: list[float] = []
        self.stops: list[int] = []
        self.sink: Sink = lambda event: None

    async def start(self, sink: Sink) -> None:
        self.sink = sink

    def pools(self) -> list[PoolInfo]:
        return list(self.infos.values())

    def generate(self, request: EngineRequest) -> Run:
        self.on_generate(request)
        run = Run(request)
        self.runs.append(run)
        return run

    def stop(self, id: int) -> None:
        self.stops.append(id)

    async def embed(self, request: EmbedRequest) -> EmbedResult:
        assert self.on_embed is not None, "nothing asks for embeddings"
        return await self.on_embed(request)

    async def count(
        self,
        model: str,
        *,
        prompt: str | None = None,
        raw: bool = False,
        messages: list[Message] | None = None,
        tools: list[Tool] | None = None,
    ) -> TokenCount:
        asked = {"model": model, "prompt": prompt, "messages": messages, "tools": tools}
        asked |= {"raw": True} if raw else {}
        self.counts.append(asked)
        if self.on_count is not None:
            return await self.on_count(**asked)
        return TokenCount(n_tok=7, exact=True)

    def snapshot(self, model: str) -> EngineSnapshot | None:
        return self.snapshots.get(model)

    def health(self) -> Health:
        return Health(state="ready")

    async def load(self, model: str) -> None:
        self.loads.append(model)
        if self.on_load is not None:
            await self.on_load(model)

    def keep_cold(self, cold: bool) -> None:
        self.cold = cold

    async def unload(self, model: str) -> None:
        self.unloads.append(model)
        if self.on_unload is not None:
            await self.on_unload(model)

    async def aclose(self, deadline_s: float) -> None:
        self.closed.append(deadline_s)


class PlayedTransport(asyncio.Transport):
    """What a connection writes. `reads` false: the client leaves everything in the buffer."""

    def __init__(self, protocol: asyncio.Protocol, peer: object) -> None:
        super().__init__(extra={"socket": peer})
        self._protocol = protocol
        self.written = bytearray()
        self.unread_bytes = 0
        self.reads = True
        self.high: int | None = None
        self.closing = False
        self.aborted = False
        self.lost = False
        self.paused = False

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return self.unread_bytes

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data
            self.unread_bytes += 0 if self.reads else len(data)

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        if not self.unread_bytes:
            self._lose()

    def abort(self) -> None:
        self.closing = self.aborted = True
        self.unread_bytes = 0
        self._lose()

    def _lose(self) -> None:
        if not self.lost:
            self.lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class Client:
    """A connection's other end."""

    def __init__(self, session: Session, peer: object) -> None:
        self.session = session
        self.transport = PlayedTransport(session, peer)
        self.connection = ClientConnection()
        self._read = 0
        self.session.connection_made(self.transport)

    def say(self, *messages: m.ClientMessage) -> None:
        """Send these in one piece."""
        self.raw(b"".join(self.connection.send(message) for message in messages))

    def say_anyway(self, *messages: m.ClientMessage) -> None:
        """Send what a well-behaved client would not, such as an id that is in use."""
        for message in messages:
            other = ClientConnection()
            other.send(m.Hello(features=["v1"]))
            self.raw(other.send(message))

    def raw(self, data: bytes) -> None:
        if not self.transport.closing:
            self.session.data_received(data)

    def hang_up(self) -> None:
        """The kernel says that the connection is gone."""
        self.transport.abort()

    def heard(self) -> list[Any]:
        """What has come since this was asked last."""
        self.session.flush()
        data = bytes(self.transport.written[self._read :])
        self._read = len(self.transport.written)
        return list(self.connection.receive(data))

    def hello(self, **fields: Any) -> m.Welcome:
        self.say(m.Hello(features=sorted(KNOWN), **fields))
        (welcome,) = self.heard()
        assert isinstance(welcome, m.Welcome)
        return welcome


@dataclass
class Box:
    """The parts of a daemon, and what has become of its requests."""

    engine: PlayedEngine
    gate: Gate
    services: Services
    sessions: Sessions
    room: EngineRoom
    log: io.StringIO
    crashes: list[BaseException] = field(default_factory=list)
    skipped_ns: int = 0
    disk: Any = None

    def skip(self, seconds: float) -> None:
        """Move the clock on, and let the core see it."""
        self.skipped_ns += round(seconds * 1e9)
        self.gate.open_class("batch")

    def connect(self, *, uid: int = 1000, **facts: Any) -> Client:
        """A connection of that uid, in a session of its own unless `facts` say otherwise."""
        facts = {"slice": f"user-{uid}.slice", "owner_uid": uid} | facts
        peer = Peer(pid=9, uid=uid, gid=uid, groups=(uid,), source="peer_pidfd", **facts)
        return self.attach(self.sessions.accept(), peer)

    def attach(self, session: Session, peer: object) -> Client:
        """A connection with that session at its end."""
        return Client(session, peer)

    def greeted(self, *, uid: int = 1000, app: str = "", **facts: Any) -> Client:
        client = self.connect(uid=uid, **facts)
        client.hello(app=app)
        return client

    async def quiet(self, turns: int = 20) -> None:
        """Let everything that can run do so."""
        for _ in range(turns):
            await asyncio.sleep(0)

    async def ask(self, client: Client, id: int = 1, **fields: Any) -> None:
        client.say(m.Generate(id=id, **({"prompt": "why?"} | fields)))
        await self.quiet()

    async def run(self, client: Client, id: int = 1, **fields: Any) -> Run:
        """A request that the engine has just been given."""
        before = len(self.engine.runs)
        await self.ask(client, id, **fields)
        assert len(self.engine.runs) == before + 1
        return self.engine.runs[-1]

    def free(self, run: Run) -> None:
        """The engine confirms that nothing of it runs any more."""
        self.room.hear(SeatFreed(id=run.id))

    def lose(self, *runs: Run, reason: str = "it died") -> None:
        """The engine dies with these inside, and is loading again."""
        self.change(state=PoolState.LOADING)
        self.room.hear(EngineLost(ids=[run.id for run in runs], reason=reason, restarts=1))

    def change(self, model: str = "tiny", **fields: Any) -> None:
        """The engine says that a pool is now so."""
        info = msgspec.structs.replace(self.engine.infos[model], **fields)
        self.engine.infos[model] = info
        self.room.hear(PoolChanged(pool=info))

    @property
    def pool(self) -> PoolView:
        return self.gate.view().pools[0]

    def outcomes(self) -> dict[Outcome, int]:
        """How many requests ended how."""
        total: dict[Outcome, int] = {}
        for account in self.services.accounts.classes.values():
            for outcome, count in account.outcomes.items():
                total[outcome] = total.get(outcome, 0) + count
        return total

    def ends(self) -> list[dict[str, str]]:
        """The fields of each line about the end of a request."""
        lines = self.log.getvalue().splitlines()
        found = [line.split(" request_end ", 1)[1] for line in lines if " request_end " in line]
        return [dict(word.split("=", 1) for word in words.split()) for words in found]

    def all_is_given_back(self) -> None:
        """Nothing lives, nothing is held, gate and core agree."""
        self.gate.validate()
        view = self.gate.view()
        assert (view.in_flight, view.queued, view.queued_tok) == (0, 0, 0)
        assert len(self.services.live) == 0
        assert len(self.services.tasks) == 0
        assert self.services.inbound.total_bytes == 0


MakeBox = Callable[..., Box]


@pytest.fixture
async def make_box(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[MakeBox]:
    """Boxes, by configuration text and pools. What crashed in one, or was left, fails the test."""
    boxes: list[Box] = []

    def identify(sock: Any, kernel: object) -> Peer:
        if isinstance(sock, OSError):
            raise sock
        assert isinstance(sock, Peer)
        return sock

    real_ns = clock.monotonic_ns

    def now_ns() -> int:
        return real_ns() + sum(box.skipped_ns for box in boxes)

    monkeypatch.setattr(sessions_module, "identify", identify)
    monkeypatch.setattr(clock, "monotonic_ns", now_ns)
    # Otherwise a slow machine would answer some of several requests a turn later.
    monkeypatch.setattr(turns_module, "TURN_NS", 3600 * 10**9)

    def make(text: str = "", *pools: PoolInfo, directory: StateDirectory | None = None) -> Box:
        config = configuration.check(CONFIG + text)
        stream = io.StringIO()
        log = Log(stream, journal=False, level=Level.DEBUG)
        engine = PlayedEngine(*(pools or (TINY,)))
        crashes: list[BaseException] = []
        tasks = Tasks(lambda name, error: crashes.append(error))
        accounts = Accounts()
        inbound = InboundBytes(config.gate.inbound_bytes, config.gate.inbound_bytes_per_principal)
        gate = Gate(
            gate_limits(config),
            class_specs(config),
            tuple(map(pool_spec, engine.pools())),
            on_load=lambda model: room.load(model),
        )
        reporter = Reporter(
            gate=gate,
            engine=engine,
            accounts=accounts,
            inbound=inbound,
            limits=lambda: services.config.gate,
            sessions=lambda: len(sessions),
            state=lambda: "serving",
            started_ns=clock.monotonic_ns(),
        )
        live = LiveRequests(boot="b")
        closures = Closures(
            directory,
            log=log,
            notice=lambda problem: reporter.notice(NoticeCode.CLOSED_UNWRITTEN, problem),
            damaged=lambda detail: reporter.notice(NoticeCode.STATE_DAMAGED, detail),
        )
        release = Release(
            engine=engine,
            gate=gate,
            live=live,
            class_of=lambda name: class_spec(services.class_config(name)),
            drain_timeout_s=lambda: services.config.gate.drain_timeout_s,
            closures=closures,
            log=log,
            tasks=tasks,
        )
        room = EngineRoom(
            engine=engine,
            gate=gate,
            accounts=accounts,
            release=release,
            reporter=reporter,
            log=log,
            tasks=tasks,
        )
        services = Services(
            config=config,
            rules=compile_rules(config, lambda name: None),
            kernel=LinuxKernel(),
            gate=gate,
            engine=engine,
            tasks=tasks,
            accounts=accounts,
            inbound=inbound,
            live=live,
            closures=closures,
            release=release,
            usage=UsageTable(lambda: services.config.usage),
            reporter=reporter,
            metrics=Metrics(accounts, reporter.status),
            log=log,
        )
        sessions = Sessions(services, dispatch)
        box = Box(engine, gate, services, sessions, room, stream, crashes)
        boxes.append(box)
        return box

    loop_errors: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: loop_errors.append(context))
    yield make
    gc.collect()  # what nobody awaited is reported when it is collected
    assert loop_errors == []
    for box in boxes:
        box.services.release.close()
        box.services.hours.close()
        box.gate.close()
        box.gate.validate()
        assert box.crashes == []


@pytest.fixture
async def box(make_box: MakeBox) -> Box:
    """The daemon as configured by default, with one pool of two seats."""
    return make_box()


@dataclass
class Case:
    """A daemon with one seat. The subject asks with id 1; a holder may have the seat first."""

    box: Box
    subject: Client
    holder: Client
    heard: list[Any] = field(default_factory=list)

    async def start(self, **fields: Any) -> Run:
        """The subject's request, at the engine."""
        return await self.box.run(self.subject, **fields)

    async def wait(self, **fields: Any) -> Run:
        """The subject's request, waiting behind the holder's, whose run is returned."""
        run = await self.box.run(self.holder, 99)
        await self.box.ask(self.subject, **fields)
        assert self.box.gate.view().queued == 1
        return run

    async def leave(self, run: Run) -> None:
        """The holder is done."""
        run.finish()
        await self.box.quiet()
        self.box.free(run)

    async def requeue(self, run: Run) -> None:
        """The engine dies with the subject inside, which waits again."""
        self.box.lose(run)
        run.say(EngineBroke("it died"))
        await self.box.quiet()
        assert self.box.gate.view().queued == 1

    def listen(self) -> list[Any]:
        new = self.subject.heard()
        self.heard += new
        return new

    def cancel(self) -> None:
        self.subject.say(m.Cancel(id=1))

    async def cancelled(self, phase: Phase, **more: Any) -> None:
        await self.ended(Outcome.CANCELLED, Reason.CANCELLED, phase, **more)

    async def gone(self, **more: Any) -> None:
        await self.ended(Outcome.DISCONNECTED, Reason.CANCELLED, silent=True, **more)

    async def ended(
        self,
        outcome: Outcome,
        reason: Reason | None = None,
        phase: Phase | None = None,
        *,
        quarantined: int = 0,
        silent: bool = False,
        crash: type[BaseException] | None = None,
    ) -> None:
        """The subject's request has ended once and like this; without a reason it is `Done`.

        `quarantined` seats wait for the engine's word; `silent`: there is nobody to tell.
        """
        box = self.box
        await box.quiet()
        assert [type(error) for error in box.crashes] == ([] if crash is None else [crash])
        box.crashes.clear()

        self.listen()
        last_words = [x for x in self.heard if isinstance(x, m.Done | m.Failed) and x.id == 1]
        if silent:
            assert last_words == []
        else:
            (last,) = last_words
            assert (getattr(last, "reason", None), getattr(last, "phase", None)) == (reason, phase)
            assert not self.subject.connection.is_live(1)
        assert 1 not in self.subject.session.live
        assert sum(isinstance(x, m.Started) for x in self.heard) <= 1

        lines = box.ends()
        assert [x["outcome"] for x in lines if x["uid"] == "1001"] == [outcome.value]
        others = len(lines) - 1
        assert sum(box.outcomes().values()) == 1 + others
        assert box.outcomes()[outcome] == 1 + (others if outcome is Outcome.FINISHED else 0)

        box.all_is_given_back()
        assert box.pool.seats_used == box.pool.seats_quarantined == quarantined
        for run in box.engine.runs:
            assert run.closed == 1
            box.free(run)
        box.gate.validate()
        assert (box.pool.seats_used, box.pool.kv_tok_used) == (0, 0)


@pytest.fixture
async def case(make_box: MakeBox) -> Case:
    box = make_box()
    box.change(capacity=msgspec.structs.replace(TINY.capacity, max_seqs=1))
    return Case(box, box.greeted(uid=1001), box.greeted(uid=1002))
