"""What the engine says reaches the gate, the counts, the log and the status."""

import asyncio
from typing import Any

import msgspec
import pytest

from onegate.admission.model import PoolState as CoreState
from onegate.admission.switching import LOAD_ANSWER_NS
from onegate.engines.base import (
    EngineBroke,
    EngineLost,
    EngineNotice,
    EngineUnavailable,
    Health,
    PoolChanged,
    PoolState,
)
from onegate.protocol.errors import NoticeCode
from onegate.server import engineroom as engineroom_module

Box = Any  # of conftest.py


def notices(box: Box) -> dict[str, str]:
    return {notice.code: notice.detail for notice in box.services.reporter.status().notices}


@pytest.fixture
async def two(make_box: Any) -> Box:
    """A box with two pools."""
    box = make_box()
    tiny = box.engine.infos["tiny"]
    box.engine.infos["other"] = msgspec.structs.replace(tiny, model="other")
    box.change("other")
    return box


async def test_a_seat_is_free_when_the_engine_says_so(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    client.hang_up()
    await box.quiet()
    assert box.pool.seats_quarantined == 1
    box.free(run)
    assert box.pool.seats_used == 0


async def test_a_loss_is_counted_and_logged(box: Box) -> None:
    client = box.greeted()
    runs = [await box.run(client, 1), await box.run(client, 2)]
    box.room.hear(EngineLost(ids=[run.id for run in runs], reason="killed", restarts=1))
    assert box.services.accounts.engine_losses == 1
    assert "engine_exited count=2 detail=killed" in box.log.getvalue()
    assert box.pool.seats_used == 0
    for run in runs:
        run.say(EngineBroke("killed"))
    await box.quiet()


async def test_a_pool_becomes_what_the_engine_says(box: Box) -> None:
    box.change(state=PoolState.LOADING)
    assert box.pool.state is CoreState.LOADING
    assert "pool_changed model=tiny state=loading" in box.log.getvalue()


async def test_what_the_engine_has_to_say_is_a_notice_until_it_is_over(box: Box) -> None:
    for model, detail in (("tiny", "set max_seqs = 2"), ("other", "set max_seqs = 3")):
        box.room.hear(EngineNotice(code="engine_queueing", model=model, detail=detail))
    said = notices(box)[NoticeCode.ENGINE_QUEUEING]
    assert said == "model tiny: set max_seqs = 2; model other: set max_seqs = 3"
    assert box.log.getvalue().count("max_seqs = 2") == 1
    for model in ("tiny", "other"):
        box.room.hear(EngineNotice(code="engine_queueing", model=model, detail=None))
    assert NoticeCode.ENGINE_QUEUEING not in notices(box)


async def test_an_engine_that_is_down_is_a_notice_until_it_is_back(box: Box) -> None:
    assert notices(box) == {}
    box.change(state=PoolState.FAILED, error="out of memory")
    assert notices(box) == {"engine_down": "model tiny cannot be served: out of memory"}
    box.change(state=PoolState.LOADING, error=None)
    assert "engine_down" in notices(box)
    box.change(state=PoolState.READY)
    assert notices(box) == {}


async def test_an_engine_that_has_no_pool_yet_says_why(box: Box) -> None:
    box.room.hear(EngineNotice(code="engine_down", model=None, detail="nobody answers"))
    assert notices(box)[NoticeCode.ENGINE_DOWN] == "nobody answers"
    box.room.hear(EngineNotice(code="engine_down", model=None, detail=None))
    assert notices(box) == {}


async def test_one_pool_does_not_speak_for_the_other(two: Box) -> None:
    two.change("tiny", state=PoolState.FAILED, error="one")
    two.change("other", state=PoolState.FAILED, error="two")
    two.change("other", state=PoolState.READY)
    assert notices(two) == {"engine_down": "model tiny cannot be served: one"}


async def test_a_notice_says_since_when(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    from onegate import clock

    monkeypatch.setattr(clock, "wall_ms", lambda: 1000)
    box.change(state=PoolState.FAILED, error="one")
    monkeypatch.setattr(clock, "wall_ms", lambda: 2000)
    box.change(state=PoolState.FAILED, error="two")
    (notice,) = box.services.reporter.status().notices
    assert (notice.code, notice.since_ms) == (NoticeCode.ENGINE_DOWN, 1000)
    assert "two" in notice.detail


async def test_other_limits_after_a_restart_are_a_notice(box: Box) -> None:
    box.change(state=PoolState.READY)
    before = box.engine.infos["tiny"].capacity
    box.change(state=PoolState.LOADING)
    box.change(state=PoolState.READY, capacity=msgspec.structs.replace(before, kv_tok=4096))
    assert notices(box) == {"capacity_changed": "model tiny came back with other limits"}
    assert box.pool.kv_tok == 4096
    box.change(state=PoolState.READY, capacity=before)
    assert notices(box) == {}


async def test_seats_that_prove_not_to_be_real_have_a_notice_of_their_own(box: Box) -> None:
    capacity = box.engine.infos["tiny"].capacity
    box.change()
    fewer = msgspec.structs.replace(capacity, max_seqs=1)
    box.change(capacity=fewer)
    queueing = EngineNotice(code="engine_queueing", model="tiny", detail="set max_seqs = 1")
    box.room.hear(queueing)
    box.change(state=PoolState.LOADING)
    box.change(state=PoolState.READY)
    assert notices(box).keys() == {NoticeCode.ENGINE_QUEUEING}
    box.change(capacity=msgspec.structs.replace(fewer, max_context_tok=99))
    assert NoticeCode.CAPACITY_CHANGED in notices(box)


async def test_a_pool_is_loaded_when_the_core_asks(box: Box) -> None:
    box.change(state=PoolState.COLD)
    client = box.greeted()
    await box.ask(client)
    assert box.engine.loads == ["tiny"]
    box.change(state=PoolState.READY)
    await box.quiet()
    assert len(box.engine.runs) == 1


async def test_a_load_that_fails_is_logged(box: Box) -> None:
    async def load(model: str) -> None:
        await asyncio.sleep(0)
        raise EngineUnavailable("no memory")

    box.engine.on_load = load
    box.room.load("tiny")
    await box.quiet()
    assert 'state=failed detail="no memory"' in box.log.getvalue()
    assert box.crashes == []


async def test_a_pool_that_was_not_known_is_taken_in(box: Box) -> None:
    info = msgspec.structs.replace(box.engine.infos["tiny"], model="late")
    box.room.hear(PoolChanged(pool=info))
    assert [pool.model for pool in box.gate.view().pools] == ["tiny", "late"]


@pytest.fixture
def cold(box: Box, monkeypatch: pytest.MonkeyPatch) -> Box:
    """Nothing is loaded, and the engine takes no load until its `on_load` is another."""
    monkeypatch.setattr(engineroom_module, "AGAIN_S", 0)

    async def not_yet(model: str) -> None:
        raise EngineUnavailable("the engine is starting")

    box.engine.on_load = not_yet
    box.change(state=PoolState.COLD)
    return box


async def test_an_engine_that_is_being_started_is_asked_again(cold: Box) -> None:
    cold.room.load("tiny")
    await cold.quiet()

    async def load(model: str) -> None:
        cold.change(model, state=PoolState.READY)

    cold.engine.on_load = load
    await cold.quiet()
    assert cold.pool.state is CoreState.READY
    assert len(cold.services.tasks) == 0
    assert cold.log.getvalue().count("the engine is starting") == 1


async def test_a_load_that_the_engine_died_over_is_asked_for_again(
    cold: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it loads until it has been started anew, and then does not."""
    monkeypatch.setattr(cold.engine, "health", lambda: Health(state="starting"))
    cold.room.load("tiny")
    await cold.quiet()
    cold.change(state=PoolState.LOADING)
    asked = len(cold.engine.loads)
    await cold.quiet()
    assert len(cold.engine.loads) > asked
    cold.engine.on_load = None
    await cold.quiet()
    assert len(cold.services.tasks) == 0


@pytest.mark.parametrize("state", [PoolState.LOADING, PoolState.READY, PoolState.FAILED])
async def test_what_is_not_cold_any_more_is_not_loaded_again(cold: Box, state: PoolState) -> None:
    cold.room.load("tiny")
    await cold.quiet()
    cold.change(state=state)
    await cold.quiet()
    asked = len(cold.engine.loads)
    await cold.quiet()
    assert len(cold.engine.loads) == asked
    assert len(cold.services.tasks) == 0


async def test_what_is_lent_meanwhile_is_not_loaded(cold: Box) -> None:
    cold.room.load("tiny")
    cold.services.release.begin(until_ms=None, now=False, principal="uid:0")
    await cold.quiet(100)
    assert len(cold.engine.loads) <= 1
    assert len(cold.services.tasks) == 0


async def test_an_engine_that_never_comes_is_left_to_the_core(cold: Box) -> None:
    cold.room.load("tiny")
    await cold.quiet(5 * engineroom_module.ASKED_AT_MOST)
    assert len(cold.engine.loads) == engineroom_module.ASKED_AT_MOST
    assert len(cold.services.tasks) == 0
    assert engineroom_module.ASKED_AT_MOST * 0.1 < LOAD_ANSWER_NS / 1e9
