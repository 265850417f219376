"""The engine host as a service of its own: daemons come and go, the model stays loaded."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import running_daemon
from tests.integration.daemon import Observed, observed
from tests.integration.daemon import scripted as scripted_text
from tests.integration.hosts import PATIENCE_S, Daemon, Manager, Wire, alive, scripted, until

from onegate.config import EngineConfig, ScriptedPool
from onegate.engines.base import (
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineRequest,
    Finished,
    PoolChanged,
    PoolState,
)
from onegate.engines.host.notify import LOAD_USEC
from onegate.engines.host.wire import (
    WIRE,
    Abort,
    AcceptedMsg,
    Exit,
    Heartbeat,
    HostHello,
    RefusedMsg,
    Step,
    Submit,
)
from onegate.protocol.framing import frame

USEC = 600_000  # what the host's manager allows; the host feeds it three times as often
FAST = "restart_backoff_ms = 10\nrestart_backoff_max_ms = 100"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path, USEC)
    yield manager
    manager.close()


@pytest.fixture
def wires(host: Manager) -> Iterator[Callable[[], Wire]]:
    made: list[Wire] = []

    def connect() -> Wire:
        made.append(host.connect())
        return made[-1]

    yield connect
    for wire in made:
        wire.sock.close()


@pytest.fixture
async def attach(host: Manager) -> AsyncIterator[Callable[..., object]]:
    daemons: list[Daemon] = []

    async def start(
        config: EngineConfig | None = None, *, cold: bool = False, **given: object
    ) -> Daemon:
        daemon = Daemon(config or scripted(host_socket=host.path, **given))
        daemons.append(daemon)
        daemon.engine.keep_cold(cold)
        await daemon.engine.start(daemon.events.append)
        return daemon

    yield start
    for daemon in daemons:
        await daemon.engine.aclose(10.0)


def loads(daemon: Daemon) -> int:
    return daemon.engine.pools()[0].loads


def submit(id: int, prompt: str) -> Submit:
    return Submit(request=EngineRequest(id=id, model="scripted", prompt=prompt, max_tokens=4000))


def states(daemon: Daemon) -> set[PoolState]:
    return {event.pool.state for event in daemon.of(PoolChanged)}


# --- one daemon after the other -----------------------------------------------------------------


async def test_a_daemon_that_ends_leaves_the_model_to_the_next(host, attach):
    for _ in range(3):
        daemon = await attach()
        await daemon.ready()
        items, error = await daemon.run(1, "x")
        assert error is None
        assert isinstance(items[-1], Finished)
        assert loads(daemon) == 1
        await daemon.engine.aclose(10.0)
        assert daemon.engine.health().state == "stopped"
    assert alive(host.pid)
    assert host.log.count("serves the daemon with process id") == 3


async def test_a_host_that_is_to_stay_cold_loads_nothing_and_one_that_has_loaded_lets_go(
    host, attach
):
    daemon = await attach(cold=True)
    await until(lambda: states(daemon) >= {PoolState.COLD})
    assert loads(daemon) == 0
    assert PoolState.READY not in states(daemon)
    daemon.engine.keep_cold(False)
    await daemon.engine.load("scripted")
    await until(lambda: loads(daemon) == 1)
    await daemon.engine.aclose(10.0)
    heir = await attach(cold=True)
    await until(lambda: heir.engine.pools()[0].state is PoolState.COLD)
    assert loads(heir) == 1


async def test_closing_in_the_middle_of_streams_ends_them_and_not_the_host(host, attach):
    daemon = await attach()
    await daemon.ready()
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(daemon.run(i, "[[tokens:4000]]", 3000)) for i in range(1, 5)]
        await until(lambda: daemon.engine.snapshot("scripted") is not None)
        await daemon.engine.aclose(10.0)
    assert {type(run.result()[1]) for run in runs} == {EngineBroke}
    heir = await attach()
    await heir.ready()
    assert loads(heir) == 1
    assert alive(host.pid)


def test_seats_of_the_last_daemon_are_free_when_the_next_is_greeted(wires):
    first = wires()
    first.ready()
    for id in range(1, 17):
        first.send(submit(id, "[[tokens:4000]] [[hold-seat:1500]] [[step-ms:2]]"))
    for _ in range(16):
        first.receive_a(AcceptedMsg)
    first.sock.close()
    second = wires()
    second.ready()
    for id in range(1, 17):
        second.send(submit(id, "[[tokens:4]]"))
    answers: list[object] = []
    while len(answers) < 16:
        message = second.receive()
        answers += [message] if isinstance(message, AcceptedMsg | RefusedMsg) else []
    assert {type(answer) for answer in answers} == {AcceptedMsg}


def test_output_of_the_last_daemons_requests_reaches_nobody(wires):
    first = wires()
    first.ready()
    first.send(submit(7, "[[tokens:4000]] [[step-ms:2]]"))
    first.receive_a(Step)
    second = wires()
    second.attach()
    first.sock.close()
    assert isinstance(second.receive(), HostHello)
    second.send(submit(1, "[[tokens:4]]"))
    ids: set[int] = set()
    while 1 not in (step := second.receive_a(Step)).freed:
        ids |= {output.id for output in step.outputs}
    assert ids <= {1}


async def test_a_second_daemon_waits_for_the_first(host, attach):
    first = await attach()
    await first.ready()
    second = await attach()
    await asyncio.sleep(0.3)
    assert states(second) <= {PoolState.LOADING}
    assert (await first.run(1, "x"))[1] is None
    await first.engine.aclose(10.0)
    await second.ready()
    assert loads(second) == 1
    assert second.of(EngineLost) == []


async def test_of_daemons_that_race_one_is_served_and_then_the_next(host, attach):
    racing = await asyncio.gather(*(attach() for _ in range(4)))
    for left in (4, 3, 2, 1):
        await until(lambda: any(daemon.state() is PoolState.READY for daemon in racing))
        await asyncio.sleep(0.1)
        (served,) = [daemon for daemon in racing if daemon.state() is PoolState.READY]
        assert (await served.run(1, "x"))[1] is None
        assert loads(served) == 1
        await served.engine.aclose(10.0)
        racing.remove(served)
        assert len(racing) == left - 1


async def test_a_host_that_comes_later_is_waited_for(host, attach):
    host.kill()
    daemon = await attach()
    await until(lambda: any(event.pool.error for event in daemon.of(PoolChanged)))
    assert states(daemon) == {PoolState.LOADING}
    host.start()
    await daemon.ready()
    assert daemon.engine.pools()[0].error is None


# --- what only a new process can do -------------------------------------------------------------


def test_another_version_of_the_wire_is_told_and_the_host_leaves(host, wires):
    wire = wires()
    wire.send({"t": "attach", "wire": WIRE + 1, "daemon_pid": 1, "engine": None, "new": {}})
    hello = wire.receive()
    assert isinstance(hello, HostHello)
    assert (hello.wire, hello.pools) == (WIRE, [])
    assert wire.receive() is None
    assert host.process.wait(PATIENCE_S) == 76


async def test_other_settings_are_loaded_by_the_next_process(host, attach):
    before = await attach()
    await before.ready()
    await before.engine.aclose(10.0)
    after = await attach(pool=ScriptedPool(a_ms=1.0))
    await until(lambda: host.process.poll() is not None)
    assert host.process.returncode == 75
    host.start()
    await after.ready()
    assert loads(after) == 1
    # It is expected back, so whoever asks meanwhile waits.
    assert PoolState.FAILED not in states(after)
    assert "other settings" in host.log


def test_exit_is_carried_out(host, wires):
    wire = wires()
    wire.ready()
    wire.send(Exit())
    assert host.process.wait(PATIENCE_S) == 0


def says_deep(wire: Wire) -> None:
    deep = b"\x91" * 100_000 + b"\xc0"
    wire.sock.sendall(frame(b"\x82\xa1t\xa6attach\xa6engine\x81\xa1x" + deep))


@pytest.mark.parametrize(
    "says",
    [
        lambda wire: wire.sock.sendall(frame(b"\xc1")),
        says_deep,
        lambda wire: wire.attach(a_ms=float("nan")),
        lambda wire: wire.attach(switch_cost_ms=float("inf")),
        lambda wire: wire.attach(max_seqs=-1),
    ],
    ids=["no message", "deep", "nan", "infinity", "negative"],
)
def test_one_that_speaks_nonsense_is_left_and_the_model_stays(host, wires, says):
    wire = wires()
    wire.ready()
    says(wire)
    while wire.receive() is not None:
        pass
    first = wires()
    says(first)
    while first.receive() is not None:
        pass
    assert "Traceback" not in host.log
    heir = wires()
    heir.attach()
    (pool,) = heir.receive_a(HostHello).pools
    assert (pool.state, pool.loads) == (PoolState.READY, 1)


def test_a_user_who_may_not_is_turned_away(tmp_path):
    host = Manager(tmp_path, None, "--peer-uid", str(os.geteuid() + 1), "nobody")
    try:
        for _ in range(2):  # at the second one the first has been told of
            wire = host.connect()
            with wire.sock:
                assert wire.receive() is None
        assert alive(host.pid)
        assert f"of uid {os.geteuid()} may not connect" in host.log
    finally:
        host.close()


def test_a_second_host_leaves_the_first_alone(host):
    command = [sys.executable, "-m", "onegate.engines.host", "--listen", host.path]
    second = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    assert second.returncode == 73
    assert "another engine host holds" in second.stderr
    with host.connect().sock:
        assert alive(host.pid)


def test_a_name_that_is_nobodys(tmp_path):
    command = [sys.executable, "-m", "onegate.engines.host", "--listen", str(tmp_path / "h.sock")]
    made = subprocess.run(
        [*command, "--peer-uid", "0", "no-such-user"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 2
    assert "there is no user 'no-such-user'" in made.stderr
    assert not (tmp_path / "h.sock").exists()


# --- the watchdog -------------------------------------------------------------------------------


def test_signs_of_life_come_from_the_step_loop_and_from_nothing_else(host, wires):
    for _ in range(3):  # nobody is there
        host.hear_a("WATCHDOG=1")
    wire = wires()
    wire.ready()
    for _ in range(3):  # idle
        host.hear_a("WATCHDOG=1")
    wire.send(submit(1, "[[tokens:4000]] [[step-ms:20]]"))
    wire.receive_a(AcceptedMsg)
    host.unheard()
    for _ in range(3):  # between steps
        host.hear_a("WATCHDOG=1")
    wire.send(Abort(id=1))
    wire.send(submit(2, "[[hang:3]]"))
    beats = [wire.receive_a(Heartbeat)]
    while not (beats[-1].busy and len(beats) > 1 and beats[-1].steps == beats[-2].steps):
        beats.append(wire.receive_a(Heartbeat))
    host.unheard()
    for _ in range(3):  # seconds, in which a dozen signs of life would have come
        wire.receive_a(Heartbeat)
    assert host.unheard() == []


def test_a_load_is_given_its_time_and_then_no_more(host, wires):
    wire = wires()
    wire.attach(switch_cost_ms=1000.0)
    host.hear_a(f"WATCHDOG_USEC={LOAD_USEC}")
    host.hear_a(f"WATCHDOG_USEC={USEC}")
    host.hear_a("WATCHDOG=1")


def test_the_manager_is_told_whom_it_serves(host, wires):
    wire = wires()
    wire.attach()
    host.hear_a(f"STATUS=serves the daemon with process id {os.getpid()}")
    wire.sock.close()
    host.hear_a("STATUS=waits for a daemon")


# --- under a real daemon ------------------------------------------------------------------------


def config(host: Manager, **pool: object) -> str:
    engine = f'{FAST}\nstall_floor_s = 1.5\nhost_socket = "{host.path}"'
    return scripted_text(engine=engine, **{"max_seqs": 4, "a_ms": 3.0, **pool})


def test_kill_9_of_the_daemon_during_streams(host, tmp_path, timeout_factor):
    timeout_s = 60 * timeout_factor
    with (
        running_daemon(tmp_path / "d", config(host), timeout_s) as daemon,
        Observed(daemon).greeted() as raw,
    ):
        for id in range(4):
            raw.ask(id, "[[tokens:4000]]")
        raw.expect("chunk", 3)
        assert daemon.children == set()
        pid = host.pid
        daemon.process.kill()
        daemon.process.wait()
        raw.until_closed()
        assert alive(pid)
        with observed(tmp_path / "d", config(host), timeout_s) as heir, heir.greeted() as again:
            for id in range(4):
                again.ask(id, "[[tokens:20]]", params={"max_tokens": 20})
            assert {again.end(id)["t"] for id in range(4)} == {"done"}
            pool = heir.pool()
            assert (pool["loads"], pool["restarts"]) == (1, 0)
            heir.wait_idle()
            heir.check_unharmed()
    assert (host.pid, host.starts) == (pid, 1)
    assert alive(pid)


def test_sigterm_of_the_daemon_leaves_the_host(host, tmp_path, timeout_factor):
    for _ in range(2):
        with observed(tmp_path / "d", config(host), 60 * timeout_factor) as gate:
            gate.check_unharmed()
            assert gate.pool()["loads"] == 1
        assert alive(host.pid)


@pytest.mark.parametrize("way", ["continued", "killed by its manager"])
def test_a_host_that_is_stopped_is_noticed_and_nothing_is_lost(host, tmp_path, timeout_factor, way):
    with (
        observed(tmp_path / "d", config(host, max_seqs=1), 90 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(0, "[[tokens:300]]", params={"max_tokens": 300})
        raw.expect("chunk", 0)
        for id in range(1, 4):
            raw.ask(id, "[[tokens:2]]", params={"max_tokens": 2})
        gate.wait(lambda: gate.status()["gate"]["queued"] == 3)
        host.signal(signal.SIGSTOP)
        gate.wait(lambda: gate.pool()["restarts"] == 1)
        assert gate.pool()["state"] == "loading"
        assert gate.status()["gate"]["queued"] == 4
        assert alive(host.pid)  # its manager's to end
        raw.ask(4, "[[tokens:2]]", params={"max_tokens": 2})
        if way == "continued":
            host.signal(signal.SIGCONT)
        else:
            host.kill()
            host.start()
        assert raw.end(0)["usage"]["output_tok"] == 300
        assert {raw.end(id)["t"] for id in range(1, 5)} == {"done"}
        assert gate.pool()["loads"] == 1
        gate.wait_idle()


def test_kill_9_of_the_host_during_streams(host, tmp_path, timeout_factor):
    with (
        observed(tmp_path / "d", config(host), 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        for id in range(4):
            raw.ask(id, f"story {id} [[tokens:300]]", params={"max_tokens": 300})
        for id in range(4):
            raw.expect("chunk", id)
        host.kill()
        assert Path(host.path).is_socket()  # stale
        gate.wait(lambda: gate.pool()["restarts"] == 1)
        gate.wait(lambda: "no engine host answers" in (gate.pool()["error"] or ""))
        raw.ask(4, "[[tokens:300]]", params={"max_tokens": 300})
        host.start()
        assert {raw.end(id)["usage"]["output_tok"] for id in range(5)} == {300}
        assert gate.pool()["loads"] == 1
        gate.wait_idle()


def test_a_hang_is_left_by_the_daemon_and_ended_by_the_manager(host, tmp_path, timeout_factor):
    with (
        observed(tmp_path / "d", config(host, max_seqs=1), 90 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(0, "[[hang:3]]")
        raw.ask(1, "[[tokens:2]]", params={"max_tokens": 2})
        for losses in (1, 2):  # inside at two of them: taken for their cause
            gate.wait(lambda losses=losses: gate.pool()["restarts"] == losses)
            assert alive(host.pid)
            host.kill()
            host.start()
        assert raw.end(0)["reason"] == "engine_failed"
        assert raw.end(1)["t"] == "done"


# --- the embedded engine ------------------------------------------------------------------------


@pytest.mark.alone("model")
async def test_the_embedded_model_stays_warm(host, attach):
    config = EngineConfig(
        kind="openvino",
        host_socket=host.path,
        kv_tok=2048,
        context_tok=512,
        restart_backoff_ms=1,
    )
    first = await attach(config)
    await first.ready()
    before, _ = await first.run(1, "Hello there.")
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(first.run(i, "Tell a story.", 400)) for i in (2, 3)]
        await asyncio.sleep(0.5)
        await first.engine.aclose(10.0)
    assert all(isinstance(run.result()[1], EngineBroke) for run in runs)
    second = await attach(config)
    await second.ready()
    assert loads(second) == 1
    after, error = await second.run(1, "Hello there.")
    assert error is None
    assert said(after) == said(before)
    assert alive(host.pid)
    assert f"WATCHDOG_USEC={LOAD_USEC}" in host.unheard()


def said(items: list) -> str:
    return "".join(item.text for item in items if isinstance(item, EngineChunk))
