"""Two models, one of which can be loaded at a time: who has to wait for whom, and for how long."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.sim.engine import Machine

from onegate.admission.model import ClassSpec, PoolCapacity, Reservation

SECOND = 10**9
SWITCH_NS = 5 * SECOND
WINDOW_S = 30
# A slow engine, so that hours of its time are few events: a request takes about 2 s.
STEP_NS = SECOND // 4
SMALL = (100, 8)


def classes(**floors: float) -> tuple[ClassSpec, ...]:
    return tuple(
        ClassSpec(name, rank, 10**8, 1.0, 10**6 * SECOND, floors.get(name, 0.0))
        for rank, name in enumerate(("chat", "batch"))
    )


def pools(*names: str) -> dict[str, Machine]:
    capacity = PoolCapacity(2, 8000, Reservation.GROW, kv_tok=50_000, max_step_tok=2048)
    return {name: Machine(capacity, step_ns=STEP_NS) for name in names}


def two(box: Callable[..., Any], *names: str, **floors: float) -> Any:
    return box(classes(**floors), pools(*names), one_loadable=True, switch_ns=SWITCH_NS)


def test_the_other_model_is_loaded_once_nobody_wants_this_one(box: Callable[..., Any]) -> None:
    b = two(box, "a", "b")
    first = b.submit("chat", *SMALL, pool="a")
    other = b.submit("batch", *SMALL, pool="b")
    b.run(lambda: other.ended_ns is not None)
    assert b.loads == [(first.ended_ns, "b")]
    b.go_home()


def test_the_same_class_takes_turns_that_are_worth_the_switch(box: Callable[..., Any]) -> None:
    b = two(box, "a", "b")
    b.endless("chat", 6, *SMALL, pool="a")
    b.endless("chat", 6, *SMALL, pool="b")
    b.run(lambda: b.now > 600 * SECOND)
    stays_s = [(t1 - t0) / SECOND for (t0, _), (t1, _) in zip(b.loads, b.loads[1:], strict=False)]
    # Window and two switches from the moment it was put aside; a little more until seats are free.
    assert all(WINDOW_S + 5 <= stay <= WINDOW_S + 20 for stay in stays_s)
    served = [sum(j.tok for j in b.jobs.values() if j.pool == name) for name in "ab"]
    assert min(served) > 0.8 * max(served)
    b.go_home()


def test_a_person_does_not_wait_for_the_batch_of_another_model(box: Callable[..., Any]) -> None:
    b = two(box, "a", "b", batch=0.05)
    b.endless("batch", 8, *SMALL, pool="a")
    b.run(lambda: b.now > 20 * SECOND)
    granted, running = len(b.granted), len(b.engines["a"].running)
    chat = b.submit("chat", *SMALL, pool="b")
    b.run(lambda: chat.granted_ns is not None)
    # Work of the loaded pool ended, nothing new of it began.
    assert running
    assert b.granted[granted] is chat
    assert chat.granted_ns - chat.arrived_ns <= SWITCH_NS + 3 * SECOND
    b.go_home()


def test_batch_of_another_model_waits_for_its_floor_of_the_time(box: Callable[..., Any]) -> None:
    b = two(box, "a", "b", batch=0.05)
    b.endless("chat", 6, *SMALL, pool="a")
    jobs = [b.submit("batch", *SMALL, pool="b") for _ in range(5)]
    b.run(lambda: all(job.ended_ns for job in jobs))
    turn_s = (WINDOW_S + 2 * 5) / 0.05
    assert turn_s <= jobs[0].granted_ns / SECOND <= turn_s + 15
    b.go_home()


def test_without_a_floor_batch_of_another_model_waits_for_the_last_chat(
    box: Callable[..., Any],
) -> None:
    b = two(box, "a", "b")
    b.endless("chat", 6, *SMALL, pool="a")
    batch = b.submit("batch", *SMALL, pool="b")
    b.run(lambda: b.now > 3000 * SECOND)
    assert b.loads == []
    b.leaving = True
    b.run(lambda: batch.ended_ns is not None)
    b.go_home()


@pytest.mark.parametrize("low", ["chat", "batch"])
def test_three_models_none_of_which_starves(box: Callable[..., Any], low: str) -> None:
    b = two(box, "a", "b", "c", batch=0.2)
    b.endless("chat", 4, *SMALL, pool="a")
    b.endless("chat", 4, *SMALL, pool="b")
    b.endless(low, 4, *SMALL, pool="c")
    b.run(lambda: b.now > 2000 * SECOND)
    served = {name: sum(j.tok for j in b.jobs.values() if j.pool == name) for name in "abc"}
    assert min(served.values()) > 0.01 * sum(served.values())
    b.go_home()
