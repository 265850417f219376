"""The engine host as a process: killed, orphaned, impossible to start, and never left behind."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from tests.integration.hosts import (
    PATIENCE_S,
    Daemon,
    Wire,
    alive,
    closes_on_exec,
    environment_names,
    hosts,
    scripted,
    until,
)

from onegate.clock import monotonic_ns
from onegate.config import EngineConfig
from onegate.engines.base import (
    EngineBroke,
    EngineChunk,
    EngineLost,
    EngineRequest,
    Finished,
    PoolChanged,
    SeatFreed,
)
from onegate.engines.child import Child
from onegate.engines.host.wire import (
    WIRE,
    Attach,
    Heartbeat,
    HostHello,
    Step,
    Submit,
)
from onegate.engines.models import embedded_model_path
from onegate.protocol.framing import frame


@pytest.fixture
async def attach() -> AsyncIterator[Callable[[EngineConfig], object]]:
    daemons: list[Daemon] = []

    async def start(config: EngineConfig) -> Daemon:
        daemon = Daemon(config)
        daemons.append(daemon)
        await daemon.engine.start(daemon.events.append)
        return daemon

    yield start
    for daemon in daemons:
        await daemon.engine.aclose(10.0)
    assert hosts(os.getpid()) == []


# --- killed -------------------------------------------------------------------------------------


async def test_kill_9_of_the_host_during_ten_streams(attach):
    daemon = await attach(scripted())
    await daemon.ready()
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(daemon.run(i, "x [[tokens:4000]]", 3000)) for i in range(1, 11)]
        await asyncio.sleep(0.3)
        (pid,) = hosts(os.getpid())
        os.kill(pid, signal.SIGKILL)
    for run in runs:
        items, error = run.result()
        assert type(error) is EngineBroke
        assert "SIGKILL" in str(error)
        assert any(isinstance(item, EngineChunk) for item in items)
    (lost,) = daemon.of(EngineLost)
    assert sorted(lost.ids) == list(range(1, 11))
    assert lost.restarts == 1
    assert daemon.of(SeatFreed) == []
    await daemon.ready()
    assert not alive(pid)
    items, error = await daemon.run(11, "again")
    assert isinstance(items[-1], Finished)
    assert error is None
    assert daemon.engine.pools()[0].loads == 2


async def test_a_host_that_dies_again_and_again_is_waited_for_longer(attach):
    daemon = await attach(scripted(restart_backoff_ms=50, restart_backoff_max_ms=200))
    for deaths in range(1, 4):
        await daemon.ready()
        _, error = await daemon.run(deaths, "[[die-before-first]]")
        assert isinstance(error, EngineBroke)
    assert [lost.restarts for lost in daemon.of(EngineLost)] == [1, 2, 3]
    await daemon.ready()


async def test_a_grandchild_goes_with_the_group(tmp_path):
    # An interpreter that leaves a process of its own behind, as an engine with workers would.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nsleep 1000 &\necho "worker $!"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    lines: list[str] = []
    child = Child(str(python), lines.append)
    await child.follow_output()
    await until(lambda: bool(lines))
    worker = int(lines[0].removeprefix("worker "))
    assert alive(worker)
    child.sock.close()
    await child.exited(PATIENCE_S)
    assert alive(worker)
    await child.gone()
    assert not alive(worker)


DAEMON = textwrap.dedent(
    """
    import asyncio, sys
    from onegate.config import EngineConfig, ScriptedConfig, ScriptedPool
    from onegate.engines.base import EngineRequest
    from onegate.engines.registry import build_engine

    async def main():
        pool = ScriptedPool(a_ms=2.0)
        config = EngineConfig(kind="scripted", scripted=ScriptedConfig(pools=(pool,)))
        engine = build_engine(config, log=print, crashed=print)
        await engine.start(lambda event: None)
        while engine.health().state != "ready":
            await asyncio.sleep(0.01)
        request = EngineRequest(id=1, model="scripted", prompt=sys.argv[1], max_tokens=4000)
        seen = 0
        async for item in engine.generate(request):
            seen += 1
            if seen == 4:
                print("streaming", flush=True)

    asyncio.run(main())
    """
)


@pytest.mark.parametrize("prompt", ["[[tokens:4000]]", "[[hang:3]]", "[[freeze:3]]"])
def test_kill_9_of_the_daemon_ends_the_host(prompt):
    daemon = subprocess.Popen(
        [sys.executable, "-c", DAEMON, prompt], stdout=subprocess.PIPE, text=True
    )
    with daemon:
        if prompt == "[[tokens:4000]]":
            assert daemon.stdout.readline() == "streaming\n"
        else:
            deadline = monotonic_ns() + int(PATIENCE_S * 1e9)
            while not hosts(daemon.pid) and monotonic_ns() < deadline:
                time.sleep(0.05)
            time.sleep(0.5)
        (pid,) = hosts(daemon.pid)
        daemon.kill()
        daemon.wait()
    deadline = monotonic_ns() + int(PATIENCE_S * 1e9)
    while alive(pid) and monotonic_ns() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


async def test_the_host_has_a_group_of_its_own_and_a_clean_environment(attach, monkeypatch):
    monkeypatch.setenv("LISTEN_FDS", "1")
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/systemd/notify")
    monkeypatch.setenv("SECRET_KEY", "x")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    daemon = await attach(scripted())
    await daemon.ready()
    (pid,) = hosts(os.getpid())
    assert os.getpgid(pid) == pid != os.getpgid(0)
    names = environment_names(pid)
    assert {"LISTEN_FDS", "NOTIFY_SOCKET", "SECRET_KEY", "PYTHONPATH"} & names == set()
    assert {"PATH", "CUDA_VISIBLE_DEVICES"} <= names
    open_fds = {fd: os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    (sock,) = [fd for fd, target in open_fds.items() if target.startswith("socket:")]
    # What the engine starts must not hold the connection open.
    assert closes_on_exec(pid, sock)
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


# --- the wire, from the daemon's end ------------------------------------------------------------


class ChildWire(Wire):
    """To a host that was started as a child."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "onegate.engines.host", "--fd", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stderr=subprocess.PIPE,
            )
        super().__init__(ours)


@pytest.fixture
def wire():
    host = ChildWire()
    yield host
    host.sock.close()
    host.process.kill()
    host.process.communicate()


def test_another_version_of_the_wire_is_told_and_the_host_leaves(wire):
    # A future message may have fields that this host does not know.
    wire.send({"t": "attach", "wire": WIRE + 1, "daemon_pid": 1, "engine": None, "new": {}})
    hello = wire.receive()
    assert isinstance(hello, HostHello)
    assert hello.wire == WIRE
    assert hello.pools == []
    assert wire.receive() is None
    assert wire.process.wait(PATIENCE_S) == 76


DEEP = b"\x91" * 100_000 + b"\xc0"


@pytest.mark.parametrize(
    "message",
    [
        b"\xc1",
        msgspec.msgpack.encode({"t": "submit"}),
        msgspec.msgpack.encode([1]),
        b"\x82\xa1t\xa6attach\xa6engine\x81\xa1x" + DEEP,
        b"\x82\xa1t\xa5abort\xa2id" + DEEP,
    ],
    ids=["no msgpack", "half", "no map", "deep attach", "deep abort"],
)
@pytest.mark.parametrize("attached", [False, True])
def test_a_message_that_is_none_ends_the_host_with_a_sentence(wire, message, attached):
    if attached:
        wire.ready()
    wire.sock.sendall(frame(message))
    while wire.receive() is not None:
        pass
    assert wire.process.wait(PATIENCE_S) == 76
    said = wire.process.stderr.read()
    assert said.startswith(b"the daemon broke the wire: ")
    assert said.count(b"\n") == 1


@pytest.mark.parametrize("harm", [{"a_ms": float("nan")}, {"switch_cost_ms": float("inf")}])
def test_settings_that_are_no_numbers_end_the_host_with_a_sentence(wire, harm):
    wire.attach(**harm)
    assert wire.receive() is None
    assert wire.process.wait(PATIENCE_S) == 78
    assert wire.process.stderr.read().count(b"\n") == 1


def test_settings_that_are_wrong_are_named(wire):
    table = {"kind": "scripted", "pools": [], "loadable": "many"}
    wire.send(Attach(wire=WIRE, daemon_pid=1, engine=table))
    assert wire.receive() is None
    assert wire.process.wait(PATIENCE_S) == 78
    assert b"loadable" in wire.process.stderr.read()


def test_the_end_of_the_daemon_ends_an_idle_host(wire):
    wire.attach()
    wire.receive_a(HostHello)
    wire.sock.close()
    assert wire.process.wait(PATIENCE_S) == 0


def test_the_end_of_the_daemon_ends_a_host_that_hangs(wire):
    wire.ready()
    request = EngineRequest(id=1, model="scripted", prompt="[[hang:1]]", max_tokens=9)
    wire.send(Submit(request=request))
    wire.receive_a(Step)
    while not wire.receive_a(Heartbeat).busy:
        pass
    wire.sock.close()
    assert wire.process.wait(PATIENCE_S) == 0


def test_heartbeats_come_while_a_step_does_not_end(wire):
    wire.ready()
    request = EngineRequest(id=1, model="scripted", prompt="[[hang:1]]", max_tokens=9)
    wire.send(Submit(request=request))
    wire.receive_a(Step)
    first, second = wire.receive_a(Heartbeat), wire.receive_a(Heartbeat)
    assert second.busy
    assert first.steps == second.steps


def test_a_daemon_that_reads_late_gets_everything(wire):
    wire.ready()
    n_tok = 3900
    for id in range(1, 17):
        request = EngineRequest(
            id=id, model="scripted", prompt=f"[[tokens:{n_tok}]]", max_tokens=n_tok
        )
        wire.send(Submit(request=request))
    time.sleep(1.0)  # the socket is full long before that
    said = dict.fromkeys(range(1, 17), 0)
    freed: list[int] = []
    while len(freed) < 16:
        step = wire.receive_a(Step)
        for output in step.outputs:
            said[output.id] += output.chunk.n_tok
        freed += step.freed
    assert set(said.values()) == {n_tok}


# --- what cannot be started ---------------------------------------------------------------------


async def test_a_python_that_is_not_there(attach):
    daemon = await attach(scripted(python="/nowhere/bin/python"))
    assert "engine.python" in await daemon.failed()
    assert daemon.engine.health().state in ("failed", "starting")
    assert daemon.of(EngineLost) == []


async def test_a_python_without_onegate(attach, tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "No module named onegate" >&2\nexit 1\n')
    python.chmod(0o755)
    daemon = await attach(scripted(python=str(python)))
    error = await daemon.failed()
    assert "exited with code 1" in error
    assert "No module named onegate" in error
    assert "No module named onegate" in daemon.log


@pytest.mark.alone("model")
async def test_a_model_that_is_not_there_and_then_is(attach, tmp_path):
    path = tmp_path / "late.gguf"
    config = EngineConfig(
        kind="openvino",
        model=str(path),
        restart_backoff_ms=100,
        restart_backoff_max_ms=100,
        kv_tok=1024,
        context_tok=512,
    )
    daemon = await attach(config)
    error = await daemon.failed()
    assert str(path) in error
    assert "engine.model" in error
    (pool,) = daemon.engine.pools()
    assert pool.model == "late"
    assert daemon.of(EngineLost) == []
    path.symlink_to(embedded_model_path("smollm2-135m-instruct"))
    await daemon.ready()
    assert daemon.engine.pools()[0].error is None
    items, error = await daemon.run(1, "Hello")
    assert error is None
    assert isinstance(items[-1], Finished)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda p: p.write_bytes(b"not a model" * 100), "not a GGUF file"),
        (lambda p: p.mkdir(), "openvino_model.xml"),
        (lambda p: p.write_bytes(b"GGUF" + bytes(100)), "cannot be loaded"),
    ],
    ids=["text", "folder", "broken"],
)
async def test_a_model_that_is_none_is_said_in_one_sentence(attach, tmp_path, make, says):
    path = tmp_path / "model.gguf"
    make(path)
    daemon = await attach(EngineConfig(kind="openvino", model=str(path)))
    error = await daemon.failed()
    assert says in error
    assert "\n" not in error

    def errors() -> list[str | None]:
        return [event.pool.error for event in daemon.of(PoolChanged)]

    await until(lambda: None in errors())  # the next start
    assert set(errors()) == {error, None}  # the host's own words, not how it ended


@pytest.mark.alone("model")
async def test_a_device_that_is_not_there(attach):
    daemon = await attach(EngineConfig(kind="openvino", device="NPU.7"))
    error = await daemon.failed()
    assert "NPU.7" in error
    assert "engine.device" in error
    assert "CPU" in error


@pytest.mark.alone("model")
async def test_a_model_cut_short_kills_the_host_and_not_the_daemon(attach, tmp_path):
    whole = embedded_model_path("smollm2-135m-instruct")
    path = tmp_path / "cut.gguf"
    with whole.open("rb") as file:
        path.write_bytes(file.read(5_000_000))
    daemon = await attach(EngineConfig(kind="openvino", model=str(path)))
    error = await daemon.failed()
    assert "cannot be loaded" in error or "was ended by SIG" in error


@pytest.mark.alone("model")
async def test_too_little_memory_is_said(attach, monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nulimit -v 1500000\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    daemon = await attach(EngineConfig(kind="openvino", python=str(python)))
    error = await daemon.failed()
    assert "\n" not in error
    assert "memory" in error


# --- the embedded engine under the same kill ----------------------------------------------------


@pytest.mark.alone("model")
async def test_the_embedded_engine_comes_back_from_a_kill(attach):
    daemon = await attach(
        EngineConfig(kind="openvino", kv_tok=2048, context_tok=512, restart_backoff_ms=1)
    )
    await daemon.ready()
    before, _ = await daemon.run(1, "Hello there.")
    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(daemon.run(i, "Tell a story.", 400)) for i in (2, 3)]
        await asyncio.sleep(1.0)
        (pid,) = hosts(os.getpid())
        os.kill(pid, signal.SIGKILL)
    assert all(isinstance(run.result()[1], EngineBroke) for run in runs)
    (lost,) = daemon.of(EngineLost)
    assert sorted(lost.ids) == [2, 3]
    await daemon.ready()
    after, _ = await daemon.run(4, "Hello there.")
    texts = [
        "".join(item.text for item in items if isinstance(item, EngineChunk))
        for items in (before, after)
    ]
    assert texts[0] == texts[1]
