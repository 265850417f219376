"""The composition root: builds the daemon's parts, wires them, and takes them down in order."""

import asyncio
import grp
import secrets
import signal
import sys
from collections.abc import Callable
from typing import Any

from onegate import __version__, clock
from onegate.config import Config, ConfigError, needs_restart
from onegate.engines.registry import build_engine
from onegate.protocol.errors import NoticeCode
from onegate.server import dispatch
from onegate.server.account import Accounts
from onegate.server.classify import compile_rules
from onegate.server.closures import IN_MEMORY, Closures, unknown_after_restart
from onegate.server.engineroom import EngineRoom
from onegate.server.event_lines import Began
from onegate.server.event_log import EventLog
from onegate.server.gate import Gate
from onegate.server.inbound import InboundBytes
from onegate.server.kernel import LinuxKernel
from onegate.server.lifecycle import Lifecycle
from onegate.server.listener import Listener
from onegate.server.live import LiveRequests
from onegate.server.log import Event, Log
from onegate.server.metrics import Metrics
from onegate.server.notify import Notifier
from onegate.server.release import Release
from onegate.server.report import Reporter
from onegate.server.services import Services
from onegate.server.sessions import Sessions
from onegate.server.state import StateDirectory, StateUnavailable
from onegate.server.translate import class_spec, class_specs, gate_limits, pool_spec
from onegate.server.usage import UsageTable
from onegate.server.usage_keeper import UsageKeeper
from onegate.tasks import Tasks


def keep_path(python: tuple[int, ...]) -> dict[str, Any]:
    """Options of a server that leaves its path alone when closed: from 3.13 on it would take it
    away, also where it is systemd's."""
    return {"cleanup_socket": False} if python >= (3, 13) else {}


KEEP_PATH = keep_path(sys.version_info[:2])


def group_gid(name: str) -> int | None:
    """The id of a group by name, None where there is none."""
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        return None


class App:
    """The daemon of one process. `reload` reads the configuration again; raises ConfigError.

    `usage_directory` is where it keeps what outlives it; None: nothing does.
    """

    # A disk that is only slow gets there; one that hangs must not hold up the end.
    STATE_STOP_S = 5.0
    EVENTS_STOP_S = 5.0

    def __init__(
        self,
        config: Config,
        *,
        listener: Listener,
        notifier: Notifier,
        log: Log,
        reload: Callable[[], Config],
        usage_directory: str | None = None,
    ) -> None:
        dispatch.check_complete()
        self._listener = listener
        self._log = log
        self._reload = reload
        started_ns = clock.monotonic_ns()
        self._lifecycle = Lifecycle(notifier, log)
        # A crash of a request is a bug that its client was told of; one of these ends the daemon.
        self._vital = Tasks(self._lifecycle.vital_crashed)
        requests = Tasks(self._request_crashed)
        self._engine = build_engine(
            config.engine,
            step_target_ms=config.step_target_ms,
            log=self._engine_line,
            crashed=self._lifecycle.vital_crashed,
        )
        accounts = Accounts()
        inbound = InboundBytes(config.gate.inbound_bytes, config.gate.inbound_bytes_per_principal)
        began = Began(
            gate_limits(config),
            class_specs(config),
            tuple(pool_spec(pool) for pool in self._engine.pools()),
        )
        self._events: EventLog | None = None
        if config.log.events_path is not None:
            self._events = EventLog(
                config.log.events_path, config.log.events_max_bytes, began=began, log=log
            )
        gate = Gate(
            began.limits,
            began.classes,
            began.pools,
            on_load=lambda model: self._room.load(model),
            on_step=None if self._events is None else self._events.record,
        )
        reporter = Reporter(
            gate=gate,
            engine=self._engine,
            accounts=accounts,
            inbound=inbound,
            limits=lambda: self.services.config.gate,
            sessions=lambda: len(self._sessions),
            state=lambda: self._lifecycle.state.value,
            started_ns=started_ns,
        )
        in_memory = self._open_state(usage_directory, reporter)
        self._damage: list[str] = []

        def damaged(detail: str) -> None:
            self._damage.append(detail)
            reporter.notice(NoticeCode.STATE_DAMAGED, "; ".join(self._damage))

        self._closures = Closures(
            self._state,
            log=log,
            notice=lambda problem: reporter.notice(NoticeCode.CLOSED_UNWRITTEN, problem),
            damaged=damaged,
            in_memory=in_memory,
        )
        live = LiveRequests(boot=secrets.token_hex(3))
        self._release = Release(
            engine=self._engine,
            gate=gate,
            live=live,
            class_of=lambda name: class_spec(self.services.class_config(name)),
            drain_timeout_s=lambda: self.services.config.gate.drain_timeout_s,
            closures=self._closures,
            log=log,
            tasks=requests,
        )
        usage = UsageTable(lambda: self.services.config.usage)
        self._room = EngineRoom(
            engine=self._engine,
            gate=gate,
            accounts=accounts,
            release=self._release,
            reporter=reporter,
            log=log,
            tasks=requests,
        )
        self.services = Services(
            config=config,
            rules=compile_rules(config, group_gid),
            kernel=LinuxKernel(),
            gate=gate,
            engine=self._engine,
            tasks=requests,
            accounts=accounts,
            inbound=inbound,
            live=live,
            closures=self._closures,
            release=self._release,
            usage=usage,
            reporter=reporter,
            metrics=Metrics(accounts, reporter.status),
            log=log,
        )
        self._keeper = UsageKeeper(
            usage,
            self._state,
            accounts=accounts,
            log=log,
            notice=lambda problem: reporter.notice(NoticeCode.USAGE_UNWRITTEN, problem),
            damaged=damaged,
            write_every_s=lambda: self.services.config.usage.write_every_s,
        )
        self._sessions = Sessions(self.services, dispatch.dispatch)

    def _open_state(self, directory: str | None, reporter: Reporter) -> str:
        """Have the directory; returns why there is none, to those to whom that matters."""
        self._state: StateDirectory | None = None
        if directory is None:
            return IN_MEMORY
        try:
            self._state = StateDirectory(directory)
        except StateUnavailable as error:
            used = f"{error}; what is used is kept in memory"
            closed = unknown_after_restart(f"{error}; what is closed is kept in memory")
            reporter.notice(NoticeCode.USAGE_UNWRITTEN, used)
            reporter.notice(NoticeCode.CLOSED_UNWRITTEN, closed)
            self._log.event(Event.STATE_PROBLEM, detail=f"{error}; all is kept in memory")
            return str(error)
        return IN_MEMORY

    def _request_crashed(self, name: str, error: BaseException) -> None:
        self._log.event(Event.BUG, task=name, detail=f"{type(error).__name__}: {error}")

    def _engine_line(self, line: str) -> None:
        self._log.event(Event.ENGINE_STDERR, detail=line)

    async def run(self) -> int:
        """Serve until told to stop; returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._loop_exception)
        lifecycle = self._lifecycle
        loop.add_signal_handler(signal.SIGTERM, lifecycle.stop)
        loop.add_signal_handler(signal.SIGINT, lifecycle.interrupt)
        loop.add_signal_handler(signal.SIGHUP, self._reload_config)
        self._log.event(
            Event.STARTING, version=__version__, engine=self.services.config.engine.kind
        )
        if self._events is not None:
            self._events.begin()
        server = None
        try:
            # Before the engine, which is not to load what would have to be unloaded at once.
            self.services.restore_closures()
            self._vital.spawn(self._engine.start(self._room.hear), name="engine start")
            server = await loop.create_unix_server(
                self._sessions.accept,
                sock=self._listener.sock,
                # It listens again, and would shorten the queue to its own default.
                backlog=self.services.config.gate.socket_backlog,
                **KEEP_PATH,
            )
            self.services.hours.review()
            self._log.event(Event.SERVING, path=self._listener.path)
            lifecycle.serving()
            self._vital.spawn(lifecycle.report(self.services), name="systemd")
            # Not vital: what was used is worth less than the use.
            self.services.tasks.spawn(self._keeper.run(), name="usage")
            self.services.tasks.spawn(self._closures.run(), name="closures")
            await lifecycle.stop_asked.wait()
        finally:
            if server is not None:
                server.close()
            self._listener.close()
            await self._take_down()
        return lifecycle.exit_code

    async def _take_down(self) -> None:
        services, lifecycle = self.services, self._lifecycle
        await lifecycle.drain(services)
        for session in self._sessions:
            session.hang_up()
        await services.tasks.aclose()
        await self._vital.aclose()
        await self._engine.aclose(lifecycle.ENGINE_STOP_S)
        await self._closures.aclose(self.STATE_STOP_S)
        await self._keeper.aclose(self.STATE_STOP_S)
        if self._state is not None:
            await self._state.aclose(self.STATE_STOP_S)
        services.release.close()
        services.hours.close()
        services.gate.close()
        if self._events is not None:
            await self._events.aclose(self.EVENTS_STOP_S)
        services.gate.validate()
        self._log.event(Event.STOPPED)

    def _reload_config(self) -> None:
        with self._lifecycle.reloading():
            self._take_new_config()

    def _take_new_config(self) -> None:
        services = self.services
        try:
            config = self._reload()
        except ConfigError as error:
            for problem in error.errors:
                self._log.event(Event.CONFIG_ERROR, detail=str(problem))
            return
        gone = {c.name for c in services.config.classes} - {c.name for c in config.classes}
        if gone:
            # Requests and connections of that class live; their bounds cannot just vanish.
            detail = f"class {', '.join(sorted(gone))} can only be removed by a restart"
            self._log.event(Event.CONFIG_ERROR, detail=detail)
            return
        for key in needs_restart(services.config, config):
            self._log.event(Event.CONFIG_WARNING, detail=f"{key} needs a restart to change")
        services.rules = compile_rules(config, group_gid)
        services.config = config
        services.inbound.change_limits(
            config.gate.inbound_bytes, config.gate.inbound_bytes_per_principal
        )
        services.gate.change_limits(gate_limits(config), class_specs(config))
        services.hours.review()
        self._log.event(Event.CONFIG_RELOADED)

    def _loop_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        detail = str(context.get("message"))
        if isinstance(error, BaseException):
            detail += f" {type(error).__name__}: {error}"
        self._log.event(Event.BUG, detail=detail)
