"""Starting, serving, draining, stopped; and what systemd hears."""

import asyncio
import io
import os
import time
from typing import Any

import pytest

from onegate import clock
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason
from onegate.server import lifecycle as lifecycle_module
from onegate.server.lifecycle import Lifecycle, State, status_line
from onegate.server.log import Log
from onegate.server.notify import Notifier
from onegate.server.outcome import Outcome

Box = Any  # of conftest.py


class Manager:
    """A service manager that listens."""

    class Socket:
        def setblocking(self, flag: bool) -> None:
            pass

    def __init__(self) -> None:
        self.socket = self.Socket()
        self.heard: list[str] = []

    def notify(self, state: str) -> None:
        self.heard.append(state)


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
async def lifecycle(manager: Manager, stream: io.StringIO) -> Lifecycle:
    return Lifecycle(Notifier(manager, 3.0), Log(stream, journal=False))


async def test_a_life(lifecycle: Lifecycle, manager: Manager) -> None:
    assert lifecycle.state is State.STARTING
    lifecycle.serving()
    assert lifecycle.state is State.SERVING
    assert manager.heard[0].startswith("READY=1")
    assert not lifecycle.stop_asked.is_set()
    lifecycle.stop()
    lifecycle.stop()
    assert lifecycle.stop_asked.is_set()
    assert lifecycle.exit_code == os.EX_OK


async def test_a_vital_crash_ends_the_daemon_as_our_fault(
    lifecycle: Lifecycle, stream: io.StringIO
) -> None:
    lifecycle.vital_crashed("systemd", ZeroDivisionError("x"))
    assert lifecycle.stop_asked.is_set()
    assert lifecycle.exit_code == os.EX_SOFTWARE
    assert "task_crashed task=systemd" in stream.getvalue()


class Slept(Exception):
    """The reporter would sleep now."""


@pytest.mark.parametrize(("interval_s", "slept_s"), [(3.0, 3.0), (60.0, 5.0), (None, 5.0)])
async def test_the_watchdog_is_fed_from_the_loop(
    box: Box,
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    interval_s: float | None,
    slept_s: float,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        box.skipped_ns += round(seconds * 1e9)
        if len(slept) == 3:
            raise Slept

    lifecycle = Lifecycle(Notifier(manager, interval_s), box.services.log)
    client = box.greeted()
    for id in (1, 2):
        await box.run(client, id)
    await box.ask(client, 3)
    monkeypatch.setattr(lifecycle_module.asyncio, "sleep", sleep)
    with pytest.raises(Slept):
        await lifecycle.report(box.services)
    assert slept == [slept_s] * 3
    assert manager.heard.count("WATCHDOG=1") == 3
    lines = [line for line in manager.heard if line.startswith("STATUS=")]
    assert set(lines) == {"STATUS=2 running, 1 waiting, limited by seats"}
    assert len(lines) == (2 if slept_s < 5 else 3)


async def test_what_runs_may_finish(
    box: Box, lifecycle: Lifecycle, manager: Manager, stream: io.StringIO
) -> None:
    client, other = box.greeted(), box.greeted(uid=2)
    runs = [await box.run(client, 1), await box.run(client, 2)]
    await box.ask(client, 3)
    client.heard()
    box.services.tasks.spawn(lifecycle.drain(box.services), name="drain")
    await box.quiet()
    assert lifecycle.state is State.DRAINING
    assert manager.heard[0].startswith("STOPPING=1")
    # drain_timeout_s of 30, and 35 s for what comes after it: more than TimeoutStopSec= may be.
    assert manager.heard[1] == "EXTEND_TIMEOUT_USEC=65000000"
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (3, Reason.SHUTTING_DOWN, Phase.QUEUED)
    assert failed.retry_after_ms > 0
    await box.ask(other, 4)
    assert [x.reason for x in other.heard()] == [Reason.SHUTTING_DOWN]
    for run in runs:
        run.finish()
    await box.quiet()
    assert [type(x) for x in client.heard()] == [m.Done, m.Done]
    assert lifecycle.state is State.STOPPED
    log = stream.getvalue()
    assert "draining count=3" in log
    assert "2 finished, 2 rejected, 0 aborted" in log
    box.all_is_given_back()


async def test_systemd_waits_for_the_end_of_a_reload(
    lifecycle: Lifecycle, manager: Manager
) -> None:
    lifecycle.serving()
    manager.heard.clear()

    def reload() -> None:
        with lifecycle.reloading():
            assert [line.partition("\n")[0] for line in manager.heard] == ["RELOADING=1"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        reload()
    assert manager.heard[1:] == ["READY=1\nSTATUS=serving"]


async def test_a_reload_while_it_goes_down_is_no_news(
    lifecycle: Lifecycle, manager: Manager
) -> None:
    lifecycle.state = State.DRAINING
    with lifecycle.reloading():
        pass
    assert manager.heard == []


async def test_what_does_not_finish_is_aborted(make_box: Any, lifecycle: Lifecycle) -> None:
    box = make_box("[gate]\ndrain_timeout_s = 0.001\n")
    client = box.greeted()
    run = await box.run(client)
    client.heard()
    await lifecycle.drain(box.services)
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (Reason.SHUTTING_DOWN, Phase.GRANTED)
    assert box.outcomes() == {Outcome.ABORTED: 1}
    assert run.closed == 1
    await box.quiet()
    box.all_is_given_back()


async def test_a_second_interrupt_aborts_what_runs(box: Box, lifecycle: Lifecycle) -> None:
    client = box.greeted()
    await box.run(client)
    client.heard()
    lifecycle.interrupt()
    assert lifecycle.stop_asked.is_set()
    asyncio.get_running_loop().call_soon(lifecycle.interrupt)
    await lifecycle.drain(box.services)
    (failed,) = client.heard()
    assert failed.reason == Reason.SHUTTING_DOWN
    assert box.outcomes() == {Outcome.ABORTED: 1}


async def test_an_engine_that_hangs_does_not_keep_the_daemon(
    make_box: Any,
    lifecycle: Lifecycle,
    stream: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle_module, "ABORT_S", 0.001)
    box = make_box("[gate]\ndrain_timeout_s = 0.001\n")
    never = asyncio.Event()

    async def hang() -> None:
        await never.wait()

    run = await box.run(box.greeted())
    run.on_close = hang
    await lifecycle.drain(box.services)
    assert lifecycle.state is State.STOPPED
    assert "drained count=1" in stream.getvalue()
    never.set()
    await box.quiet()


async def test_an_idle_daemon_drains_at_once(box: Box, lifecycle: Lifecycle) -> None:
    await lifecycle.drain(box.services)
    assert lifecycle.state is State.STOPPED


async def test_systemd_is_told_what_is_closed_and_until_when(
    box: Box, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_700_000_000_000)
    services = box.services
    services.release.begin(until_ms=1_700_003_600_000, now=False, principal="uid:0")
    line = status_line(services)
    assert line == "the device is released until 2023-11-14 23:13:20 UTC; 0 running, 0 waiting"
    services.release.begin(until_ms=None, now=False, principal="uid:0")
    assert "the device is released until it is ended by hand; " in status_line(services)
    services.release.end()
    assert status_line(services) == "0 running, 0 waiting"
    admin = box.greeted(uid=0)
    admin.say(m.Pause(id=1, class_="batch", until_ms=1_700_003_600_000))
    admin.say(m.Pause(id=2, class_="loop"))
    line = status_line(services)
    assert "batch is paused until 2023-11-14 23:13:" in line
    assert "loop is paused until it is ended by hand" in line
    await box.quiet()
    monkeypatch.undo()
    time.tzset()
