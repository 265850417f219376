"""Starting, serving, draining, stopped; and what systemd is told of it."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum

from onegate import clock
from onegate.server.live import LiveRequests
from onegate.server.log import Event, Log
from onegate.server.notify import Notifier
from onegate.server.outcome import DRAINED, Outcome
from onegate.server.services import Services

STATUS_EVERY_S = 5.0
# After drain_timeout what still runs is aborted; the aborts themselves are quick.
ABORT_S = 5.0
# What is asked of systemd beyond both, for what follows a drain: connections closed, the engine
# stopped, tables written.
CLOSING_S = 30.0


class State(StrEnum):
    """The daemon's life; it only goes forward."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"
    STOPPED = "stopped"


class Lifecycle:
    """Where the daemon is in its life, and how it ends."""

    ENGINE_STOP_S = 10.0

    def __init__(self, notifier: Notifier, log: Log) -> None:
        self._notifier = notifier
        self._log = log
        self.state = State.STARTING
        self.stop_asked = asyncio.Event()
        self._draining: LiveRequests | None = None
        self.exit_code = os.EX_OK

    def serving(self) -> None:
        """The gate answers; whether a model is loaded is another question."""
        self.state = State.SERVING
        self._notifier.ready("serving")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """While the configuration is read again; systemd waits for the end of it."""
        if self.state is State.SERVING:
            self._notifier.reloading()
        try:
            yield
        finally:
            if self.state is State.SERVING:
                self._notifier.ready("serving")

    def stop(self) -> None:
        """Begin the end; safe to call again."""
        self.stop_asked.set()

    def interrupt(self) -> None:
        """The same from a keyboard, where a second time means at once: what runs is aborted."""
        self.stop()
        for live in self._draining or ():
            live.end(DRAINED)

    def vital_crashed(self, name: str, error: BaseException) -> None:
        """A task without which nothing works has crashed: stop, and say that it was our fault."""
        self._log.event(Event.TASK_CRASHED, task=name, detail=f"{type(error).__name__}: {error}")
        self.exit_code = os.EX_SOFTWARE
        self.stop_asked.set()

    async def report(self, services: Services) -> None:
        """Feed the watchdog from the event loop and keep the status line of systemctl current."""
        every_s = self._notifier.watchdog_interval_s
        next_status_ns = 0
        while True:
            self._notifier.watchdog()
            if clock.monotonic_ns() >= next_status_ns:
                next_status_ns = clock.monotonic_ns() + round(STATUS_EVERY_S * 1e9)
                self._notifier.status(status_line(services))
            await asyncio.sleep(min(every_s or STATUS_EVERY_S, STATUS_EVERY_S))

    async def drain(self, services: Services) -> None:
        """Refuse what waits, let what has started finish for `drain_timeout_s`, abort the rest."""
        self.state = State.DRAINING
        drain_s = services.config.gate.drain_timeout_s
        self._notifier.stopping("draining")
        self._notifier.extend_timeout(drain_s + ABORT_S + CLOSING_S)
        running = len(services.live)
        self._log.event(Event.DRAINING, count=running)
        before = _totals(services)
        services.gate.drain()
        self._draining = services.live
        await services.live.wait_empty(drain_s)
        for live in services.live:
            live.end(DRAINED)
        await services.live.wait_empty(ABORT_S)
        after = _totals(services)
        said = ", ".join(
            f"{after[outcome] - before[outcome]} {outcome.value}"
            for outcome in (Outcome.FINISHED, Outcome.REJECTED, Outcome.ABORTED)
        )
        self._log.event(Event.DRAINED, count=len(services.live), detail=said)
        self.state = State.STOPPED


def status_line(services: Services) -> str:
    """What the daemon does at the moment, for `systemctl status`: what keeps people out first."""
    status = services.reporter.status()
    said = []
    if services.release.in_force:
        said.append(f"the device is released {_until(services.release.until_ms)}")
    said += [f"{c.name} is paused {_until(c.paused_until_ms)}" for c in status.classes if c.paused]
    limited = f", limited by {status.gate.limited_by.value}" if status.gate.limited_by else ""
    said.append(f"{status.gate.in_flight} running, {status.gate.queued} waiting{limited}")
    return "; ".join(said)


def _until(until_ms: int | None) -> str:
    if until_ms is None:
        return "until it is ended by hand"
    local = datetime.fromtimestamp(until_ms / 1000).astimezone()
    return f"until {local:%Y-%m-%d %H:%M:%S %Z}"


def _totals(services: Services) -> dict[Outcome, int]:
    return {
        outcome: sum(account.outcomes[outcome] for account in services.accounts.classes.values())
        for outcome in Outcome
    }
