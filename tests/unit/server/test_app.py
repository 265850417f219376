"""The parts put together: started, reloaded, stopped, in that order and with nothing left."""

import asyncio
import grp
import io
import os
import signal
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onegate import clock
from onegate import config as configuration
from onegate.admission.controller import Controller
from onegate.admission.model import RequestSpec
from onegate.config import Config
from onegate.engines.base import PoolChanged, PoolState
from onegate.protocol import messages as m
from onegate.protocol.content import Params
from onegate.protocol.errors import Reason
from onegate.server import app as app_module
from onegate.server import dispatch as dispatch_module
from onegate.server.app import App, group_gid
from onegate.server.event_lines import Began, Step, read
from onegate.server.log import Log
from onegate.server.notify import Notifier
from onegate.tasks import Tasks


class Listener:
    """A socket that is never used."""

    path = "/run/played.sock"
    sock = None

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def close(self) -> None:
        self._events.append("listener closed")


class Loop:
    """The running loop, but for what would touch the process or a socket."""

    def __init__(self, events: list[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = events
        self.signals: dict[int, Callable[[], None]] = {}
        self.report: Callable[[Any, dict[str, object]], None] | None = None
        self.served: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def set_exception_handler(self, report: Any) -> None:
        self.report = report

    def add_signal_handler(self, number: int, callback: Callable[[], None]) -> None:
        self.signals[number] = callback

    async def create_unix_server(self, factory: Any, **options: Any) -> Any:
        self.served = {"factory": factory, **options}
        self._events.append("serving")
        events = self._events

        class Server:
            def close(self) -> None:
                events.append("server closed")

        return Server()


class Daemon:
    """An app and everything that it was given."""

    def __init__(self, engine: Any, text: str, directory: Path | None = None) -> None:
        self.events: list[str] = []
        self.stream = io.StringIO()
        self.text = text
        self.engine = engine
        self.loop = Loop(self.events)
        self.app = App(
            self.read(),
            listener=Listener(self.events),  # type: ignore[arg-type]
            notifier=Notifier(None, None),
            log=Log(self.stream, journal=False),
            reload=self.read,
            usage_directory=None if directory is None else str(directory),
        )
        self.codes: list[int] = []
        self.tasks = Tasks(self._crashed)

    def _crashed(self, name: str, error: BaseException) -> None:
        raise error

    def read(self) -> Config:
        return configuration.check(self.text)

    async def start(self) -> None:
        async def run() -> None:
            self.codes.append(await self.app.run())

        self.running = self.tasks.spawn(run(), name="app")
        await turns()

    async def stop(self) -> int:
        self.loop.signals[signal.SIGTERM]()
        await turns()
        (code,) = self.codes
        return code

    async def stop_in_time(self) -> None:
        """The same where a disk has to be waited for."""
        self.loop.signals[signal.SIGTERM]()
        await asyncio.wait([self.running])

    def reload(self, text: str) -> None:
        self.text = text
        self.loop.signals[signal.SIGHUP]()


async def turns(n: int = 50) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.fixture
async def daemon(box: Any, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    engine = box.engine
    monkeypatch.setattr(app_module, "build_engine", lambda config, **_: engine)
    made = Daemon(engine, "")
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: made.loop)
    return made


async def test_it_serves_until_it_is_told_to_stop(daemon: Daemon) -> None:
    await daemon.start()
    assert daemon.events == ["serving"]
    assert daemon.loop.served["backlog"] == 1024
    assert callable(daemon.loop.served["factory"])
    assert daemon.codes == []
    assert daemon.engine.sink("unknown") is None
    assert await daemon.stop() == os.EX_OK
    assert daemon.events == ["serving", "server closed", "listener closed"]
    assert daemon.engine.closed == [10.0]
    log = daemon.stream.getvalue()
    assert [line.split()[2] for line in log.splitlines()] == [
        "starting",
        "serving",
        "draining",
        "drained",
        "stopped",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_both_signals_stop_it(daemon: Daemon, number: int) -> None:
    await daemon.start()
    daemon.loop.signals[number]()
    daemon.loop.signals[number]()
    await turns()
    assert daemon.codes == [os.EX_OK]


async def test_a_part_that_crashes_ends_it_with_another_code(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(sink: object) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(daemon.engine, "start", start)
    await daemon.start()
    assert daemon.codes == [os.EX_SOFTWARE]
    assert "task_crashed" in daemon.stream.getvalue()


async def test_a_path_that_systemd_gave_is_not_taken_away(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    await daemon.start()
    options = set(daemon.loop.served) - {"factory", "sock", "backlog"}
    assert options == set(app_module.KEEP_PATH)
    assert app_module.keep_path((3, 13)) == {"cleanup_socket": False}
    assert app_module.keep_path((3, 12)) == {}
    await daemon.stop()


async def test_a_verb_without_a_handler_does_not_start(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(dispatch_module.HANDLERS, dispatch_module.m.Whoami)
    with pytest.raises(RuntimeError, match="Whoami"):
        Daemon(daemon.engine, "")


async def test_a_reload_changes_what_can_be_changed(daemon: Daemon) -> None:
    await daemon.start()
    services = daemon.app.services
    rules = services.rules
    daemon.reload(
        """
        [engine]
        threads = 3
        [gate]
        max_in_flight = 7
        inbound_bytes = 100000
        inbound_bytes_per_principal = 50000
        max_frame_bytes = 40000
        """
    )
    assert services.config.gate.max_in_flight == 7
    assert services.rules is not rules
    full = services.inbound.charge("uid:1", 50_001)
    assert full is not None
    assert full.limit == 50_000
    log = daemon.stream.getvalue()
    assert 'config_warning detail="engine.threads needs a restart to change"' in log
    assert "config_reloaded" in log
    await daemon.stop()


async def test_limits_of_a_reload_reach_the_gate(daemon: Daemon) -> None:
    await daemon.start()
    daemon.reload("[[class]]\nname = 'loop'\nmax_queued_tok = 70000\n")
    (loop,) = [c for c in daemon.app.services.gate.view().classes if c.name == "loop"]
    assert loop.max_queued_tok == 70_000
    await daemon.stop()


async def test_a_configuration_with_errors_changes_nothing(daemon: Daemon) -> None:
    await daemon.start()
    config = daemon.app.services.config
    daemon.reload("[gate]\nmax_in_flight = 0\nnonsense = 1\n")
    assert daemon.app.services.config is config
    log = daemon.stream.getvalue()
    assert log.count("config_error") == 2
    assert "config_reloaded" not in log
    await daemon.stop()


async def test_a_class_is_not_taken_away_under_its_requests(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "build_engine", lambda config, **_: box.engine)
    made = Daemon(box.engine, "[[class]]\nname = 'night'\nrank = 3\n")
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: made.loop)
    await made.start()
    config = made.app.services.config
    made.reload("")
    assert made.app.services.config is config
    assert "night" in made.stream.getvalue()
    await made.stop()


async def test_what_the_loop_reports_is_logged_as_a_bug(daemon: Daemon) -> None:
    await daemon.start()
    assert daemon.loop.report is not None
    daemon.loop.report(None, {"message": "it broke", "exception": ZeroDivisionError("x")})
    assert 'bug detail="it broke ZeroDivisionError: x"' in daemon.stream.getvalue()
    await daemon.stop()


async def test_a_request_that_crashes_is_a_bug_and_no_end(daemon: Daemon) -> None:
    async def crash() -> None:
        raise ZeroDivisionError("x")

    await daemon.start()
    daemon.app.services.tasks.spawn(crash(), name="request 1")
    await turns()
    assert 'bug task="request 1" detail="ZeroDivisionError: x"' in daemon.stream.getvalue()
    assert daemon.codes == []
    await daemon.stop()


async def test_what_the_engine_writes_is_logged(box: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    logs: list[Callable[[str], None]] = []

    def build(config: object, log: Callable[[str], None], **_: object) -> Any:
        logs.append(log)
        return box.engine

    monkeypatch.setattr(app_module, "build_engine", build)
    made = Daemon(box.engine, "")
    logs[0]("warming up")
    assert 'engine_stderr detail="warming up"' in made.stream.getvalue()


async def test_an_engine_that_nobody_watches_any_more_ends_the_daemon(
    box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Callable[[str, BaseException], None]] = []

    def build(config: object, crashed: Callable[[str, BaseException], None], **_: object) -> Any:
        told.append(crashed)
        return box.engine

    monkeypatch.setattr(app_module, "build_engine", build)
    made = Daemon(box.engine, "")
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: made.loop)
    await made.start()
    told[0]("engine host", ZeroDivisionError("x"))
    await turns()
    assert made.codes == [os.EX_SOFTWARE]
    assert 'task="engine host" detail="ZeroDivisionError: x"' in made.stream.getvalue()


async def test_a_pool_is_loaded_through_the_engine_room(daemon: Daemon, box: Any) -> None:
    cold = msgspec.structs.replace(daemon.engine.infos["tiny"], state=PoolState.COLD)
    daemon.engine.infos["tiny"] = cold
    await daemon.start()
    daemon.engine.sink(PoolChanged(pool=cold))
    session = daemon.loop.served["factory"]()
    peer = box.connect().session.peer
    box.attach(session, peer).say(
        m.Hello(features=["v1"]), m.Generate(id=1, prompt="why?", params=Params(max_tokens=5))
    )
    await turns()
    assert daemon.engine.loads == ["tiny"]
    await daemon.stop()


async def test_status_is_wired_up(daemon: Daemon) -> None:
    status = daemon.app.services.reporter.status()
    assert (status.state, status.gate.sessions) == ("starting", 0)
    await daemon.start()
    assert daemon.app.services.reporter.status().state == "serving"
    await daemon.stop()
    assert daemon.app.services.reporter.status().state == "stopped"


def test_groups_by_name() -> None:
    first = grp.getgrall()[0]
    assert group_gid(first.gr_name) == first.gr_gid
    assert group_gid("no-such-group-here") is None


async def test_what_was_used_is_read_written_and_said(
    box: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(app_module, "build_engine", lambda config, **_: box.engine)

    def daemon(directory: Path) -> App:
        return App(
            configuration.check(""),
            listener=Listener([]),  # type: ignore[arg-type]
            notifier=Notifier(None, None),
            log=Log(io.StringIO(), journal=False),
            reload=lambda: configuration.check(""),
            usage_directory=str(directory),
        )

    first = daemon(tmp_path)
    assert first.services.usage.stored
    first.services.refused_on_arrival("uid:7", "batch", Reason.INVALID)
    codes = [notice.code for notice in daemon(tmp_path).services.reporter.status().notices]
    assert codes == ["usage_unwritten", "closed_unwritten"]
    await first._take_down()
    heir = daemon(tmp_path)
    assert [row.rejected for row in heir.services.usage.rows()] == [1]
    await heir._take_down()


async def test_what_was_used_is_written_while_it_serves(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []

    async def run() -> None:
        runs.append(1)

    monkeypatch.setattr(daemon.app._keeper, "run", run)
    await daemon.start()
    assert runs == [1]
    await daemon.stop()


async def test_what_is_closed_is_known_before_the_engine_starts(
    box: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = box.engine
    monkeypatch.setattr(app_module, "build_engine", lambda config, **_: engine)
    first = Daemon(engine, "", tmp_path)
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: first.loop)
    await first.start()
    first.app.services.release.begin(until_ms=None, now=False, principal="uid:0")
    await first.app.services.closures.written()
    await first.stop_in_time()
    engine.cold = False
    heir, cold = Daemon(engine, "", tmp_path), []

    async def start(sink: object) -> None:
        cold.append(engine.cold)

    monkeypatch.setattr(engine, "start", start)
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: heir.loop)
    await heir.start()
    assert cold == [True]
    assert heir.app.services.release.in_force
    await heir.stop_in_time()
    assert (tmp_path / "closed.jsonl").exists(), "an orderly end ends it as little"


@pytest.mark.parametrize("damaged", [[], ["closed"], ["closed", "usage"]])
async def test_what_could_not_be_read_is_said_until_the_end(
    box: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damaged: list[str]
) -> None:
    monkeypatch.setattr(app_module, "build_engine", lambda config, **_: box.engine)
    for name in damaged:
        (tmp_path / f"{name}.jsonl").write_bytes(b"garbage\n")
    made = Daemon(box.engine, "", tmp_path)
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: made.loop)
    await made.start()
    notices = made.app.services.reporter.status().notices
    assert [notice.code for notice in notices] == ["state_damaged"] * bool(damaged)
    for name in damaged:
        assert f"{name}.bad" in notices[0].detail
    await made.stop_in_time()


# --- hours, and the event log ---------------------------------------------------------------------


def closed(daemon: Daemon) -> set[str]:
    return {view.name for view in daemon.app.services.gate.view().classes if view.closed}


async def test_a_class_is_closed_outside_its_times_from_the_start_and_after_a_reload(
    daemon: Daemon,
) -> None:
    await daemon.start()
    assert closed(daemon) == set()
    # Never within twelve hours of now.
    hour = (datetime.fromtimestamp(clock.wall_ms() / 1000).hour + 12) % 24
    times = f'run_window = ["{hour:02}:30-{hour:02}:31"]\n'
    daemon.reload(f'[[class]]\nname = "batch"\n{times}')
    assert closed(daemon) == {"batch"}
    daemon.reload("")
    assert closed(daemon) == set()
    assert await daemon.stop() == os.EX_OK

    again = Daemon(daemon.engine, f'[[class]]\nname = "batch"\n{times}')
    again.loop = daemon.loop
    await again.start()
    assert closed(again) == {"batch"}
    await again.stop()
    assert again.app.services.hours._timer is None


async def test_what_the_core_did_can_be_replayed(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events"
    made = Daemon(daemon.engine, f'[log]\nevents_path = "{path}"\n')
    monkeypatch.setattr(app_module.asyncio, "get_running_loop", lambda: made.loop)
    await made.start()
    gate = made.app.services.gate
    spec = RequestSpec(
        rid=1,
        pool="tiny",
        class_="loop",
        principal="uid:1",
        flow="uid:1/-",
        prompt_tok=5,
        max_tok=5,
        arrived_ns=clock.monotonic_ns(),
    )
    async with gate.admit(spec, lambda refusal: None) as permit:
        gate.close_class("loop", None)
        permit.produced(3)
        permit.settle(finished=True)
    made.reload(f'[log]\nevents_path = "{path}"\n[gate]\nmax_in_flight = 3\n')
    made.loop.signals[signal.SIGTERM]()
    await made.running
    began, *steps = read(str(path))
    assert isinstance(began, Began)
    core = Controller(began.limits, began.classes, began.pools)
    for step in steps:
        assert isinstance(step, Step)
        assert tuple(core.handle(step.event, step.now_ns)) == step.effects
    kinds = [type(step.event).__name__ for step in steps if isinstance(step, Step)]
    assert kinds[:3] == ["Arrived", "ClassClosed", "Produced"]
    assert {"LimitsChanged", "DrainStarted"} <= set(kinds)
    assert made.app.services.gate.view().draining
