import asyncio
import contextlib
import socket

import pytest
from msgspec.msgpack import decode

from onegate.engines import life as life_module
from onegate.engines.base import (
    EngineCapacity,
    EngineChunk,
    EngineMalformed,
    EngineSnapshot,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.engines.host.wire import (
    WIRE,
    AcceptedMsg,
    Attach,
    CallDone,
    Heartbeat,
    HostHello,
    Output,
    PoolUpdate,
    Step,
    ToHost,
    UnloadCall,
)
from onegate.engines.life import HostLife
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule
from onegate.engines.stream import Stream
from onegate.protocol.framing import FrameReader

CAPACITY = EngineCapacity(max_seqs=2, max_context_tok=10, reservation=Reservation.GROW)
LOADING = PoolInfo(model="m", state=PoolState.LOADING, capacity=CAPACITY)
READY = PoolInfo(model="m", state=PoolState.READY, capacity=CAPACITY)


class Rule(StallRule):
    """Remembers the step counts it was told."""

    def __init__(self):
        super().__init__(10.0, 0)
        self.counts = []

    def heard(self, now_ns, steps):
        self.counts.append(steps)
        super().heard(now_ns, steps)


class Connection:
    """A host that says nothing; see `connection.Connection`."""

    last_line = ""

    def __init__(self, is_ours=True, hello_s=60.0):
        self.is_ours = is_ours
        self.hello_s = hello_s
        self.sock, self.theirs = socket.socketpair()
        self.killed = 0

    async def follow_output(self):
        pass

    def exit_text(self):
        return None

    async def exited(self, timeout_s):
        return False

    def kill(self):
        self.killed += 1


@pytest.fixture
def pools():
    return []


@pytest.fixture
def silences():
    return []


@pytest.fixture
def make_life(pools, silences):
    def make(connection):
        rule = Rule()
        life = HostLife(
            connection,
            seats=Seats(lambda event: None, rule),
            rule=rule,
            kind="k",
            on_pool=pools.append,
            on_silence=silences.append,
        )
        life.rule = rule
        return life

    return make


@pytest.fixture
async def life(make_life):
    connection = Connection()
    yield make_life(connection)
    connection.sock.close()
    connection.theirs.close()


def hello(**given):
    return HostHello(
        **{"wire": WIRE, "pid": 1, "kind": "k", "version": "1", "pools": [LOADING], **given}
    )


async def test_the_host_introduces_itself(life, pools):
    assert not life.attached
    life.hear(hello())
    assert life.attached
    assert pools == [LOADING]
    assert not life.was_ready
    life.hear(PoolUpdate(pool=READY))
    assert pools[-1] == READY
    assert life.was_ready


@pytest.mark.parametrize(
    "message",
    [
        hello(wire=WIRE + 1),
        hello(kind="other"),
        hello(pools=[]),
        Heartbeat(steps=1, busy=False),
    ],
    ids=["wire", "kind", "no pools", "no hello"],
)
async def test_another_introduction_is_none(life, message):
    with pytest.raises(EngineMalformed):
        life.hear(message)
    assert not life.attached


async def test_once_is_enough(life):
    life.hear(hello())
    with pytest.raises(EngineMalformed):
        life.hear(hello())


async def test_steps_and_heartbeats_are_told_to_the_rule(life):
    life.hear(hello())
    life.hear(Step(n=4))
    life.hear(Heartbeat(steps=6, busy=True))
    assert max(life.rule.counts) == 6
    assert 4 in life.rule.counts


async def test_figures_are_kept_by_pool(life):
    life.hear(hello())
    for model in ("a", "b"):
        life.hear(Step(n=1, snapshot=EngineSnapshot(model=model, steps=7)))
    assert life.snapshots["a"][0].steps == 7
    assert life.snapshots["b"][1] > 0


async def test_requests_and_questions_are_passed_on(life):
    life.hear(hello())
    stream = Stream(1, begin=lambda s: None, abandon=lambda s: None)
    life.seats.enter(stream, "m")
    life.hear(AcceptedMsg(id=1))
    life.hear(Step(n=1, outputs=[Output(id=1, chunk=EngineChunk(n_tok=1))]))
    await anext(stream)
    assert isinstance(await anext(stream), EngineChunk)
    with pytest.raises(EngineMalformed):
        life.hear(CallDone(call=1))


@pytest.mark.parametrize(
    ("is_ours", "says"), [(True, "install the same version"), (False, "its service starts")]
)
async def test_another_wire_says_what_mends_it(make_life, is_ours, says):
    connection = Connection(is_ours)
    with connection.sock, connection.theirs:
        life = make_life(connection)
        with pytest.raises(EngineMalformed, match=says):
            life.hear(hello(wire=WIRE + 1))


async def test_one_that_never_answers_is_told_of_and_then_left(make_life, silences, monkeypatch):
    clock = iter(range(0, 10**15, 10**10))  # ten seconds a look
    monkeypatch.setattr(life_module, "monotonic_ns", lambda: next(clock))
    connection = Connection(hello_s=120.0)
    with connection.theirs:
        life = make_life(connection)
        life.rule.stalled = lambda now_ns, loading: None
        error = await life.run({}, tick_s=0.0)
    assert "nothing for 120 s" in str(error)
    assert len(silences) == 1
    assert "does not answer" in silences[0]
    assert connection.killed == 1


async def test_a_connection_that_is_ended_is_one_that_is_lost(make_life):
    connection = Connection()
    with connection.theirs:
        life = make_life(connection)
        async with asyncio.TaskGroup() as group:
            run = group.create_task(life.run({}, tick_s=60.0))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            while not life._link._transport:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0)
            life.kill()
        assert "has closed its connection" in str(run.result())
    assert connection.killed == 2


async def test_a_host_is_told_what_to_leave_cold_together_with_its_settings(make_life):
    connection = Connection()
    life = make_life(connection)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(life.run({}, tick_s=60.0, cold=["a", "b"]))
        reader, frames = FrameReader(1 << 20), []
        while len(frames) < 3:
            await asyncio.sleep(0)
            with contextlib.suppress(BlockingIOError):
                frames += reader.feed(connection.theirs.recv(1 << 16, socket.MSG_DONTWAIT))
        attach, *unloads = [decode(frame, type=ToHost) for frame in frames]
        assert isinstance(attach, Attach)
        assert [call.model for call in unloads] == ["a", "b"]
        assert all(isinstance(call, UnloadCall) for call in unloads)
        life.hear(hello())
        for call in unloads:
            life.hear(CallDone(call=call.call))
        connection.theirs.close()
    assert "closed" in str(running.result())
    connection.sock.close()
