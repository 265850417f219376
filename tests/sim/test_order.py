"""Who is served, over time: strict rank, floors, no starvation, nothing left behind.

Expected shares are computed from the configuration alone; what a share may be off by is one lump:
the largest request, once for each that can run at the same time.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.sim.engine import Machine

from onegate.admission.model import ClassSpec, GateLimits, PoolCapacity, Reservation

SECOND = 10**9
CHAT, LOOP, BATCH = (300, 60), (500, 100), (200, 120)  # prompt and answer


def classes(**floors: float) -> tuple[ClassSpec, ...]:
    return tuple(
        ClassSpec(name, rank, 10**8, 1.0, 10**6 * SECOND, floors.get(name, 0.0))
        for rank, name in enumerate(("chat", "loop", "batch"))
    )


def pool(seats: int, **more: Any) -> dict[str, Machine]:
    fields: dict[str, Any] = {"kv_tok": 10**7, "max_step_tok": 2048} | more
    return {"m": Machine(PoolCapacity(seats, 100_000, Reservation.GROW, **fields))}


@pytest.mark.parametrize("floor", [0.05, 0.3])
@pytest.mark.parametrize("reserved_tok", [120, 8000], ids=["exact", "long reservations"])
@pytest.mark.parametrize("seats", [1, 2, 8, 64])
def test_a_class_gets_its_floor_and_no_more(
    box: Callable[..., Any], seats: int, reserved_tok: int, floor: float
) -> None:
    """However long answers might have been: what counts is what was computed."""
    b = box(classes(batch=floor), pool(seats))
    b.endless("chat", 3 * seats, *CHAT)
    b.endless("batch", 64, *BATCH, max_tok=reserved_tok)
    total_tok = 60_000 * max(1, seats // 8)
    b.run(lambda: b.tokens() > total_tok)
    # At most a share of what runs at a time is begun at once; each grant has at least a quantum.
    lump_tok = sum(BATCH) * max(1, round(2 * floor * seats))
    most = floor + (lump_tok + 256) / total_tok
    least = floor - (lump_tok + 256) / total_tok
    assert least <= b.share("batch") <= most
    b.go_home()


def test_two_floors_hold_at_once(box: Callable[..., Any]) -> None:
    b = box(classes(loop=0.2, batch=0.1), pool(4))
    b.endless("chat", 12, *CHAT)
    b.endless("loop", 12, *LOOP)
    b.endless("batch", 12, *BATCH)
    b.run(lambda: b.tokens() > 100_000)
    slack = (2 * (sum(LOOP) + sum(BATCH)) + 512) / 100_000
    assert b.share("loop") == pytest.approx(0.2, abs=slack)
    assert b.share("batch") == pytest.approx(0.1, abs=slack)
    b.go_home()


def test_one_long_request_is_paid_for_by_a_long_wait(box: Callable[..., Any]) -> None:
    b = box(classes(batch=0.1), pool(1))
    b.endless("chat", 3, *CHAT)
    b.endless("batch", 2, 100, 4000)
    b.run(lambda: b.tokens() > 200_000)
    assert b.share("batch") == pytest.approx(0.1, abs=4356 / 200_000)


def test_without_a_floor_rank_is_strict(box: Callable[..., Any]) -> None:
    b = box(classes(), pool(4))
    b.endless("chat", 12, *CHAT)
    b.endless("batch", 64, *BATCH)
    b.run(lambda: b.tokens() > 50_000)
    # Whatever came first may have found the box empty; after that, nothing.
    assert b.computed.get("batch", 0) <= 4 * sum(BATCH)
    first_chat = next(i for i, job in enumerate(b.granted) if job.class_ == "chat")
    assert all(job.class_ == "chat" for job in b.granted[first_chat:])
    b.go_home()


def test_an_idle_night_is_not_paid_back_in_the_morning(box: Callable[..., Any]) -> None:
    """Batch had the box to itself; then people come. It gets its floor, less the lead that it has
    by a share of what was computed within the window, and after that no less."""
    b = box(classes(batch=0.1), pool(2))
    b.endless("batch", 16, *BATCH)
    b.run(lambda: b.tokens() > 50_000)
    lead_tok = b.core._book.floors["batch"].lead_tok
    assert 0 < lead_tok < 0.1 * 50_000
    b.endless("chat", 6, *CHAT)
    slack_tok = 3 * sum(BATCH) + 256
    for until_tok, less_tok in ((100_000, lead_tok), (150_000, 0)):
        before_tok = b.computed["batch"]
        b.run(lambda until_tok=until_tok: b.tokens() > until_tok)
        got_tok = b.computed["batch"] - before_tok
        assert got_tok == pytest.approx(0.1 * 50_000 - less_tok, abs=slack_tok)


@pytest.mark.parametrize("seats", [1, 2, 8])
@pytest.mark.parametrize("seed", range(5))
def test_64_queued_batch_requests_never_keep_one_chat_out(
    box: Callable[..., Any], seats: int, seed: int
) -> None:
    """A chat that comes at any moment is the next to start, once a seat is free."""
    rng = random.Random(seed)
    b = box(classes(batch=0.05), pool(seats))
    for _ in range(64 + seats):
        b.submit("batch", rng.randint(10, 400), rng.randint(5, 200))
    chats = []
    for n in range(5):
        b.at(
            b.now + rng.randint(1, 3 * SECOND),
            lambda: chats.append((len(b.granted), b.submit("chat", *CHAT))),
        )
        while len(chats) <= n or chats[n][1].ended_ns is None:
            b.turn()
    for granted_before, chat in chats:
        assert b.granted[granted_before] is chat
        freed = min(
            (j.ended_ns for j in b.jobs.values() if j.ended_ns and j.ended_ns >= chat.arrived_ns),
            default=chat.arrived_ns,
        )
        assert chat.granted_ns in (chat.arrived_ns, freed)
    b.run(lambda: all(job.ended_ns for job in b.jobs.values()))
    b.go_home()


def test_a_chat_is_queued_however_full_the_box_is_of_batch(box: Callable[..., Any]) -> None:
    """The bounds over all classes are used up by batch alone, in tokens and in requests."""
    limits = GateLimits(64, 5_000, 30, 0, 30 * SECOND, 256)
    for batch in ((10, 300), (1, 1)):
        b = box(classes(), pool(1), limits)
        jobs = [b.submit("batch", *batch, principal=f"p{i % 4}") for i in range(60)]
        assert any(job.refusal for job in jobs)
        chat = b.submit("chat", *CHAT)
        assert chat.refusal is None
        b.run(lambda chat=chat: chat.ended_ns is not None)
        assert b.granted[1] is chat
        b.go_home()


@pytest.mark.parametrize("seats", [1, 2])
def test_every_batch_job_finishes_under_constant_chat(box: Callable[..., Any], seats: int) -> None:
    b = box(classes(batch=0.05), pool(seats))
    b.endless("chat", 2 * seats + 1, *CHAT)
    jobs = [b.submit("batch", 200, 300) for _ in range(10)]
    need_tok = sum(job.spec.prompt_tok + job.output_tok for job in jobs)
    b.run(lambda: all(job.ended_ns for job in jobs))
    assert not any(job.refusal for job in jobs)
    # No later than its share says, and chat had the rest.
    assert b.tokens() <= need_tok / 0.05 + 20 * 256 + 10_000
    assert b.share("chat") >= 0.9
    b.go_home()


def test_a_large_request_is_not_starved_by_small_ones(box: Callable[..., Any]) -> None:
    b = box(classes(), pool(8, kv_tok=4000))
    b.endless("chat", 24, 100, 50)
    b.run(lambda: b.tokens() > 5_000)
    large = b.submit("chat", 3000, 500)
    started = len(b.granted)
    b.run(lambda: large.granted_ns is not None)
    # Only those that were waiting before it started first.
    assert b.granted.index(large) - started <= 24
    b.run(lambda: large.ended_ns is not None)
    b.go_home()


def test_prompts_of_lower_ranks_do_not_hold_back_a_chat(box: Callable[..., Any]) -> None:
    b = box(classes(), pool(8, max_step_tok=512))
    b.submit("batch", 5000, 10)
    b.submit("batch", 400, 10)
    chat = b.submit("chat", 400, 10)
    assert chat.granted_ns == 0
    assert [job.class_ for job in b.granted] == ["batch", "chat"]
    b.run(lambda: all(job.ended_ns for job in b.jobs.values()))
    b.go_home()


@pytest.mark.parametrize("reservation", list(Reservation))
@pytest.mark.parametrize("seed", range(3))
def test_everything_at_once_ends_empty(
    box: Callable[..., Any], seed: int, reservation: Reservation
) -> None:
    """Random sizes, cancels at any moment, deadlines: each ends once, and nothing is left."""
    rng = random.Random(seed)
    capacity = PoolCapacity(6, 8000, reservation, kv_tok=9000, max_step_tok=1024, block_tok=16)
    b = box(classes(loop=0.1, batch=0.05), {"m": Machine(capacity)})
    b.endless("batch", 10, *BATCH, max_tok=1000)

    def come() -> None:
        job = b.submit(
            rng.choice(("chat", "chat", "loop", "batch")),
            rng.randint(1, 1500),
            output := rng.randint(1, 200),
            max_tok=output + rng.randint(0, 800),
            ttft_ns=rng.choice((None, SECOND, 20 * SECOND)),
            own=rng.random() < 0.5,
        )
        if rng.random() < 0.4:
            b.at(b.now + rng.randint(0, 10 * SECOND), lambda: b.cancel(job))

    for _ in range(200):
        b.at(rng.randint(0, 120 * SECOND), come)
    b.run(lambda: b.now > 125 * SECOND)
    assert sum(job.ended_ns is not None for job in b.jobs.values()) > 200
    b.go_home()
