"""When to come back."""

import pytest

from onegate.admission.hints import DRAIN_BASE_NS, DRAIN_STEPS, drain_hint_ns, retry_after_ns
from onegate.admission.model import ClassSpec, Refused
from onegate.admission.queue import Backpressure, ClassQueue

S = 10**9


def queue() -> ClassQueue:
    """A class with room for 1000 tokens that drains 100 a second; it is second 2."""
    found = ClassQueue(ClassSpec("batch", 2, 1000, 0.5, S))
    found.rate.backlog(True, 0)
    found.rate.released(200, S)
    return found


def full(
    excess_tok: float, reason: Refused = Refused.TOKENS_FULL, share: float = 1.0
) -> Backpressure:
    return Backpressure(reason, "tokens", 1000, 1000, excess_tok, share)


def test_the_time_until_there_is_room() -> None:
    assert retry_after_ns(queue(), full(50), 50, 2 * S, commit=True) == S // 2


def test_each_is_told_to_come_after_the_one_before() -> None:
    q = queue()
    hints = [retry_after_ns(q, full(50), 50, 2 * S, commit=True) for _ in range(4)]
    assert hints == [S // 2, S, 3 * S // 2, 2 * S]


def test_asking_moves_nobody() -> None:
    q = queue()
    for _ in range(3):
        assert retry_after_ns(q, full(50), 50, 2 * S, commit=False) == S // 2


def test_the_clock_follows_the_time() -> None:
    q = queue()
    retry_after_ns(q, full(50), 50, 2 * S, commit=True)
    assert retry_after_ns(q, full(30), 30, 3 * S, commit=False) == pytest.approx(0.45 * S, rel=0.01)


def test_a_thousand_refusals_move_others_by_one_queue_at_most() -> None:
    q = queue()
    for _ in range(1000):
        retry_after_ns(q, full(50), 50, 2 * S, commit=True)
    assert retry_after_ns(q, full(50), 50, 2 * S, commit=True) == 10 * S


def test_a_thousand_refusals_for_ones_own_quota_move_nobody() -> None:
    q = queue()
    for _ in range(1000):
        retry_after_ns(q, full(50, Refused.PEER_QUOTA), 50, 2 * S, commit=True)
    assert retry_after_ns(q, full(50), 50, 2 * S, commit=True) == S // 2


def test_ones_own_quota_drains_with_ones_own_part_of_the_queue() -> None:
    mine = full(50, Refused.PEER_QUOTA, share=0.25)
    assert retry_after_ns(queue(), mine, 50, 2 * S, commit=True) == 2 * S


def test_no_rate_no_hint() -> None:
    q = ClassQueue(ClassSpec("batch", 2, 1000, 0.5, S))
    assert retry_after_ns(q, full(50), 50, 2 * S, commit=True) is None
    assert q.drain_clock_ns == 0


def test_no_hint_for_what_can_never_wait() -> None:
    assert retry_after_ns(queue(), full(0, Refused.TOO_LARGE), 50, 2 * S, commit=True) is None


def test_after_a_shutdown_they_come_one_by_one() -> None:
    hints = [drain_hint_ns(place) for place in range(DRAIN_STEPS + 1)]
    assert len(set(hints)) == DRAIN_STEPS
    assert hints[0] == hints[-1] == DRAIN_BASE_NS == min(hints)
