"""TensorRT-LLM whose worker or host dies at one moment or another, and under load."""

import asyncio
import os
import signal

import pytest
from tests.contract.trtllm import is_running, model_folder, stand_in, trtllm_config
from tests.integration.hosts import Manager

from onegate.engines.base import EngineBroke, EngineChunk, EngineLost, PoolState, Stopped
from onegate.protocol.content import Params

pytestmark = pytest.mark.usefixtures("strict_trtllm")

PROMPT = "Tell me a story about a lighthouse."
EVERY_OUTPUT = Params(ignore_eos=True)


def worker_of(box) -> int:
    return box.stand_in.calls("worker")[-1]["pid"]


@pytest.mark.parametrize("words", ["[[die reading]]", "[[die]]"])
async def test_a_worker_that_dies_with_requests_inside(serve, words):
    """While it reads, and while it answers: nothing of the library says so."""
    box = await serve(config={"stall_floor_s": 1.0})
    outcome = await box.run(words, max_tokens=50, params=EVERY_OUTPUT)
    assert isinstance(outcome.error, EngineBroke)
    (lost,) = box.of(EngineLost)
    assert len(lost.ids) == 1
    await box.serves_again()


async def test_a_worker_that_dies_while_an_abort_is_waited_for(serve):
    box = await serve(config={"stall_floor_s": 1.0})
    stream = box.generate(box.request("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT))
    async for item in stream:
        if isinstance(item, EngineChunk):
            break
    os.kill(worker_of(box), signal.SIGKILL)
    await stream.aclose()
    # The seat is given back, whether by the limit of an abort or with the host.
    await box.all_told()


async def test_a_worker_that_dies_as_the_first_token_is_asked_for(new_box, tmp_path):
    made = stand_in(tmp_path, dies="before a token")
    config = trtllm_config(
        made.python,
        model_folder(tmp_path),
        own={"load_timeout_s": 4.0},
        restart_backoff_ms=60_000,
    )
    box = new_box(config)
    await box.start()
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    assert "was loaded and does not generate" in box.pool.error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_host_that_is_ended_from_outside_leaves_no_worker(serve, hosts, number):
    """What MPI has started is in another session: neither the host's group nor its children."""
    box = await serve()
    worker = worker_of(box)
    assert os.getpgid(worker) == worker
    (host,) = hosts()
    async with asyncio.TaskGroup() as group:
        running = [
            group.create_task(box.run("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT))
            for _ in range(4)
        ]
        await box.until(lambda: len(box.stand_in.calls("generate_async")) == 6)
        os.kill(host, number)
    for task in running:
        assert isinstance(task.result().error, EngineBroke)
    await box.until(lambda: not is_running(worker))
    await box.serves_again()
    assert worker_of(box) != worker


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_host_of_its_own_that_is_ended_leaves_no_worker(
    new_box, tmp_path, monkeypatch, number
):
    """No daemon has started it, and here no service manager ends what is left."""
    made = stand_in(tmp_path)
    for name, value in made.environ.items():
        monkeypatch.setenv(name, value)
    service = Manager(tmp_path)
    try:
        config = trtllm_config(made.python, model_folder(tmp_path), host_socket=service.path)
        box = new_box(config)
        await box.start()
        await box.ready()
        stream = box.generate(box.request("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT))
        await anext(stream)
        (worker,) = made.calls("worker")
        service.signal(number)
        await box.until(lambda: not is_running(worker["pid"]))
        await stream.aclose()
        await box.all_told()
    finally:
        service.close()


async def test_a_host_that_hangs_in_its_load_is_ended_with_what_it_had_started(new_box, tmp_path):
    """`aclose` while the library loads: its thread cannot be stopped."""
    made = stand_in(tmp_path, load_s=60)
    box = new_box(trtllm_config(made.python, model_folder(tmp_path)))
    await box.start()
    await box.until(lambda: bool(made.calls("LLM")))
    await box.engine.aclose(10.0)


async def test_64_seats_each_with_its_own_answer(serve):
    config = {"max_seqs": 64, "max_step_tok": 1024}
    box = await serve(blocks=2048, config=config)
    alone = await box.run("Number 7.", max_tokens=20, params=EVERY_OUTPUT)
    outcomes = await asyncio.gather(
        *(box.run(f"Number {i}.", max_tokens=20, params=EVERY_OUTPUT) for i in range(64))
    )
    assert [outcome.finished.usage.output_tok for outcome in outcomes] == [20] * 64
    assert outcomes[7].ids == alone.ids
    # A function of the prompt: answers that were mixed up would not be as many.
    assert len({tuple(outcome.ids) for outcome in outcomes}) > 60


@pytest.mark.parametrize("words", ["", "[[pairs]]"])
async def test_a_very_long_answer(serve, words):
    box = await serve(step_ms=0, blocks=256)
    outcome = await box.run(f"{words}{PROMPT}", max_tokens=2500, params=EVERY_OUTPUT)
    assert len(outcome.ids) == outcome.finished.usage.output_tok == 2500
    assert box.of(EngineLost) == []


async def test_a_storm_of_aborts_costs_nobody_else_anything(serve):
    box = await serve(blocks=8192, config={"max_seqs": 64, "max_step_tok": 1024})

    async def leaves(i: int) -> None:
        request = box.request(f"Number {i}.", max_tokens=2000, params=EVERY_OUTPUT)
        async for item in box.generate(request):
            # Before it begins, as it begins, and twice.
            if i % 3 == 0 or isinstance(item, EngineChunk):
                box.engine.stop(request.id)
                box.engine.stop(request.id)
        assert isinstance(item, Stopped)

    async def storm() -> None:
        for turn in range(5):
            await asyncio.gather(*(leaves(12 * turn + i) for i in range(12)))

    steady, _ = await asyncio.gather(box.run(PROMPT, max_tokens=200, params=EVERY_OUTPUT), storm())
    assert steady.finished.usage.output_tok == 200
    await box.all_told()
    assert box.of(EngineLost) == []
    aborted = {call["id"] for call in box.stand_in.calls("abort")}
    assert len(aborted) == len(box.stand_in.calls("abort")) == 60
    snapshot = box.engine.snapshot(box.model)
    assert snapshot.seats_used == 0
