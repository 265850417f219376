"""The gate by itself: grants, waits, seats and time. What becomes of a request in every way out is
in test_ways_out_waiting.py and test_ways_out_running.py."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
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

    async def leave(self) -> None:
        """Give the permit back, and let the others see it."""
        self.let_go.set()
        await turns()

    def refused(self, *, queued: bool) -> Refused:
        """Why it got no permit."""
        assert isinstance(self.error, NotAdmitted)
        assert self.error.queued is queued
        return self.error.refusal.reason


Hold = Callable[..., Awaitable[Holder]]
MakeGate = Callable[..., Gate]


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    def fail(name: str, error: BaseException) -> None:
        raise error

    tasks = Tasks(fail)
    yield tasks
    await tasks.aclose()


@pytest.fixture
async def make_gate(tasks: Tasks) -> AsyncIterator[MakeGate]:
    """Gates; once everybody has gone nothing is held in any of them."""
    gates: list[Gate] = []

    def make(pool: PoolSpec = POOL, *, on_load: Callable[[str], None] = lambda model: None) -> Gate:
        gates.append(Gate(LIMITS, CLASSES, (pool,), on_load=on_load))
        return gates[-1]

    yield make
    await tasks.aclose()
    for gate in gates:
        gate.close()
        gate.validate()
        assert gate.view().in_flight == 0


@pytest.fixture
def gate(make_gate: MakeGate) -> Gate:
    """One seat, two permits."""
    return make_gate()


@pytest.fixture
def hold(gate: Gate, tasks: Tasks) -> Hold:
    """`await hold(rid)`: a request that has been granted by then, or waits."""

    async def make(rid: int, *, gate: Gate = gate, **fields: Any) -> Holder:
        holder = Holder(gate, tasks, spec(rid, **fields))
        await turns()
        return holder

    return make


@pytest.fixture
def told_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits hears about it in every turn of the loop."""
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.0)


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
        assert gate.holds(1)
        gate.validate()
        assert gate.view().in_flight == 1
    assert gate.view().in_flight == 0
    assert not gate.holds(1)


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


async def test_what_a_permit_tells_reaches_the_core(make_gate: MakeGate) -> None:
    grow = replace(POOL, capacity=replace(POOL.capacity, reservation=Reservation.GROW, kv_tok=900))
    gate = make_gate(grow)
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


async def test_refused_at_the_door(gate: Gate) -> None:
    with pytest.raises(NotAdmitted) as refused:
        async with admitted(gate, 1, prompt_tok=5000):
            raise AssertionError("admitted")
    assert refused.value.refusal.reason is Refused.TOO_LARGE
    assert not refused.value.queued
    assert str(refused.value) == refused.value.refusal.message


async def test_who_waits_is_granted_in_order(gate: Gate, hold: Hold) -> None:
    first, second, third = await hold(1), await hold(2), await hold(3)
    assert first.permit is not None
    assert second.permit is third.permit is None
    await first.leave()
    assert second.permit is not None
    assert third.permit is None
    await second.leave()
    assert third.permit is not None


async def test_whoever_waits_hears_about_it_again(
    gate: Gate, hold: Hold, told_often: None, timeout_factor: float
) -> None:
    await hold(1)
    waiting = await hold(2, class_="low")
    await until(lambda: len(waiting.waits) > 3, timeout_factor)
    assert waiting.waits[0].position == 1
    assert waiting.waits[0].limited_by is Binding.SEATS
    assert gate.standing(2) is not None
    assert gate.standing(1) is None


async def test_whoever_is_granted_at_once_hears_nothing(gate: Gate, hold: Hold) -> None:
    first = await hold(1)
    assert first.permit is not None
    assert first.waits == []


async def test_time_runs_out_without_anybody_asking(
    gate: Gate, hold: Hold, timeout_factor: float
) -> None:
    await hold(1)
    soon_ns = clock.monotonic_ns() + 300_000_000
    waiting = await hold(2, ttft_deadline_ns=soon_ns, ttft_is_own=True)
    later = await hold(3, ttft_deadline_ns=soon_ns + 2_000_000, ttft_is_own=True)
    await until(lambda: waiting.error is not None and later.error is not None, timeout_factor)
    assert waiting.refused(queued=True) is Refused.TTFT_DEADLINE_EXCEEDED


async def test_an_earlier_deadline_moves_the_timer_forward(
    gate: Gate, hold: Hold, timeout_factor: float
) -> None:
    await hold(1, deadline_ns=clock.monotonic_ns() + HOUR)
    waiting = await hold(2, deadline_ns=clock.monotonic_ns() + 300_000_000)
    await until(lambda: waiting.error is not None, timeout_factor)


async def test_a_closed_gate_has_no_timer(gate: Gate, hold: Hold) -> None:
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
    gate: Gate, hold: Hold, skip: Callable[[Gate], None]
) -> None:
    stubborn = await hold(1, deadline_ns=clock.monotonic_ns() + HOUR // 10)
    waiting = await hold(2)
    skip(gate)
    gate.validate()
    assert stubborn.aborted[0].reason is Refused.DEADLINE_EXCEEDED
    assert not stubborn.task.done()
    await turns()
    assert waiting.permit is not None  # nothing of the first one had come to the engine


async def test_several_permits_run_out_in_one_moment(
    gate: Gate, hold: Hold, skip: Callable[[Gate], None]
) -> None:
    gate.change_limits(replace(LIMITS, max_in_flight=8), CLASSES)
    gate.pool_changed(replace(POOL, capacity=replace(POOL.capacity, max_seqs=3)))
    at_ns = clock.monotonic_ns() + HOUR // 10
    running = [await hold(rid, deadline_ns=at_ns) for rid in (1, 2, 3)]
    waiting = [await hold(rid) for rid in (4, 5, 6)]
    skip(gate)
    gate.validate()
    assert [len(holder.aborted) for holder in running] == [1, 1, 1]
    assert gate.view().in_flight == 3
    await turns()
    assert all(holder.permit for holder in waiting)


async def test_a_request_waits_again_at_its_old_place(gate: Gate, hold: Hold) -> None:
    async with admitted(gate, 1) as permit:
        seat = permit.occupy()
        behind = await hold(2)
        gate.pool_changed(replace(POOL, state=PoolState.LOADING))
        gate.engine_lost([seat])
        assert permit.seat_lost
        gate.validate()
        asyncio.get_running_loop().call_soon(gate.pool_changed, POOL)  # it is back in the next turn
        await permit.requeue()
        gate.validate()
        assert behind.permit is None
        assert permit.occupy() != seat
        assert not permit.seat_lost


async def test_what_was_waiting_for_a_lost_seat_hears_of_it(gate: Gate) -> None:
    async with admitted(gate, 1) as permit:
        await permit.seat_vacant()  # it has none yet
        seat = permit.occupy()
        asyncio.get_running_loop().call_soon(gate.engine_lost, [seat])
        await permit.seat_vacant()
        assert permit.seat_lost


async def test_a_class_is_closed_and_opened(gate: Gate, hold: Hold) -> None:
    gate.close_class("low", None)
    refused = await hold(1, class_="low")
    assert refused.refused(queued=False) is Refused.PAUSED
    gate.open_class("low")
    granted = await hold(2, class_="low")
    assert granted.permit is not None


async def test_a_cold_pool_is_asked_for(make_gate: MakeGate, hold: Hold) -> None:
    asked: list[str] = []
    gate = make_gate(replace(POOL, state=PoolState.COLD), on_load=asked.append)
    holder = await hold(1, gate=gate)
    assert asked == ["tiny"]
    gate.pool_changed(POOL)
    await turns()
    assert holder.permit is not None


async def test_new_limits_hold_at_once(gate: Gate, hold: Hold) -> None:
    gate.pool_changed(replace(POOL, capacity=replace(POOL.capacity, max_seqs=9)))
    holders = [await hold(rid) for rid in (1, 2, 3)]
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


class Worse:
    """A low request that is in the engine, and goes back into the queue when the engine has stopped
    it."""

    def __init__(self, gate: Gate, tasks: Tasks, spec: RequestSpec) -> None:
        self.seats: list[int] = []
        self.aborted: list[Refusal] = []
        self.stops = 0
        self.error: BaseException | None = None
        self.kept_tok = 0
        self._granted: Permit | None = None
        self._stopped = asyncio.Event()
        self._finished = False
        self._gate = gate
        self.task = tasks.spawn(self._run(spec), name="worse")

    @property
    def permit(self) -> Permit:
        assert self._granted is not None
        return self._granted

    def stop(self) -> None:
        """The engine says that it has stopped; its seat is another matter."""
        self._stopped.set()

    def finish(self) -> None:
        """The engine says that it is done."""
        self._finished = True
        self._stopped.set()

    def vacate(self) -> None:
        """The engine says that its first seat is free."""
        self._gate.seat_freed(self.seats[0])

    def _asked(self) -> None:
        self.stops += 1

    async def _run(self, spec: RequestSpec) -> None:
        try:
            async with self._gate.admit(spec, self.aborted.append) as permit:
                self._granted = permit
                while True:
                    self.seats.append(permit.occupy())
                    permit.on_preempt = self._asked
                    await self._stopped.wait()
                    if self._finished:
                        permit.settle(finished=True)
                        return
                    self._stopped.clear()
                    await permit.seat_vacant()
                    await permit.requeue(self.kept_tok)
        except NotAdmitted as error:
            self.error = error


@dataclass
class Contest:
    """A low request has the only seat, and is asked to make room for a high one that waits."""

    gate: Gate
    worse: Worse
    better: Holder

    @property
    def counts(self) -> tuple[int, int]:
        """How many hold a permit and how many wait; gate and core agree on it."""
        self.gate.validate()
        view = self.gate.view()
        return view.in_flight, view.queued

    @property
    def quarantined(self) -> int:
        return self.gate.view().pools[0].seats_quarantined


@pytest.fixture
async def contest(strict: Gate, tasks: Tasks, hold: Hold) -> Contest:
    deadline_ns = clock.monotonic_ns() + HOUR // 10
    worse = Worse(strict, tasks, low(1, deadline_ns=deadline_ns))
    await turns()
    contest = Contest(strict, worse, await hold(2))
    assert worse.stops == 1
    assert strict.stops(1)
    assert not strict.stops(2)
    return contest


async def test_a_running_one_is_told_to_make_room_once(contest: Contest, hold: Hold) -> None:
    gate, worse, better = contest.gate, contest.worse, contest.better
    more = await hold(3)
    assert worse.stops == 1
    assert worse.permit.preempted
    worse.kept_tok = 4
    worse.permit.produced(4)
    worse.stop()
    await turns()
    assert better.permit is None, "its seat is not free yet"
    gate.validate()
    worse.vacate()
    await turns()
    assert better.permit is not None
    assert not worse.permit.preempted
    assert not gate.stops(1)
    for holder in (better, more):
        await holder.leave()
    assert len(worse.seats) == 2
    gate.validate()
    # It goes on: what it has to compute first is its prompt and what it has said.
    assert gate.view().pools[0].unprefilled_tok == 14


async def test_its_seat_is_vacant_after_the_word_that_it_stopped(contest: Contest) -> None:
    contest.worse.stop()
    await turns()
    contest.worse.vacate()
    await turns()
    assert contest.better.permit is not None
    assert contest.counts == (1, 1)


async def test_its_seat_is_vacant_before_the_word_that_it_stopped(contest: Contest) -> None:
    contest.worse.vacate()
    await turns()
    assert contest.better.permit is not None
    assert contest.counts == (2, 0), "it is about to give its permit back"
    contest.worse.stop()
    await turns()
    assert contest.counts == (1, 1)


async def test_told_before_it_came_to_the_engine(strict: Gate, tasks: Tasks, hold: Hold) -> None:
    first = await hold(1)
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


async def test_finished_before_it_stopped(contest: Contest) -> None:
    contest.worse.finish()
    contest.worse.vacate()
    await turns()
    assert contest.worse.task.done()
    assert contest.better.permit is not None
    assert contest.counts == (1, 0)


async def test_cancelled_while_it_is_being_stopped(contest: Contest) -> None:
    contest.worse.task.cancel()
    await turns()
    assert contest.better.permit is None
    assert contest.counts == (0, 1)
    assert contest.quarantined == 1
    contest.worse.vacate()
    await turns()
    assert contest.better.permit is not None


async def test_cancelled_while_it_waits_for_its_seat_to_be_vacant(contest: Contest) -> None:
    contest.worse.stop()
    await turns()
    contest.worse.task.cancel()
    await turns()
    assert contest.counts == (0, 1)
    assert contest.quarantined == 1
    contest.worse.vacate()
    await turns()
    assert contest.better.permit is not None


@pytest.fixture
async def waits_again(contest: Contest) -> Contest:
    """The low one was stopped, and the high one has its seat."""
    contest.worse.vacate()
    contest.worse.stop()
    await turns()
    assert contest.better.permit is not None
    assert contest.counts == (1, 1)
    return contest


async def test_cancelled_while_it_waits_again(waits_again: Contest) -> None:
    waits_again.worse.task.cancel()
    await turns()
    assert waits_again.counts == (1, 0)


async def test_aborted_while_it_is_being_stopped(
    contest: Contest, skip: Callable[[Gate], None]
) -> None:
    skip(contest.gate)
    assert [refusal.reason for refusal in contest.worse.aborted] == [Refused.DEADLINE_EXCEEDED]
    assert contest.counts == (0, 1)
    contest.worse.task.cancel()  # what its owner does then
    await turns()
    contest.worse.vacate()
    contest.gate.validate()


async def test_drained_while_it_is_being_stopped(contest: Contest) -> None:
    """Who waits is refused, so that there is nobody to make room for."""
    contest.gate.drain()
    await turns()
    assert contest.better.refused(queued=True) is Refused.SHUTTING_DOWN
    contest.worse.vacate()
    contest.worse.stop()
    await turns()
    assert len(contest.worse.seats) == 2
    assert contest.counts == (1, 0)


async def test_drained_while_it_waits_again(waits_again: Contest) -> None:
    """It has begun, so it has its time to finish."""
    waits_again.gate.drain()
    await turns()
    assert waits_again.counts == (1, 1)
    await waits_again.better.leave()
    assert len(waits_again.worse.seats) == 2
    assert waits_again.counts == (1, 0)


async def test_drained_while_it_waits_for_an_opening(waits_again: Contest) -> None:
    waits_again.gate.close_class("low", None)
    waits_again.gate.drain()
    await turns()
    error = waits_again.worse.error
    assert isinstance(error, NotAdmitted)
    assert (error.refusal.reason, error.queued) == (Refused.SHUTTING_DOWN, True)
    assert waits_again.counts == (1, 0)


async def test_the_engine_is_lost_while_it_stops(contest: Contest) -> None:
    contest.gate.pool_changed(replace(POOL, state=PoolState.LOADING))
    contest.gate.engine_lost(contest.worse.seats)
    assert contest.worse.permit.seat_lost
    contest.worse.stop()
    await turns()
    assert contest.counts == (0, 2)
    contest.gate.pool_changed(POOL)
    await turns()
    assert contest.better.permit is not None
    assert contest.counts == (1, 1)


async def test_whoever_waits_knows_what_was_predicted(
    gate: Gate, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = gate._core.handle

    def predicting(event: events.Event, now_ns: int) -> list[effects.Effect]:
        return [
            effects.Queue(effect.rid, 7_000) if isinstance(effect, effects.Queue) else effect
            for effect in handle(event, now_ns)
        ]

    monkeypatch.setattr(gate._core, "handle", predicting)
    first, second = await hold(1), await hold(2)
    await first.leave()
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
    gate: Gate, told_often: None, timeout_factor: float
) -> None:
    """It fails in a moment that is nobody's, and ends the request whose word it was."""
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
    gate: Gate, hold: Hold, told_often: None
) -> None:
    first, second = await hold(1), await hold(2)
    assert second.waits
    await first.leave()
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
