"""The gate by itself: grants, waits, seats and time. What becomes of a request in every way out is
in test_ways_out_waiting.py and test_ways_out_running.py."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from onegate import clock
from onegate.admission import effects, events
from onegate.admission.model import (
    Binding,
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refusal,
    Refused,
    RequestSpec,
    Reservation,
    Resume,
    Standing,
)
from onegate.server import progress as progress_module
from onegate.server.gate import Gate, NotAdmitted, Permit
from onegate.tasks import Tasks

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
LIMITS = GateLimits(
    max_in_flight=2,
    max_queued_tok=1000,
    max_queued_requests=8,
    look_ahead=0,
    floor_window_ns=30 * SECOND,
    floor_quantum_tok=256,
)
CLASSES = (
    ClassSpec("high", 0, 500, 1.0, 900 * SECOND),
    ClassSpec("low", 1, 500, 1.0, 900 * SECOND),
)
POOL = PoolSpec("tiny", PoolState.READY, PoolCapacity(1, 1000, Reservation.PER_SLOT))


def spec(rid: int, **fields: Any) -> RequestSpec:
    plain = {
        "pool": "tiny",
        "class_": "high",
        "principal": "uid:1",
        "flow": "f",
        "prompt_tok": 10,
        "max_tok": 10,
        "arrived_ns": clock.monotonic_ns(),
    }
    return RequestSpec(rid=rid, **(plain | fields))


class Holder:
    """A request in a task of its own that keeps its permit until it is told to let go."""

    def __init__(self, gate: Gate, tasks: Tasks, spec: RequestSpec) -> None:
        self.permit: Permit | None = None
        self.aborted: list[Refusal] = []
        self.waits: list[Standing] = []
        self.error: BaseException | None = None
        self.let_go = asyncio.Event()
        self._gate = gate
        self.task = tasks.spawn(self._hold(spec), name="holder")

    async def _hold(self, spec: RequestSpec) -> None:
        try:
            async with self._gate.admit(spec, self.aborted.append, self.waits.append) as permit:
                self.permit = permit
                await self.let_go.wait()
        except NotAdmitted as error:
            self.error = error


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    def fail(name: str, error: BaseException) -> None:
        raise error

    tasks = Tasks(fail)
    yield tasks
    await tasks.aclose()


@pytest.fixture
async def gate(tasks: Tasks) -> AsyncIterator[Gate]:
    gate = Gate(LIMITS, CLASSES, (POOL,), on_load=lambda model: None)
    yield gate
    await tasks.aclose()
    gate.close()
    gate.validate()
    assert gate.view().in_flight == 0


@pytest.fixture
def hold(gate: Gate, tasks: Tasks) -> Callable[..., Holder]:
    def make(rid: int, **fields: Any) -> Holder:
        return Holder(gate, tasks, spec(rid, **fields))

    return make


@pytest.fixture
def skip(monkeypatch: pytest.MonkeyPatch) -> Callable[[Gate], None]:
    """Moves the clock on by an hour and lets the core see it."""

    def hour_later(gate: Gate) -> None:
        now_ns = clock.monotonic_ns
        monkeypatch.setattr(clock, "monotonic_ns", lambda: now_ns() + HOUR)
        gate.open_class("low")

    return hour_later


@asynccontextmanager
async def admitted(gate: Gate, rid: int, **fields: Any) -> AsyncIterator[Permit]:
    async with gate.admit(spec(rid, **fields), lambda refusal: None) as permit:
        yield permit


async def turns(n: int = 10) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool], factor: float) -> None:
    async with asyncio.timeout(10 * factor):
        while not condition():
            await turns(1)


async def test_a_permit_is_granted_at_once_where_there_is_room(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        assert permit.granted_ns is not None
        assert permit.granted_ns >= permit.arrived_ns
        gate.validate()
        assert gate.view().in_flight == 1
    assert gate.view().in_flight == 0


async def test_a_permit_that_never_came_to_the_engine_leaves_its_seat_free(gate: Gate) -> None:
    async with admitted(gate, 1):
        assert gate.view().pools[0].seats_used == 1
    assert gate.view().pools[0].seats_used == 0


async def test_a_seat_outlives_its_permit(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        seat = permit.occupy()
    assert gate.view().in_flight == 0
    assert gate.view().pools[0].seats_quarantined == 1
    gate.seat_freed(seat)
    assert gate.view().pools[0].seats_used == 0


async def test_a_seat_that_is_freed_twice_is_freed_once(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        seat = permit.occupy()
        gate.seat_freed(seat)
        gate.seat_freed(seat)
        gate.engine_lost([seat])
        assert not permit.seat_lost
    gate.seat_freed(seat)
    gate.seat_freed(4711)
    gate.engine_lost([4711])
    gate.validate()


async def test_a_seat_that_was_never_used_is_given_back(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        seat = permit.occupy()
        permit.vacate()
    assert gate.view().pools[0].seats_used == 0
    gate.seat_freed(seat)
    gate.validate()


async def test_seats_never_share_a_number(gate: Gate) -> None:
    seats = []
    for rid in (1, 2, 3):
        async with admitted(gate, rid) as permit:
            seats.append(permit.occupy())
        gate.seat_freed(seats[-1])
    assert len(set(seats)) == 3


async def test_settling_twice_is_settling_once(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        permit.settle(finished=True)
        permit.settle(finished=False)
        assert gate.view().in_flight == 0
        permit.counted(5, 5)
        permit.prefilled(5)
        permit.produced(5)
        gate.validate()


async def test_what_a_permit_tells_reaches_the_core(make_box: Any) -> None:
    grow = replace(POOL, capacity=replace(POOL.capacity, reservation=Reservation.GROW, kv_tok=900))
    gate = Gate(LIMITS, CLASSES, (grow,), on_load=lambda model: None)
    async with admitted(gate, 1) as permit:
        assert gate.view().pools[0].unprefilled_tok == 10
        permit.counted(30, 0)
        assert gate.view().pools[0].kv_tok_used == 40
        permit.counted(30, 12)
        assert gate.view().pools[0].unprefilled_tok == 18
        permit.prefilled(20)
        assert gate.view().pools[0].unprefilled_tok == 10
        permit.produced(1)
        assert gate.view().pools[0].unprefilled_tok == 0
    gate.close()


async def test_refused_at_the_door(gate: Gate) -> None:
    with pytest.raises(NotAdmitted) as refused:
        async with admitted(gate, 1, prompt_tok=5000):
            raise AssertionError("admitted")
    assert refused.value.refusal.reason is Refused.TOO_LARGE
    assert not refused.value.queued
    assert str(refused.value) == refused.value.refusal.message


async def test_who_waits_is_granted_in_order(gate: Gate, hold: Callable[..., Holder]) -> None:
    first, second, third = hold(1), hold(2), hold(3)
    await turns()
    assert first.permit is not None
    assert second.permit is third.permit is None
    first.let_go.set()
    await turns()
    assert second.permit is not None
    assert third.permit is None
    second.let_go.set()
    await turns()
    assert third.permit is not None


async def test_whoever_waits_hears_about_it_again(
    gate: Gate,
    hold: Callable[..., Holder],
    monkeypatch: pytest.MonkeyPatch,
    timeout_factor: float,
) -> None:
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.0)
    hold(1)
    await turns()
    waiting = hold(2, class_="low")
    await until(lambda: len(waiting.waits) > 3, timeout_factor)
    assert waiting.waits[0].position == 1
    assert waiting.waits[0].limited_by is Binding.SEATS
    assert gate.standing(2) is not None
    assert gate.standing(1) is None


async def test_whoever_is_granted_at_once_hears_nothing(
    gate: Gate, hold: Callable[..., Holder]
) -> None:
    first = hold(1)
    await turns()
    assert first.permit is not None
    assert first.waits == []


async def test_time_runs_out_without_anybody_asking(
    gate: Gate, hold: Callable[..., Holder], timeout_factor: float
) -> None:
    hold(1)
    await turns()
    soon_ns = clock.monotonic_ns() + 2_000_000
    waiting = hold(2, ttft_deadline_ns=soon_ns, ttft_is_own=True)
    later = hold(3, ttft_deadline_ns=soon_ns + 2_000_000, ttft_is_own=True)
    await until(lambda: waiting.error is not None and later.error is not None, timeout_factor)
    assert isinstance(waiting.error, NotAdmitted)
    assert waiting.error.refusal.reason is Refused.TTFT_DEADLINE_EXCEEDED


async def test_an_earlier_deadline_moves_the_timer_forward(
    gate: Gate, hold: Callable[..., Holder], timeout_factor: float
) -> None:
    hold(1, deadline_ns=clock.monotonic_ns() + HOUR)
    await turns()
    waiting = hold(2, deadline_ns=clock.monotonic_ns() + 2_000_000)
    await until(lambda: waiting.error is not None, timeout_factor)


async def test_a_closed_gate_has_no_timer(gate: Gate, hold: Callable[..., Holder]) -> None:
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    class Watched:
        def call_later(self, *args: Any) -> asyncio.TimerHandle:
            timers.append(call_later(*args))
            return timers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "get_running_loop", Watched)
        gate.pool_changed(POOL)
        gate.close_class("low", clock.monotonic_ns() + HOUR)
        gate._progress.add(1, lambda: None)
    assert [timer.cancelled() for timer in timers] == [False, False]
    gate.close()
    assert [timer.cancelled() for timer in timers] == [True, True]


async def test_an_aborted_permit_goes_back_in_the_same_moment(
    gate: Gate, hold: Callable[..., Holder], skip: Callable[[Gate], None]
) -> None:
    stubborn = hold(1, deadline_ns=clock.monotonic_ns() + HOUR // 10)
    await turns()
    waiting = hold(2)
    await turns()
    skip(gate)
    gate.validate()
    assert stubborn.aborted[0].reason is Refused.DEADLINE_EXCEEDED
    assert not stubborn.task.done()
    await turns()
    assert waiting.permit is not None  # nothing of the first one had come to the engine


async def test_several_permits_run_out_in_one_moment(
    tasks: Tasks, skip: Callable[[Gate], None]
) -> None:
    limits = replace(LIMITS, max_in_flight=8)
    pool = replace(POOL, capacity=replace(POOL.capacity, max_seqs=3))
    gate = Gate(limits, CLASSES, (pool,), on_load=lambda model: None)
    at_ns = clock.monotonic_ns() + HOUR // 10
    running = [Holder(gate, tasks, spec(rid, deadline_ns=at_ns)) for rid in (1, 2, 3)]
    await turns()
    waiting = [Holder(gate, tasks, spec(rid)) for rid in (4, 5, 6)]
    await turns()
    skip(gate)
    gate.validate()
    assert [len(holder.aborted) for holder in running] == [1, 1, 1]
    assert gate.view().in_flight == 3
    await turns()
    assert all(holder.permit for holder in waiting)
    await tasks.aclose()
    gate.validate()
    gate.close()


async def test_a_request_waits_again_at_its_old_place(
    gate: Gate, hold: Callable[..., Holder]
) -> None:
    async with admitted(gate, 1) as permit:
        seat = permit.occupy()
        behind = hold(2)
        await turns()
        gate.pool_changed(replace(POOL, state=PoolState.LOADING))
        gate.engine_lost([seat])
        assert permit.seat_lost
        gate.validate()
        requeue = asyncio.get_running_loop().create_future()
        await _requeued_before(gate, permit, behind, requeue)
        assert permit.occupy() != seat
        assert not permit.seat_lost


async def test_what_was_waiting_for_a_lost_seat_hears_of_it(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        await permit.seat_vacant()  # it has none yet
        seat = permit.occupy()
        asyncio.get_running_loop().call_soon(gate.engine_lost, [seat])
        await permit.seat_vacant()
        assert permit.seat_lost


async def _requeued_before(
    gate: Gate, permit: Permit, behind: Holder, done: "asyncio.Future[None]"
) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(gate.pool_changed, POOL)  # the engine is back in the next turn
    await permit.requeue()
    gate.validate()
    assert behind.permit is None
    done.set_result(None)


async def test_a_class_is_closed_and_opened(gate: Gate, hold: Callable[..., Holder]) -> None:
    gate.close_class("low", None)
    refused = hold(1, class_="low")
    await turns()
    assert isinstance(refused.error, NotAdmitted)
    assert refused.error.refusal.reason is Refused.PAUSED
    gate.open_class("low")
    granted = hold(2, class_="low")
    await turns()
    assert granted.permit is not None


async def test_a_cold_pool_is_asked_for(tasks: Tasks) -> None:
    asked: list[str] = []
    gate = Gate(LIMITS, CLASSES, (replace(POOL, state=PoolState.COLD),), on_load=asked.append)
    holder = Holder(gate, tasks, spec(1))
    await turns()
    assert asked == ["tiny"]
    gate.pool_changed(POOL)
    await turns()
    assert holder.permit is not None
    await tasks.aclose()
    gate.close()


async def test_new_limits_hold_at_once(gate: Gate, hold: Callable[..., Holder]) -> None:
    gate.pool_changed(replace(POOL, capacity=replace(POOL.capacity, max_seqs=9)))
    holders = [hold(rid) for rid in (1, 2, 3)]
    await turns()
    assert [holder.permit is not None for holder in holders] == [True, True, False]
    gate.change_limits(replace(LIMITS, max_in_flight=3), CLASSES)
    await turns()
    assert holders[2].permit is not None


# --- making room ----------------------------------------------------------------------------------


PREEMPTING = (
    replace(CLASSES[0], preempts=True),
    replace(CLASSES[1], preemptible=True),
)


@pytest.fixture
def strict(gate: Gate) -> Gate:
    """High ones have low ones stopped."""
    gate.change_limits(LIMITS, PREEMPTING)
    return gate


def low(rid: int, **fields: Any) -> RequestSpec:
    return spec(rid, **({"class_": "low", "resume": Resume.EXACT} | fields))


class Stoppable:
    """A low request that is in the engine, and goes back into the queue when it is told to stop."""

    def __init__(self, gate: Gate, tasks: Tasks, spec: RequestSpec) -> None:
        self.permit: Permit | None = None
        self.seats: list[int] = []
        self.aborted: list[Refusal] = []
        self.stops = 0
        self.error: BaseException | None = None
        self.stopped = asyncio.Event()
        self.finish = asyncio.Event()
        self.kept_tok = 0
        self._gate = gate
        self.task = tasks.spawn(self._run(spec), name="stoppable")

    def _stop(self) -> None:
        self.stops += 1

    async def _run(self, spec: RequestSpec) -> None:
        try:
            async with self._gate.admit(spec, self.aborted.append) as permit:
                self.permit = permit
                while True:
                    self.seats.append(permit.occupy())
                    permit.on_preempt = self._stop
                    await self.stopped.wait()
                    if self.finish.is_set():
                        permit.settle(finished=True)
                        return
                    self.stopped.clear()
                    await permit.seat_vacant()
                    await permit.requeue(self.kept_tok)
        except NotAdmitted as error:
            self.error = error


async def test_a_running_one_is_told_to_make_room_once(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    better, more = hold(2), hold(3)
    await turns()
    assert worse.stops == 1
    assert worse.permit is not None
    assert worse.permit.preempted
    assert better.permit is None
    worse.kept_tok = 4
    worse.permit.produced(4)
    worse.stopped.set()
    await turns()
    assert better.permit is None  # its seat is not free yet
    strict.validate()
    strict.seat_freed(worse.seats[0])
    await turns()
    assert better.permit is not None
    assert not worse.permit.preempted
    strict.validate()
    for holder in (better, more):
        holder.let_go.set()
        await turns()
    assert len(worse.seats) == 2
    strict.validate()
    # It goes on: what it has to compute first is its prompt and what it has said.
    assert strict.view().pools[0].unprefilled_tok == 14


@pytest.mark.parametrize("early", [True, False])
async def test_a_seat_is_vacant_before_or_after_the_word_that_it_stopped(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder], early: bool
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    better = hold(2)
    await turns()
    if early:
        strict.seat_freed(worse.seats[0])
        strict.validate()
        await turns()
        assert better.permit is not None
        assert strict.view().in_flight == 2  # the other is about to give its permit back
        worse.stopped.set()
    else:
        worse.stopped.set()
        await turns()
        strict.seat_freed(worse.seats[0])
    await turns()
    assert better.permit is not None
    assert (strict.view().in_flight, strict.view().queued) == (1, 1)
    strict.validate()


async def test_told_before_it_came_to_the_engine(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    first = hold(1)
    await turns()
    granted: list[Permit] = []

    async def worse() -> None:
        async with admitted(strict, 2, class_="low", resume=Resume.EXACT) as permit:
            granted.append(permit)
            assert permit.preempted
            await permit.seat_vacant()
            await permit.requeue()
            assert not permit.preempted
            permit.occupy()
            permit.vacate()

    waiting = tasks.spawn(worse(), name="worse")
    await turns()
    assert first.permit is not None
    first.permit.settle(finished=True)  # it is granted, and has not heard of it
    async with admitted(strict, 3):  # so that this one finds it on its way
        await turns()
        assert granted
        assert strict.view().queued == 1
        strict.validate()
    await turns()
    assert waiting.done()


async def test_finished_before_it_stopped(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    better = hold(2)
    await turns()
    assert worse.stops == 1
    worse.finish.set()
    worse.stopped.set()
    strict.seat_freed(worse.seats[0])
    await turns()
    assert worse.task.done()
    assert better.permit is not None
    assert (strict.view().in_flight, strict.view().queued) == (1, 0)
    strict.validate()


async def test_cancelled_while_it_is_being_stopped(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    better = hold(2)
    await turns()
    worse.task.cancel()
    await turns()
    strict.validate()
    assert better.permit is None
    assert strict.view().pools[0].seats_quarantined == 1
    strict.seat_freed(worse.seats[0])
    await turns()
    assert better.permit is not None


async def test_cancelled_while_it_waits_for_its_seat_to_be_vacant(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    better = hold(2)
    await turns()
    worse.stopped.set()
    await turns()
    worse.task.cancel()
    await turns()
    strict.validate()
    assert (strict.view().queued, strict.view().pools[0].seats_quarantined) == (1, 1)
    strict.seat_freed(worse.seats[0])
    await turns()
    assert better.permit is not None


async def test_cancelled_while_it_waits_again(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    hold(2)
    await turns()
    strict.seat_freed(worse.seats[0])
    worse.stopped.set()
    await turns()
    assert strict.view().queued == 1
    worse.task.cancel()
    await turns()
    assert strict.view().queued == 0
    strict.validate()


async def test_aborted_while_it_is_being_stopped(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder], skip: Callable[[Gate], None]
) -> None:
    worse = Stoppable(strict, tasks, low(1, deadline_ns=clock.monotonic_ns() + HOUR // 10))
    await turns()
    hold(2)
    await turns()
    skip(strict)
    assert [refusal.reason for refusal in worse.aborted] == [Refused.DEADLINE_EXCEEDED]
    strict.validate()
    assert strict.view().in_flight == 0
    worse.task.cancel()  # what its owner does then
    await turns()
    strict.seat_freed(worse.seats[0])
    strict.validate()


async def test_drained_while_it_is_being_stopped(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    hold(2)
    await turns()
    strict.drain()
    strict.seat_freed(worse.seats[0])
    worse.stopped.set()
    await turns()
    assert isinstance(worse.error, NotAdmitted)
    assert worse.error.refusal.reason is Refused.SHUTTING_DOWN
    assert worse.error.queued
    strict.validate()


async def test_drained_while_it_waits_again(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    hold(2)
    await turns()
    strict.seat_freed(worse.seats[0])
    worse.stopped.set()
    await turns()
    strict.drain()
    await turns()
    assert isinstance(worse.error, NotAdmitted)
    assert worse.error.refusal.reason is Refused.SHUTTING_DOWN
    strict.validate()


async def test_the_engine_is_lost_while_it_stops(
    strict: Gate, tasks: Tasks, hold: Callable[..., Holder]
) -> None:
    worse = Stoppable(strict, tasks, low(1))
    await turns()
    better = hold(2)
    await turns()
    strict.pool_changed(replace(POOL, state=PoolState.LOADING))
    strict.engine_lost(worse.seats)
    assert worse.permit is not None
    assert worse.permit.seat_lost
    worse.stopped.set()
    await turns()
    assert strict.view().queued == 2
    strict.validate()
    strict.pool_changed(POOL)
    await turns()
    assert better.permit is not None
    assert strict.view().queued == 1


async def test_whoever_waits_knows_what_was_predicted(
    gate: Gate, hold: Callable[..., Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = gate._core.handle

    def predicting(event: events.Event, now_ns: int) -> list[effects.Effect]:
        return [
            effects.Queue(effect.rid, 7_000) if isinstance(effect, effects.Queue) else effect
            for effect in handle(event, now_ns)
        ]

    monkeypatch.setattr(gate._core, "handle", predicting)
    first, second = hold(1), hold(2)
    await turns()
    first.let_go.set()
    await turns()
    assert first.permit is not None
    assert second.permit is not None
    assert (first.permit.predicted_ns, second.permit.predicted_ns) == (None, 7_000)


# --- and the rest ---------------------------------------------------------------------------------


async def test_a_question_changes_nothing(gate: Gate) -> None:
    verdict = gate.ask(pool="tiny", class_="high", principal="uid:1", prompt_tok=5, max_tok=5)
    assert (verdict.position, verdict.refusal) == (0, None)
    assert gate.view().in_flight == 0


async def test_a_bug_in_the_body_gives_the_permit_back(gate: Gate) -> None:
    with pytest.raises(ZeroDivisionError):
        async with admitted(gate, 1):
            raise ZeroDivisionError
    gate.validate()
    assert gate.view().in_flight == 0


async def test_whoever_cannot_be_told_gives_the_place_back(gate: Gate) -> None:
    async with admitted(gate, 1):

        def fail(standing: Standing) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            async with gate.admit(spec(2), lambda refusal: None, fail):
                raise AssertionError("admitted")
        gate.validate()
        assert gate.view().queued == 0


async def test_whoever_can_be_told_no_longer_gives_the_place_back(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, timeout_factor: float
) -> None:
    """It fails in a moment that is nobody's, and ends the request whose word it was."""
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.0)
    told = []

    def fail_later(standing: Standing) -> None:
        told.append(standing)
        if len(told) == 3:
            raise ZeroDivisionError

    async with admitted(gate, 1):
        async with asyncio.timeout(10 * timeout_factor):
            with pytest.raises(ZeroDivisionError):
                async with gate.admit(spec(2), lambda refusal: None, fail_later):
                    raise AssertionError("admitted")
        gate.validate()
        assert gate.view().queued == 0
        await turns()
    assert len(told) == 3


async def test_who_is_granted_is_told_nothing_more(
    gate: Gate, hold: Callable[..., Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.0)
    first, second = hold(1), hold(2)
    await turns()
    assert second.waits
    first.let_go.set()
    await turns()
    assert second.permit is not None
    heard = len(second.waits)
    await turns()
    assert len(second.waits) == heard
    assert len(gate._progress) == 0


async def test_validation_sees_what_only_the_core_knows(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        held = gate._permits.pop(1)
        with pytest.raises(AssertionError):
            gate.validate()
        gate._permits[1] = held
        assert held is permit
