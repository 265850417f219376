"""The workers of TensorRT-LLM as MPI really has them, with its stand-in for everything else."""

import os
import signal

import pytest
from tests.contract.trtllm import is_running, model_folder, stand_in, trtllm_config
from tests.live.mpi import environment

from onegate.engines.base import EngineBroke, EngineLost, PoolState
from onegate.protocol.content import Params

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("strict_trtllm")]

EVERY_OUTPUT = Params(ignore_eos=True)


@pytest.fixture
def serve(started, tmp_path, mpi_home):
    async def start(**config):
        made = stand_in(
            tmp_path,
            interpreter=str(mpi_home / "venv/bin/python"),
            beside=environment(mpi_home),
            mpi=True,
        )
        box = await started(trtllm_config(made.python, model_folder(tmp_path), **config))
        box.stand_in = made
        return box

    return start


def worker_of(box) -> int:
    return box.stand_in.calls("worker")[-1]["pid"]


async def test_its_worker_is_out_of_reach_of_the_hosts_group(serve, hosts):
    """What all of this is about: MPI has put it into a session of its own."""
    box = await serve()
    (host,) = hosts()
    worker = worker_of(box)
    assert os.getpgid(host) == host != os.getpgid(worker)
    assert os.getsid(worker) != os.getsid(host)
    assert (await box.run("hello", max_tokens=5, params=EVERY_OUTPUT)).finished


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_it_goes_with_a_host_that_is_ended(serve, hosts, number):
    box = await serve()
    (host,), worker = hosts(), worker_of(box)
    os.kill(host, number)
    await box.until(lambda: bool(box.of(EngineLost)))
    await box.serves_again()
    assert not is_running(worker)
    assert worker_of(box) != worker


async def test_a_model_is_loaded_again_by_the_same_host(serve, hosts):
    """MPI starts a second one after the first has left in order."""
    box = await serve()
    (host,), worker = hosts(), worker_of(box)
    await box.engine.unload(box.model)
    assert box.pool.state is PoolState.COLD
    assert not is_running(worker)
    await box.engine.load(box.model)
    await box.serves_again()
    assert hosts() == [host]


async def test_a_worker_that_is_killed_is_noticed_though_the_library_does_not(serve):
    """And the next one is another host's: MPI has lost a process, and has no place for one more."""
    box = await serve(stall_floor_s=1.0)
    stream = box.run("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT)
    os.kill(worker_of(box), signal.SIGKILL)
    assert isinstance((await stream).error, EngineBroke)
    await box.serves_again()


async def test_nothing_is_left_where_the_engine_is_closed_while_it_generates(serve):
    box = await serve()
    worker = worker_of(box)
    stream = box.generate(box.request("[[slow]]", max_tokens=2000, params=EVERY_OUTPUT))
    await anext(stream)
    await box.engine.aclose(10.0)
    await stream.aclose()
    assert not is_running(worker)
