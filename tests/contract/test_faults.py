"""Engines that die, hang, stall and talk nonsense: one outcome each, and then they serve again."""

import asyncio

import pytest

from onegate.config import EngineConfig, ScriptedPool
from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineMalformed,
    EngineRefused,
    EngineUnavailable,
    Finished,
    PoolState,
    SeatFreed,
    Stopped,
)
from onegate.engines.child import Child
from onegate.engines.stream import MAX_ITEMS_BEHIND
from onegate.protocol.content import FinishReason, Params

SLOW = ScriptedPool(a_ms=5.0, b_ms_per_prefill_tok=0.0, c_ms_per_seq=0.0)


@pytest.mark.parametrize(
    ("directive", "said", "kind"),
    [
        ("[[die-before-first]]", 0, EngineBroke),
        ("[[die:0]]", 0, EngineBroke),
        ("[[die]]", 3, EngineBroke),
        ("[[close]]", 3, EngineBroke),
        ("[[garbage]]", 3, EngineMalformed),
        ("[[half-utf8]]", 3, EngineMalformed),
        ("[[huge-frame]]", 3, EngineMalformed),
        ("[[wrong-id]]", 3, EngineMalformed),
    ],
)
async def test_a_host_that_breaks_takes_down_what_is_inside_and_comes_back(
    started, hosts, directive, said, kind
):
    box = await started()
    request = box.request(directive, max_tokens=50)
    bystander = box.request("[[step-ms:50]][[tokens:1000]]", max_tokens=1000)
    async with asyncio.TaskGroup() as group:
        second = group.create_task(box.collect(bystander))
        first = group.create_task(box.collect(request))
    outcome = first.result()
    assert type(outcome.error) is kind, outcome.error
    assert said <= outcome.n_tok <= said + 1
    assert isinstance(second.result().error, EngineBroke)
    (lost,) = box.of(EngineLost)
    assert set(lost.ids) == {request.id, bystander.id}
    assert lost.restarts == 1
    assert len(hosts()) <= 1
    await box.serves_again()
    assert box.pool.loads == 2
    # Expected back: whoever comes meanwhile may wait for it.
    assert box.states()[-2:] == [PoolState.LOADING, PoolState.READY]
    assert PoolState.FAILED not in box.states()


@pytest.mark.parametrize("directive", ["[[hang]]", "[[freeze]]", "[[stall:60000]]", "[[hang:0]]"])
async def test_a_host_that_stalls_is_given_up(started, scripted, directive):
    box = await started(scripted(stall_floor_s=0.5))
    outcome = await box.run(directive, max_tokens=50)
    assert isinstance(outcome.error, EngineBroke)
    assert "stalled" in str(outcome.error)
    (lost,) = box.of(EngineLost)
    assert "stalled" in lost.reason
    await box.serves_again()


async def test_what_is_given_up_is_killed_before_its_loss_is_told(started, scripted, monkeypatch):
    order = []
    kill = Child.kill
    monkeypatch.setattr(Child, "kill", lambda child: (order.append("killed"), kill(child)))
    box = await started(scripted(stall_floor_s=0.5))
    sink = box.sink
    box.engine._sink = lambda event: (order.append(type(event)), sink(event))
    await box.run("[[hang:0]]")
    assert order.index("killed") < order.index(EngineLost)
    await box.serves_again()


async def test_a_short_stall_is_none(started, scripted):
    box = await started(scripted(stall_floor_s=30.0))
    outcome = await box.run("[[stall:300]]", max_tokens=5)
    assert outcome.finished
    assert box.of(EngineLost) == []


async def test_an_idle_engine_is_not_stalled(started, scripted):
    box = await started(scripted(stall_floor_s=1.5))
    await asyncio.sleep(3.0)
    assert box.of(EngineLost) == []
    await box.serves_again()


async def test_an_error_of_one_request_is_its_own(started):
    box = await started()
    outcome, beside = await asyncio.gather(
        box.run("[[error:no more ink]]"), box.run("[[tokens:20]]", max_tokens=20)
    )
    assert str(outcome.error) == "no more ink"
    assert isinstance(outcome.error, EngineBroke)
    assert outcome.n_tok == 2
    assert beside.finished
    assert box.of(EngineLost) == []


async def test_a_refusal_comes_before_anything_else(started):
    box = await started()
    outcome = await box.run("[[refuse:not today]]")
    assert str(outcome.error) == "not today"
    assert isinstance(outcome.error, EngineRefused)
    assert outcome.items == []


async def test_tokens_without_text_count(started):
    box = await started()
    outcome = await box.run("[[say:a||b||]]", max_tokens=10)
    assert [chunk.text for chunk in outcome.of(EngineChunk)] == ["a", "", "b", "", ""]
    assert outcome.finished.usage.output_tok == 5
    assert outcome.finished.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (["END"], "xE N "),
        (["N E"], "xE "),
        (["x"], ""),
        (["nothing"], "xE N ENDz"),
        (["ND", "z"], "xE N E"),
    ],
)
async def test_stop_strings_over_token_bounds(started, stop, text):
    box = await started()
    params = Params(stop=stop)
    outcome = await box.run("[[say:xE| N| |E|N|D|z]]", max_tokens=10, params=params)
    assert outcome.text == text


async def test_a_seat_that_the_engine_holds_on_to_is_told_of_late(started):
    box = await started()
    stream = box.generate(box.request("[[hold-seat:300]][[tokens:5000]]", max_tokens=4000))
    await anext(stream)
    await stream.aclose()
    await asyncio.sleep(0.1)
    assert box.of(SeatFreed) == []
    await box.all_told()


async def test_a_reader_that_does_not_read_is_let_go_of(started, scripted):
    box = await started()
    n_tok = MAX_ITEMS_BEHIND + 100
    pool = box.pool
    assert pool.capacity.max_context_tok < n_tok  # so a context alone bounds a stream's memory
    big = ScriptedPool(
        a_ms=0.0, b_ms_per_prefill_tok=0.0, c_ms_per_seq=0.0, context_tok=9000, kv_tok=32_000
    )
    box = await started(scripted(big))
    slow = box.generate(box.request(f"[[tokens:{n_tok}]]", max_tokens=n_tok))
    assert isinstance(await anext(slow), Accepted)
    beside = await box.run(f"[[tokens:{n_tok}]]", max_tokens=n_tok)
    assert beside.finished.usage.output_tok == n_tok
    with pytest.raises(EngineBroke, match="behind"):
        await anext(slow)
    await slow.aclose()
    await box.all_told()
    assert box.of(EngineLost) == []


async def test_closing_while_generating_leaves_nothing(started, scripted, hosts):
    box = await started(scripted(SLOW))
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(box.run("[[tokens:100000]]", max_tokens=4000)) for _ in range(8)]
        await box.until(lambda: bool(box.iterated))
        await asyncio.sleep(0.1)
        await box.engine.aclose(5.0)
    assert all(isinstance(run.result().error, EngineBroke) for run in runs)
    assert hosts() == []
    (lost,) = box.of(EngineLost)
    assert set(lost.ids) == box.iterated
    assert box.engine.health().state == "stopped"
    outcome = await box.run("hello")
    assert isinstance(outcome.error, EngineUnavailable)
    await box.all_told()
    await box.engine.aclose(5.0)


async def test_closing_a_host_that_hangs(started, hosts):
    box = await started()
    stream = box.generate(box.request("[[hang:1]]"))
    async for item in stream:
        if isinstance(item, EngineChunk):
            break
    await box.engine.aclose(1.0)
    assert hosts() == []
    with pytest.raises(EngineBroke):
        await anext(stream)


async def test_closing_before_it_is_started_and_before_it_is_ready(new_box, scripted, hosts):
    box = new_box(scripted())
    await box.engine.aclose(1.0)
    other = new_box(scripted(ScriptedPool(switch_cost_ms=60_000.0)))
    await other.start()
    outcome = await other.run("too early")
    assert isinstance(outcome.error, EngineUnavailable)
    await other.all_told()
    await other.engine.aclose(5.0)
    assert hosts() == []


async def test_requests_before_the_pool_is_ready_are_turned_away(new_box, scripted):
    box = new_box(scripted(ScriptedPool(switch_cost_ms=300.0)))
    await box.start()
    early = await box.run("hello")
    assert isinstance(early.error, EngineUnavailable)
    assert early.items == []
    await box.all_told()
    assert box.engine.health().state == "starting"
    await box.serves_again()


# --- several pools ------------------------------------------------------------------------------


def two_pools(scripted, loadable: int) -> EngineConfig:
    fast = {"a_ms": 1.0, "b_ms_per_prefill_tok": 0.0, "c_ms_per_seq": 0.0}
    return scripted(
        ScriptedPool(model="red", switch_cost_ms=20.0, **fast),
        ScriptedPool(model="blue", switch_cost_ms=20.0, **fast),
        loadable=loadable,
    )


async def test_one_pool_at_a_time_and_a_switch(started, scripted):
    box = await started(two_pools(scripted, loadable=1))
    red, blue = box.engine.pools()
    assert (red.state, blue.state) == (PoolState.READY, PoolState.COLD)
    assert blue.switch_cost_ms == 20.0
    cold = await box.run("hello", model="blue")
    assert isinstance(cold.error, EngineUnavailable)
    await box.engine.load("blue")
    red, blue = box.engine.pools()
    assert (red.state, blue.state) == (PoolState.COLD, PoolState.READY)
    assert (await box.run("hello", model="blue")).finished
    assert isinstance((await box.run("hello", model="red")).error, EngineUnavailable)


async def test_a_pool_in_use_does_not_make_room(started, scripted):
    box = await started(two_pools(scripted, loadable=1))
    stream = box.generate(box.request("[[tokens:4000]]", max_tokens=4000, model="red"))
    await anext(stream)
    with pytest.raises(EngineUnavailable, match="in use"):
        await box.engine.load("blue")
    await stream.aclose()
    await box.all_told()
    await box.engine.load("blue")


async def test_two_pools_loaded_together_take_turns(started, scripted):
    box = await started(two_pools(scripted, loadable=2))
    await box.until(lambda: all(p.state is PoolState.READY for p in box.engine.pools()))
    red, blue = await asyncio.gather(
        box.run("hello", model="red", max_tokens=20), box.run("hello", model="blue", max_tokens=20)
    )
    assert red.finished.usage == blue.finished.usage
    assert box.engine.snapshot("red").steps > 0
    assert box.engine.snapshot("blue").steps > 0


async def test_unloading_stops_what_runs_there_only(started, scripted):
    box = await started(two_pools(scripted, loadable=2))
    await box.until(lambda: all(p.state is PoolState.READY for p in box.engine.pools()))
    async with asyncio.TaskGroup() as group:
        red = group.create_task(box.run("[[tokens:4000]]", model="red", max_tokens=4000))
        blue = group.create_task(box.run("[[tokens:60]]", model="blue", max_tokens=60))
        await box.until(lambda: len(box.iterated) == 2)
        await asyncio.sleep(0.05)
        await box.engine.unload("red")
    assert isinstance(red.result().items[-1], Stopped)
    assert isinstance(blue.result().items[-1], Finished)


@pytest.mark.parametrize("reservation", ["grow", "full", "per_slot"])
async def test_a_full_cache_makes_requests_wait_inside_and_all_end(started, scripted, reservation):
    fast = {"a_ms": 0.1, "b_ms_per_prefill_tok": 0.0, "c_ms_per_seq": 0.0}
    pool = ScriptedPool(kv_tok=100, context_tok=100, reservation=reservation, **fast)
    box = await started(scripted(pool))
    outcomes = await asyncio.gather(
        *(box.run(f"[[tokens:60]] {i}", max_tokens=60) for i in range(6))
    )
    assert [o.finished.usage.output_tok for o in outcomes] == [60] * 6
    assert len({o.text for o in outcomes}) > 1
