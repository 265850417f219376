"""An engine that is closed while it generates: one outcome for each request, and nothing left."""

import asyncio

from onegate.engines.base import EngineBroke, EngineChunk, EngineUnavailable
from onegate.protocol.content import Params


async def test_closed_while_generating_every_reader_hears_of_it_once(adapter, new_box):
    box = new_box(adapter)
    await box.start()
    await box.ready()
    prompt = "Tell me a story."
    params = Params(ignore_eos=True) if "ignore_eos" in box.pool.params else Params()
    async with asyncio.TaskGroup() as group:
        stream = box.generate(box.request(prompt, max_tokens=900, params=params))
        async for item in stream:
            if isinstance(item, EngineChunk):
                break
        runs = [group.create_task(box.run(prompt, max_tokens=900, params=params)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await box.engine.aclose(10.0)
    outcomes = [run.result() for run in runs]
    assert {type(outcome.error) for outcome in outcomes} <= {EngineBroke, EngineUnavailable}
    assert any(isinstance(outcome.error, EngineBroke) for outcome in outcomes)
    await stream.aclose()
    await box.all_told()
    assert box.engine.health().state == "stopped"
    assert isinstance((await box.run(prompt)).error, EngineUnavailable)
    await box.engine.aclose(10.0)
