"""The one place where a permit is granted and released.

`async with gate.admit(spec, on_abort) as permit:` waits for the grant and gives the permit back on
every way out. Release is synchronous and cannot be interrupted. The ways out, each with a test:

refused at the door · expired waiting · displaced · cancelled waiting · connection lost waiting ·
grant and cancel in the same loop turn · engine refuses · engine dies before the first token ·
engine dies mid-stream · malformed engine bytes · slow reader · deadline mid-stream · client gone
mid-stream · preempted, then client gone · preempted, then finished in the same step · lease
settled · drain · safety timeout · any BaseException

After each: the ledger is conserved, one outcome is counted, and the seat is either free or
quarantined until the engine confirms.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from onegate import clock
from onegate.admission import effects, events
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolSpec,
    Refusal,
    RequestSpec,
    Standing,
    Verdict,
    View,
)
from onegate.server.progress import Progress

# A timer that fires early would only tick again at once, so it is set this much late.
TIMER_SLACK_NS = 1_000_000


class NotAdmitted(Exception):
    """No permit: refused at the door, or (`queued`) expired or drained away while waiting."""

    def __init__(self, refusal: Refusal, *, queued: bool) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.queued = queued


class Permit:
    """The right to occupy the engine, from grant to settle. Made by `Gate.admit` only."""

    def __init__(
        self, gate: "Gate", spec: RequestSpec, on_abort: Callable[[Refusal], None]
    ) -> None:
        self._gate = gate
        self.spec = spec
        self.on_abort = on_abort
        self.arrived_ns = spec.arrived_ns
        self.granted_ns: int | None = None
        self._grant: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held = False
        self._seat: int | None = None
        self._vacant = asyncio.Event()
        self._output_tok = 0
        self.seat_lost = False
        self.predicted_ns: int | None = None
        # Asked to make room; whoever runs the request stops it and calls `requeue`, or finishes.
        self.preempted = False
        self.on_preempt: Callable[[], None] | None = None

    def _granted(self, now_ns: int) -> None:
        self._held = True
        self.granted_ns = now_ns
        # A waiter that was cancelled in this very turn sees only the cancellation; `_held` is what
        # tells it that there is a grant to give back.
        if not self._grant.done():
            self._grant.set_result(None)

    def _preempt(self) -> None:
        self.preempted = True
        if self.on_preempt is not None:
            self.on_preempt()

    def _refused(self, refusal: Refusal, *, queued: bool) -> None:
        if not self._grant.done():
            self._grant.set_exception(NotAdmitted(refusal, queued=queued))

    def occupy(self) -> int:
        """The request goes to the engine: returns the id under which the engine will know it.

        From here on the seat is the engine's to free.
        """
        assert self._held
        assert self._seat is None
        self._seat = self._gate._open_seat(self)
        self._vacant.clear()
        self.seat_lost = False
        return self._seat

    def vacate(self) -> None:
        """The request never came to the engine after all: the seat is ours again."""
        self._gate._forget_seat(self)

    # An aborted request may have items left that its reader takes before it notices; a permit that
    # has gone back says nothing more to the core.

    def counted(self, prompt_tok: int, cached_tok: int) -> None:
        """The engine has counted the prompt, and has `cached_tok` of what it is given computed."""
        if self._held:
            self._gate._apply(events.Counted(self.spec.rid, prompt_tok, cached_tok))

    def prefilled(self, prefilled_tok: int) -> None:
        """So many prompt tokens are computed (cumulative)."""
        if self._held:
            self._gate._apply(events.Prefilled(self.spec.rid, prefilled_tok))

    def produced(self, output_tok: int) -> None:
        """So many output tokens exist (cumulative)."""
        if self._held:
            self._output_tok = output_tok
            self._gate._apply(events.Produced(self.spec.rid, output_tok))

    def settle(self, *, finished: bool) -> None:
        """Give the permit back, once. The seat stays charged until the engine frees it."""
        if not self._held:
            return
        self._held = False
        self._gate._permits.pop(self.spec.rid, None)
        self._gate._apply(events.Settled(self.spec.rid, self._output_tok, finished))
        if self._seat is None:
            self._gate._apply(events.SeatFreed(self.spec.rid))

    async def seat_vacant(self) -> None:
        """Wait until the engine has confirmed that nothing of this request runs in its seat."""
        if self._seat is not None:
            await self._vacant.wait()

    async def requeue(self, kept_tok: int = 0) -> None:
        """Wait again at the old place, with `kept_tok` tokens of output to go on from.

        The engine lost this request and nobody has seen output of it, or it was `preempted`, and
        its seat is vacant. Raises `NotAdmitted` when the new wait ends without a grant; the permit
        is gone then.
        """
        assert self._held
        self._held = self.preempted = False
        self._gate._forget_seat(self)
        self._grant = asyncio.get_running_loop().create_future()
        self._gate._waiting[self.spec.rid] = self
        self._gate._permits.pop(self.spec.rid, None)
        self._gate._apply(events.Requeued(self.spec.rid, kept_tok))
        await self._gate._wait(self, None)


class Gate:
    """The shell's only door to the admission core."""

    def __init__(
        self,
        limits: GateLimits,
        classes: tuple[ClassSpec, ...],
        pools: tuple[PoolSpec, ...],
        on_load: Callable[[str], None],
        on_step: Callable[[int, events.Event, list[effects.Effect]], None] | None = None,
    ) -> None:
        self._core = Controller(limits, classes, pools)
        self._on_load = on_load
        self._on_step = on_step
        self._waiting: dict[int, Permit] = {}
        self._permits: dict[int, Permit] = {}
        self._seats: dict[int, Permit] = {}
        self._progress = Progress()
        self._next_seat = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns: int | None = None

    @asynccontextmanager
    async def admit(
        self,
        spec: RequestSpec,
        on_abort: Callable[[Refusal], None],
        on_waiting: Callable[[Standing], None] | None = None,
    ) -> AsyncIterator[Permit]:
        """Wait for a permit and hold it for the body.

        `on_abort(refusal)` is called on the loop when the permit runs out of time while held; the
        permit goes back in the same moment, whatever the body still does.
        `on_waiting(standing)` is called at once when the request has to wait and about every
        second after that; what it raises ends the wait. Raises `NotAdmitted`.
        """
        permit = Permit(self, spec, on_abort)
        self._waiting[spec.rid] = permit
        self._apply(events.Arrived(spec))
        await self._wait(permit, on_waiting)
        try:
            yield permit
        finally:
            permit.settle(finished=False)

    async def _wait(self, permit: Permit, on_waiting: Callable[[Standing], None] | None) -> None:
        rid = permit.spec.rid
        try:
            if on_waiting is not None and not permit._grant.done():
                self._tell(permit, on_waiting)
                self._progress.add(rid, lambda: self._tell(permit, on_waiting))
            await permit._grant
        except BaseException:
            # Cancelled while waiting, or in the same turn as the grant: whichever the core knows
            # of is given back here, because nobody else ever saw it.
            if permit._grant.done() and not permit._grant.cancelled():
                permit._grant.exception()  # or the loop reports an answer nobody took
            if permit._held:
                permit.settle(finished=False)
            elif self._waiting.pop(rid, None) is not None:
                self._apply(events.Withdrawn(rid))
            raise
        finally:
            self._progress.remove(rid)

    def _tell(self, permit: Permit, on_waiting: Callable[[Standing], None]) -> None:
        standing = self.standing(permit.spec.rid)
        if standing is None or permit._grant.done():
            return
        try:
            on_waiting(standing)
        except Exception as error:  # whatever it is, it is that request's alone
            permit._grant.set_exception(error)

    # --- what the engine says -----------------------------------------------------------------

    def _open_seat(self, permit: Permit) -> int:
        self._next_seat += 1
        self._seats[self._next_seat] = permit
        return self._next_seat

    def _forget_seat(self, permit: Permit) -> None:
        if permit._seat is not None:
            self._seats.pop(permit._seat, None)
            permit._seat = None

    def seat_freed(self, seat: int) -> None:
        """The engine confirms that nothing runs in this seat any more. Unknown seats are ignored:
        an engine that was lost may still confirm late."""
        permit = self._seats.pop(seat, None)
        if permit is not None:
            permit._vacant.set()
            self._apply(events.SeatFreed(permit.spec.rid))

    def engine_lost(self, seats: list[int]) -> None:
        """The engine died with these seats; whoever was in them reads `Permit.seat_lost`."""
        for seat in seats:
            permit = self._seats.get(seat)
            if permit is not None:
                permit.seat_lost = True
                self.seat_freed(seat)

    def pool_changed(self, pool: PoolSpec) -> None:
        """A pool is new, or its state or capacity is now this."""
        self._apply(events.PoolChanged(pool))

    # --- what administrators and the lifecycle say ----------------------------------------------

    def close_class(self, class_: str, until_ns: int | None) -> None:
        """Take nothing new of this class until then, or until it is opened."""
        self._apply(events.ClassClosed(class_, until_ns))

    def open_class(self, class_: str) -> None:
        """Open a closed class."""
        self._apply(events.ClassOpened(class_))

    def change_limits(self, limits: GateLimits, classes: tuple[ClassSpec, ...]) -> None:
        """New limits from a reload."""
        self._apply(events.LimitsChanged(limits, classes))

    def drain(self) -> None:
        """Refuse what comes, and what waits and has not been in the engine; the rest is left to its
        owner."""
        self._apply(events.DrainStarted())

    # --- questions ------------------------------------------------------------------------------

    def holds(self, rid: int) -> bool:
        """Has this request a permit?"""
        return rid in self._permits

    def wants(self, model: str) -> bool:
        """Does anybody wait for this pool, or hold a permit for it?"""
        inside = (*self._waiting.values(), *self._permits.values(), *self._seats.values())
        return any(permit.spec.pool == model for permit in inside)

    def stops(self, rid: int) -> bool:
        """Is it asked to make room, and will wait again?"""
        permit = self._permits.get(rid)
        return permit is not None and permit.preempted

    def standing(self, rid: int) -> Standing | None:
        """Where a waiting request stands."""
        return self._core.standing(rid, clock.monotonic_ns())

    def ask(
        self, *, pool: str, class_: str, principal: str, prompt_tok: int, max_tok: int
    ) -> Verdict:
        """What would happen to such a request now."""
        return self._core.ask(
            pool=pool,
            class_=class_,
            principal=principal,
            prompt_tok=prompt_tok,
            max_tok=max_tok,
            now_ns=clock.monotonic_ns(),
        )

    def view(self) -> View:
        """The core's figures."""
        return self._core.view(clock.monotonic_ns())

    def validate(self) -> None:
        """Check the core's invariants, and that gate and core agree on who is inside."""
        self._core.validate()
        view = self._core.view(clock.monotonic_ns())
        assert view.in_flight == len(self._permits), (view.in_flight, len(self._permits))
        assert view.queued == len(self._waiting), (view.queued, len(self._waiting))

    # --- the only call into the core --------------------------------------------------------------

    def _apply(self, event: events.Event) -> None:
        now_ns = clock.monotonic_ns()
        aborted = []
        made = self._core.handle(event, now_ns)
        if self._on_step is not None:
            self._on_step(now_ns, event, made)
        for effect in made:
            match effect:
                case effects.Grant(rid):
                    permit = self._waiting.pop(rid)
                    self._permits[rid] = permit
                    permit._granted(now_ns)
                case effects.Refuse(rid, refusal, queued):
                    self._waiting.pop(rid)._refused(refusal, queued=queued)
                case effects.Abort(rid, refusal):
                    permit = self._permits[rid]
                    permit.on_abort(refusal)
                    aborted.append(permit)
                case effects.LoadPool(model):
                    self._on_load(model)
                case effects.Preempt(rid):
                    self._permits[rid]._preempt()
                case effects.Queue(rid, predicted_ns):
                    self._waiting[rid].predicted_ns = predicted_ns
        self._arm()
        # Only now: what the core makes of it must not overtake what it has said already.
        for permit in aborted:
            permit.settle(finished=False)

    def _arm(self) -> None:
        wake_ns = self._core.next_wake_ns()
        if wake_ns == self._timer_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ns = None, wake_ns
        if wake_ns is not None:
            delay_s = max(0, wake_ns - clock.monotonic_ns() + TIMER_SLACK_NS) / 1e9
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_ns = None
        self._apply(events.Tick())

    def close(self) -> None:
        """Stop the timers; nothing is granted, expired or told after this."""
        self._progress.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._timer_ns = None
