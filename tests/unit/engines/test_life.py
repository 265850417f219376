import pytest

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
    CallDone,
    Heartbeat,
    HostHello,
    Output,
    PoolUpdate,
    Step,
)
from onegate.engines.life import HostLife
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule
from onegate.engines.stream import Stream

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


@pytest.fixture
def pools():
    return []


@pytest.fixture
async def life(pools):
    rule = Rule()
    life = HostLife(
        child=None, seats=Seats(lambda event: None, rule), rule=rule, kind="k", on_pool=pools.append
    )
    life.rule = rule
    return life


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
