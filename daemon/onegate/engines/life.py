"""One engine host from its start to its end."""

import asyncio
import os
from collections.abc import Callable, Sequence
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
from onegate.engines.connection import Connection
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
    UnloadCall,
)
from onegate.engines.link import Link
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule

# Longer than any host takes that has nothing else to do.
_UNUSUAL_S = 60.0
# How long an exit code may take to appear behind the end of the connection.
_EXIT_CODE_S = 0.5
_NS_PER_S = 1_000_000_000


class HostLife:
    """A connected host, the link to it, and everything that was asked of it.

    `on_pool` gets every pool as the host describes it; `on_silence` is called once for a host that
    takes unusually long to introduce itself.
    """

    def __init__(
        self,
        connection: Connection,
        seats: Seats,
        rule: StallRule,
        *,
        kind: str,
        on_pool: Callable[[PoolInfo], None],
        on_silence: Callable[[str], None],
    ) -> None:
        self.seats = seats
        self.calls = Calls(self.send)
        self.snapshots: dict[str, tuple[EngineSnapshot, int]] = {}
        self.was_ready = False
        self._connection = connection
        self._rule = rule
        self._kind = kind
        self._on_pool = on_pool
        self._on_silence = on_silence
        self._link = Link(self.hear)
        self._greeted = False
        self._said_silent = False
        self._states: dict[str, PoolState] = {}
        self._steps = 0

    @property
    def attached(self) -> bool:
        """Whether the host has introduced itself and is still there."""
        return self._greeted and not self._link.lost.done()

    def send(self, message: ToHost) -> None:
        """Queue a message to the host. Raises EngineRefused for one that is too long for it."""
        self._link.send(message)

    @property
    def is_ours(self) -> bool:
        """Whether the host was started here, and is ours to end."""
        return self._connection.is_ours

    async def run(
        self, table: dict[str, Any], *, tick_s: float, cold: Sequence[str] = ()
    ) -> EngineBroke:
        """Attach, and watch until the host is lost; returns why. Nothing of it runs after that,
        though its processes may still be ending: see `gone`. The pools `cold` are not to be loaded.
        """
        loop = asyncio.get_running_loop()
        began_ns = monotonic_ns()
        try:
            await self._connection.follow_output()
            await loop.create_unix_connection(lambda: self._link, sock=self._connection.sock)
            self.send(Attach(wire=WIRE, daemon_pid=os.getpid(), engine=table))
            # Right behind it, so that the host knows before its first step, which is the load.
            for model in cold:
                self.calls.tell(UnloadCall(call=self.calls.next(), model=model))
            while not self._link.lost.done():
                await asyncio.wait([self._link.lost], timeout=tick_s)
                if self._link.lost.done():
                    break
                now_ns = monotonic_ns()
                if not self._greeted and (why := self._silent(now_ns - began_ns)) is not None:
                    return EngineBroke(why)
                if (why := self._rule.stalled(now_ns, loading=not self._is_ready())) is not None:
                    return EngineBroke(f"the engine stalled: {why}")
                if self._connection.exit_text() is not None:
                    break  # its children may hold the connection open
            return self._link_error() or await self._end_of_host()
        finally:
            self.kill()

    def _silent(self, silence_ns: int) -> str | None:
        if silence_ns > self._connection.hello_s * _NS_PER_S:
            return f"the engine host has said nothing for {self._connection.hello_s:.0f} s"
        if silence_ns > _UNUSUAL_S * _NS_PER_S and not self._said_silent:
            self._said_silent = True
            self._on_silence(
                "the engine host took the connection and does not answer: it is loading a model, "
                "serves another daemon, or hangs"
            )
        return None

    async def gone(self) -> None:
        """Wait until nothing of a host that is ours exists."""
        await self._connection.gone()

    def leave(self) -> None:
        """Ask the host to end; its connection ends with it."""
        self.send(Exit())

    def kill(self) -> None:
        """End the connection at once, and with it a host that is ours."""
        self._connection.kill()
        self._link.abort()

    def _link_error(self) -> EngineMalformed | None:
        return self._link.lost.result() if self._link.lost.done() else None

    async def _end_of_host(self) -> EngineBroke:
        await self._connection.exited(_EXIT_CODE_S)
        text = self._connection.exit_text() or "has closed its connection"
        # Once requests have been inside, what an engine wrote may quote one, and the reason of a
        # loss is told to others. Until then it is the best explanation there is.
        last = "" if self.was_ready else self._connection.last_line
        return EngineBroke(f"the engine host {text}" + (f": {last}" if last else ""))

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
            mend = (
                "install the same version of onegate for both (engine.python)"
                if self.is_ours
                else "it leaves, so that its service starts the version that is installed"
            )
            raise EngineMalformed(
                f"the engine host speaks wire {message.wire}, this daemon {WIRE}: {mend}"
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
