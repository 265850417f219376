import os
import subprocess
import sys
import threading

import pytest

from onegate.engines.host.processes import descendants
from onegate.engines.host.trtllm import session as module
from onegate.engines.host.trtllm.messages import (
    Broken,
    Finished,
    Iteration,
    Iterations,
    Tokens,
)
from onegate.engines.host.trtllm.session import Session, no_engine, stays

PATIENCE_S = 30.0
ENTRY = {"iterLatencyMS": 1.0, "kvCacheStats": {"maxNumBlocks": 9, "tokensPerBlock": 32}}
VALUES = {"max_tokens": 1, "n": 1, "top_k": 1}


class Post:
    """What the session posts, from whichever thread."""

    def __init__(self):
        self.heard = []
        self._came = threading.Condition()

    def __call__(self, *messages):
        with self._came:
            self.heard += messages
            self._came.notify_all()

    def wait_for(self, kind):
        with self._came:
            assert self._came.wait_for(
                lambda: any(isinstance(m, kind) for m in self.heard), PATIENCE_S
            )
        return next(m for m in self.heard if isinstance(m, kind))


@pytest.fixture
def post():
    return Post()


@pytest.fixture
def make(library, llm, post):
    made = []

    def make(**given):
        given = {"canary_ids": [3], "salted": True, "stall_s": 30.0, **given}
        made.append(Session(library, llm, post, **given))
        return made[-1]

    yield make
    llm.may_shut_down.set()
    for session in made:
        session.end(PATIENCE_S)


def test_tokens_prove_that_it_generates_and_bring_the_first_figures(make, llm):
    session = make()
    llm.entries = [ENTRY]
    session.warm_up(PATIENCE_S)
    for canary in llm.outputs:
        assert canary.given["inputs"] == [3]
        assert canary.given["sampling"][1]["max_tokens"] == 1
        assert canary.given["streaming"] is False
        assert canary.given["cache_salt"] == "onegate canary"
    greedy, drawn = [output.given["sampling"][1] for output in llm.outputs]
    assert greedy["top_k"] == 1
    assert {"temperature", "top_k", "top_p"} <= drawn.keys()
    assert session.figures == Iteration(latency_ms=1.0, blocks=9, block_tok=32)


def test_one_that_generates_nothing(make, llm):
    llm.answers = None
    with pytest.raises(TimeoutError) as raised:
        make().warm_up(0.01)
    assert "does not generate (TimeoutError" in str(no_engine(raised.value))


def test_05_a_request_from_its_thread_to_the_loop_and_back(make, llm, post):
    session = make()
    llm.answers = ([7, 8], "length")
    session.submit(5, [1, 2], VALUES, None, salt="uid:1", priority=1.0)
    assert post.wait_for(Finished) == Finished(5, "length", None)
    assert Tokens(5, [7, 8]) in post.heard
    assert llm.threads == {"trtllm loop"}
    assert llm.outputs[0].given == {
        "inputs": [1, 2],
        "sampling": ("SamplingParams", VALUES),
        "streaming": True,
        "cache_salt": "uid:1",
    }


@pytest.mark.parametrize(("salted", "salt"), [(False, "uid:1"), (True, "")])
def test_without_a_salt(make, llm, salted, salt):
    make(salted=salted).submit(5, [1], VALUES, None, salt=salt, priority=1.0)
    assert llm.outputs[0].given["cache_salt"] is None


def test_what_the_call_raises_is_raised(make, llm):
    llm.raises = ValueError("no end_id")
    with pytest.raises(ValueError, match="no end_id"):
        make().submit(5, [1], VALUES, None, salt="", priority=1.0)


def test_an_abort_reaches_the_output(make, llm, post):
    session = make()
    llm.answers = None
    session.submit(5, [1], VALUES, None, salt="", priority=1.0)
    session.abort(5)
    session.abort(6)
    session._looped.ask(PATIENCE_S, lambda: None)
    assert llm.outputs[0].aborts == 1


def test_steps_are_posted(make, llm, post):
    make()
    llm.entries = [ENTRY]
    assert post.wait_for(Iterations).steps[0].blocks == 9


def test_23_a_health_that_is_gone_is_certain(make, llm, post, monkeypatch):
    monkeypatch.setattr(module, "_TICK_S", 0.0)
    session = make()
    llm.healthy = False
    session.begin_to_watch()
    assert "shutting down" in post.wait_for(Broken).reason


def test_23_a_worker_that_has_ended_is_a_doubt_and_silence_its_proof(make, llm, post, monkeypatch):
    monkeypatch.setattr(module, "_TICK_S", 0.0)
    monkeypatch.setattr(module, "PROOF_S", 0.01)
    monkeypatch.setattr("onegate.engines.host.trtllm.watch.PROOF_S", 0.05)
    session = make()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        session.begin_to_watch()
        llm.answers = None  # as with a worker that is dead
        worker.kill()
        assert f"process {worker.pid} of TensorRT-LLM has ended" in post.wait_for(Broken).reason
    canary = llm.outputs[0]
    assert canary.given["inputs"] == [3]
    assert canary.aborts == 1


def test_23_one_that_answers_is_alive(make, llm, post, monkeypatch):
    monkeypatch.setattr(module, "_TICK_S", 0.0)
    monkeypatch.setattr("onegate.engines.host.trtllm.watch.CANARY_EVERY_S", 0.0)
    monkeypatch.setattr("onegate.engines.host.trtllm.watch.PROOF_S", PATIENCE_S)
    session = make()
    session.begin_to_watch()
    while len(llm.outputs) < 3:
        session._looped.ask(PATIENCE_S, lambda: None)
    assert not any(isinstance(message, Broken) for message in post.heard)


def test_24_the_end_in_order(make, llm):
    session = make()
    llm.answers = None
    session.submit(5, [1], VALUES, None, salt="", priority=1.0)
    assert session.end(PATIENCE_S)
    assert session.end(PATIENCE_S)
    assert llm.outputs[0].aborts == 1
    assert len(llm.shutdowns) == 1
    assert llm.shutdowns[0] != "trtllm loop"
    assert session._looped.loop.is_closed()


def test_24_a_shutdown_that_blocks_is_ended_by_force(make, llm):
    llm.may_shut_down.clear()
    session = make()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        session.begin_to_watch()
        assert not session.end(0.05)
        assert worker.wait() == -9


def test_24_a_shutdown_that_raises_leaves_no_worker(make, llm, capsys):
    llm.shutdown_raises = RuntimeError("the worker is dead")
    session = make()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        session.begin_to_watch()
        # MPI has lost a process that it needs: what comes next does in another one.
        assert not session.end(PATIENCE_S)
        assert worker.wait() == -9
    assert "the shutdown failed: RuntimeError: the worker is dead" in capsys.readouterr().err


def test_24_an_end_in_order_is_over_when_the_workers_are_gone(make, llm):
    """They hold the memory, and MPI's pool does not wait for them."""
    session = make()
    program = "import sys, time; sys.stdin.read(); time.sleep(0.3)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as worker:
        session.begin_to_watch()
        llm.shutdown = worker.stdin.close
        assert session.end(PATIENCE_S)
        assert worker.poll() == 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["/usr/bin/orted", "-c", "input()"], True),
        (["prted", "-c", "input()"], True),
        (["python", "-c", "input()  # from multiprocessing.resource_tracker import main"], True),
        (["python", "-c", "input()", "onegate.engines.host.warden"], True),
        (["python", "-c", "input()"], False),
        (["/opt/orted/python", "-c", "input()", "imported"], False),
    ],
)
def test_24_what_ends_only_with_the_host_is_not_waited_for(arguments, expected):
    started = subprocess.Popen(arguments, executable=sys.executable, stdin=subprocess.PIPE)
    with started as process:
        (found,) = [p for p in descendants(os.getpid()) if p.pid == process.pid]
        assert stays(found) is expected
        process.kill()
        process.wait()
        assert not stays(found)


def test_24_an_end_waits_for_those_only_that_leave(make, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "is_alive", lambda process: asked.append(process.pid))
    session = make()
    with (
        subprocess.Popen(["orted", "-c", "input()"], executable=sys.executable, stdin=-1) as mpi,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as worker,
    ):
        assert session.end(PATIENCE_S)
        assert worker.pid in asked
        assert mpi.pid not in asked
        mpi.kill()
        worker.kill()


def test_23_why_a_canary_failed_is_said_and_not_that_its_abort_did(make, llm):
    session = make()

    def fails(*given, **named):
        output = generate(*given, **named)
        output.abort_raises = AttributeError("executor is gone")
        return output

    generate, llm.generate_async = llm.generate_async, fails
    llm.answers = RuntimeError("CUDA")
    with pytest.raises(RuntimeError, match="CUDA"):
        session.warm_up(PATIENCE_S)
    assert llm.outputs[0].aborts == 1


def test_nothing_is_kept_of_requests_that_have_gone(make, llm, post):
    session = make()
    for id in range(200):
        session.submit(id, [1], VALUES, None, salt="", priority=1.0)
        session.abort(id)
    with post._came:
        assert post._came.wait_for(
            lambda: sum(isinstance(m, Finished) for m in post.heard) == 200, PATIENCE_S
        )
    session._looped.ask(PATIENCE_S, lambda: None)
    assert session._runs._runs == {}
    assert session._watch._inside == 0
