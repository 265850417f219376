"""The verbs `load` and `unload`."""

from typing import Any

import pytest

from onegate.engines.base import EngineUnavailable, PoolState
from onegate.protocol import messages as m
from onegate.protocol.errors import Reason
from onegate.server.outcome import Outcome

Box = Any  # of conftest.py


async def applied(box: Box, client: Any) -> bool:
    """Whether the model was unloaded."""
    acks = [ack for ack in await said(box, client, m.Unload(id=2, model="tiny")) if ack.id == 2]
    return bool(acks[-1].applied)


async def said(box: Box, client: Any, message: Any) -> Any:
    client.say(message)
    await box.quiet()
    return client.heard()


async def test_a_model_that_is_there_is_loaded_at_once(box: Box) -> None:
    (ack,) = await said(box, box.greeted(uid=2000), m.Load(id=1, model="tiny"))
    assert (ack.id, ack.verb, ack.applied) == (1, "load", True)
    assert box.engine.loads == []
    box.all_is_given_back()
    assert box.pool.seats_used == 0
    assert box.outcomes() == {Outcome.FINISHED: 1}


async def test_a_cold_model_is_loaded_and_then_acknowledged(box: Box) -> None:
    client = box.greeted(uid=2000)
    box.change(state=PoolState.COLD)
    assert await said(box, client, m.Load(id=1, model="tiny")) == []
    assert box.engine.loads == ["tiny"]
    box.change(state=PoolState.LOADING)
    box.change(state=PoolState.READY)
    await box.quiet()
    assert [ack.verb for ack in client.heard()] == ["load"]
    box.all_is_given_back()


async def test_a_load_waits_behind_what_waits(box: Box) -> None:
    client = box.greeted(uid=2000)
    runs = [await box.run(client, id) for id in (1, 2)]
    client.heard()
    assert await said(box, client, m.Load(id=3, model="tiny")) == []
    assert box.gate.view().queued == 1
    runs[0].finish()
    box.free(runs[0])
    await box.quiet()
    assert any(isinstance(message, m.Ack) for message in client.heard())


@pytest.mark.parametrize("verb", [m.Load, m.Unload])
async def test_a_model_that_there_is_not(box: Box, verb: Any) -> None:
    (failed,) = await said(box, box.greeted(uid=2000), verb(id=1, model="huge"))
    assert (failed.reason, failed.models) == (Reason.WRONG_MODEL, ["tiny"])
    box.all_is_given_back()


@pytest.mark.parametrize("verb", [m.Load, m.Unload])
async def test_it_is_for_delegates(box: Box, verb: Any) -> None:
    (failed,) = await said(box, box.greeted(), verb(id=1, model="tiny"))
    assert failed.reason is Reason.PERMISSION


async def test_a_class_that_keeps_its_text_here_loads_nothing_elsewhere(make_box: Any) -> None:
    box = make_box('[[class]]\nname = "loop"\nrefuse_on = ["boundary"]\n')
    (failed,) = await said(box, box.greeted(uid=2000), m.Load(id=1, model="tiny"))
    assert failed.reason is Reason.BOUNDARY_REFUSED


async def test_what_nobody_uses_is_unloaded(box: Box) -> None:
    (ack,) = await said(box, box.greeted(uid=2000), m.Unload(id=1, model="tiny"))
    assert (ack.verb, ack.applied) == ("unload", True)
    assert box.engine.unloads == ["tiny"]


async def test_what_is_used_or_waited_for_stays(box: Box) -> None:
    client = box.greeted(uid=2000)
    run = await box.run(client)
    client.heard()
    assert not await applied(box, client)
    # Done, and not yet confirmed by the engine.
    run.finish()
    await box.quiet()
    assert not await applied(box, client)
    assert box.engine.unloads == []
    box.free(run)
    assert await applied(box, client)


async def test_what_is_not_loaded_is_not_unloaded(box: Box) -> None:
    box.change(state=PoolState.COLD)
    (ack,) = await said(box, box.greeted(uid=2000), m.Unload(id=1, model="tiny"))
    assert (ack.applied, box.engine.unloads) == (False, [])


async def test_an_engine_that_cannot_unload(box: Box) -> None:
    async def refuse(model: str) -> None:
        raise EngineUnavailable("somebody else uses it")

    box.engine.on_unload = refuse
    (failed,) = await said(box, box.greeted(uid=2000), m.Unload(id=1, model="tiny"))
    assert (failed.reason, failed.message) == (Reason.ENGINE_UNAVAILABLE, "somebody else uses it")
