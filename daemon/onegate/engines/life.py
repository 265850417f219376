"""One engine host from its start to its end."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    EngineBroke,
    EngineMalformed,
    EngineSnapshot,
    PoolInfo,
    PoolState,
)
from onegate.engines.calls import Calls
from onegate.engines.child import Child
from onegate.engines.host.wire import (
    WIRE,
    AcceptedMsg,
    Attach,
    CallDone,
    CallFailed,
    CountResult,
    EmbedResultMsg,
    Exit,
    FromHost,
    Heartbeat,
    HostHello,
    PoolUpdate,
    RefusedMsg,
    Step,
    ToHost,
)
from onegate.engines.link import Link
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule

# An interpreter that starts on a busy machine, from a cold disk.
_HELLO_S = 60.0
# How long an exit code may take to appear behind the end of the connection.
_EXIT_CODE_S = 0.5
_NS_PER_S = 1_000_000_000


class HostLife:
    """A child process, the link to it, and everything that was asked of it.

    `on_pool` gets every pool as the host describes it.
    """

    def __init__(
        self,
        child: Child,
        seats: Seats,
        rule: StallRule,
        *,
        kind: str,
        on_pool: Callable[[PoolInfo], None],
    ) -> None:
        self.seats = seats
        self.calls = Calls(self.send)
        self.snapshots: dict[str, tuple[EngineSnapshot, int]] = {}
        self.was_ready = False
        self._child = child
        self._rule = rule
        self._kind = kind
        self._on_pool = on_pool
        self._link = Link(self.hear)
        self._greeted = False
        self._states: dict[str, PoolState] = {}
        self._steps = 0

    @property
    def attached(self) -> bool:
        """Whether the host has introduced itself and is still there."""
        return self._greeted and not self._link.lost.done()

    def send(self, message: ToHost) -> None:
        """Queue a message to the host."""
        self._link.send(message)

    async def run(self, table: dict[str, Any], *, tick_s: float) -> EngineBroke:
        """Attach, and watch until the host is lost; returns why. Nothing of it runs after that,
        though its processes may still be ending: see `gone`."""
        loop = asyncio.get_running_loop()
        began_ns = monotonic_ns()
        try:
            await self._child.follow_output()
            await loop.create_unix_connection(lambda: self._link, sock=self._child.sock)
            self.send(Attach(wire=WIRE, daemon_pid=os.getpid(), engine=table))
            while not self._link.lost.done():
                await asyncio.wait([self._link.lost], timeout=tick_s)
                if self._link.lost.done():
                    break
                now_ns = monotonic_ns()
                if not self._greeted and now_ns - began_ns > _HELLO_S * _NS_PER_S:
                    return EngineBroke(f"the engine host has said nothing for {_HELLO_S:.0f} s")
                if (why := self._rule.stalled(now_ns, loading=not self._is_ready())) is not None:
                    return EngineBroke(f"the engine stalled: {why}")
                if self._child.exit_text() is not None:
                    break  # its children may hold the connection open
            return self._link_error() or await self._end_of_child()
        finally:
            self._child.kill()
            self._link.abort()

    async def gone(self) -> None:
        """Wait until nothing of the host's process group exists."""
        await self._child.gone()

    def leave(self) -> None:
        """Ask the host to end; its connection ends with it."""
        self.send(Exit())

    def kill(self) -> None:
        """End the host's whole process group at once."""
        self._child.kill()

    def _link_error(self) -> EngineMalformed | None:
        return self._link.lost.result() if self._link.lost.done() else None

    async def _end_of_child(self) -> EngineBroke:
        await self._child.exited(_EXIT_CODE_S)
        text = self._child.exit_text() or "has closed its connection"
        # Once requests have been inside, what an engine wrote may quote one, and the reason of a
        # loss is told to others. Until then it is the best explanation there is.
        last = "" if self.was_ready or not self._child.lines.last else f": {self._child.lines.last}"
        return EngineBroke(f"the engine host {text}{last}")

    def _is_ready(self) -> bool:
        return PoolState.READY in self._states.values()

    def hear(self, message: FromHost) -> None:
        """What the host says; raises EngineMalformed where it makes no sense."""
        if self._greeted is isinstance(message, HostHello):
            raise EngineMalformed("the engine host did not introduce itself first, and once")
        self._rule.heard(monotonic_ns(), self._steps)
        match message:
            case HostHello():
                self._hello(message)
            case PoolUpdate(pool=pool):
                self._pool(pool)
            case AcceptedMsg():
                self.seats.accepted(message)
            case RefusedMsg():
                self.seats.refused(message)
            case Step():
                self._step(message)
            case Heartbeat(steps=steps):
                self._rule.heard(monotonic_ns(), steps)
            case CountResult() | EmbedResultMsg() | CallDone() | CallFailed():
                self.calls.answered(message)

    def _hello(self, message: HostHello) -> None:
        if message.wire != WIRE:
            raise EngineMalformed(
                f"the engine host speaks wire {message.wire}, this daemon {WIRE}: "
                "install the same version of onegate for both (engine.python)"
            )
        if message.kind != self._kind or not message.pools:
            raise EngineMalformed(f"the engine host is not of kind {self._kind}")
        self._greeted = True
        for pool in message.pools:
            self._pool(pool)

    def _pool(self, pool: PoolInfo) -> None:
        self._states[pool.model] = pool.state
        self.was_ready = self.was_ready or pool.state is PoolState.READY
        self._on_pool(pool)

    def _step(self, message: Step) -> None:
        now_ns = monotonic_ns()
        self._steps = message.n
        self._rule.heard(now_ns, message.n)
        if message.snapshot is not None:
            self.snapshots[message.snapshot.model] = (message.snapshot, now_ns)
        self.seats.step(message)
