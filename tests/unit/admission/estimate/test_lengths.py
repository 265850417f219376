"""Whose curve is asked, and that a flood of answers or of names moves little but its sender's."""

import pytest

from onegate.admission.estimate.lengths import FLOWS, PRINCIPALS, VOTES, Lengths
from onegate.admission.estimate.survival import LEAST


def end(lengths: Lengths, principal: str, flow: str, tok: int, times: int) -> None:
    for _ in range(times):
        lengths.ended("batch", principal, flow, tok, finished=True)


def median_of(lengths: Lengths, principal: str, flow: str) -> int | None:
    curve = lengths.of("batch", principal, flow)
    return None if curve is None else curve.quantile(0.5)


def test_nothing_is_known_of_what_was_never_heard() -> None:
    assert Lengths().of("batch", "a", "f") is None


def test_a_flow_then_its_principal_then_its_class() -> None:
    lengths = Lengths()
    end(lengths, "a", "short", 3, LEAST + 1)
    end(lengths, "a", "long", 6, 4 * LEAST)
    end(lengths, "b", "f", 5, LEAST + 1)
    assert median_of(lengths, "a", "short") == 3
    assert median_of(lengths, "a", "long") == 6
    assert median_of(lengths, "a", "new") == 6
    assert median_of(lengths, "b", "new") == 5
    of_class = lengths.of("batch", "stranger", "f")
    assert of_class is not None
    assert of_class.samples == 2 * VOTES
    assert lengths.of("chat", "a", "short") is None


def test_a_flow_with_too_few_answers_is_not_asked() -> None:
    lengths = Lengths()
    end(lengths, "a", "other", 6, 4 * LEAST)
    end(lengths, "a", "f", 3, LEAST - 1)
    assert median_of(lengths, "a", "f") == 6
    # The flow's own samples fade, so one more than the least is needed.
    end(lengths, "a", "f", 3, 2)
    assert median_of(lengths, "a", "f") == 3


def test_a_principal_with_too_few_answers_is_not_asked() -> None:
    lengths = Lengths()
    for principal in "bcd":
        end(lengths, principal, "f", 6, VOTES)
    end(lengths, "a", "f", 3, LEAST // 2)
    assert median_of(lengths, "a", "f") == 6


def test_one_principal_alone_says_nothing_for_others() -> None:
    lengths = Lengths()
    end(lengths, "a", "f", 6, 1000)
    assert lengths.of("batch", "stranger", "f") is None


def test_a_flood_of_one_principal_is_one_voice_of_many() -> None:
    lengths = Lengths()
    for principal in "abcdefg":
        end(lengths, principal, "f", 6, VOTES)
    for i in range(20_000):
        lengths.ended("batch", "hostile", f"flow{i}", 1, finished=True)
    of_class = lengths.of("batch", "stranger", "f")
    assert of_class is not None
    assert of_class.ends_within(0, 5) == pytest.approx(1 / 8)
    assert of_class.quantile(0.5) == 6


def test_a_flood_does_not_push_out_the_flows_of_others() -> None:
    lengths = Lengths()
    end(lengths, "a", "short", 3, LEAST + 1)
    end(lengths, "a", "long", 6, 4 * LEAST)
    for i in range(5_000):
        lengths.ended("batch", "hostile", f"flow{i}", 10**9, finished=True)
    assert median_of(lengths, "a", "short") == 3


def test_flows_of_one_principal_are_bounded_and_the_used_ones_stay() -> None:
    lengths = Lengths()
    end(lengths, "a", "kept", 3, LEAST + 1)
    for i in range(10 * FLOWS):
        end(lengths, "a", f"flow{i}", 6, 3)
        end(lengths, "a", "kept", 3, 1)
    assert median_of(lengths, "a", "kept") == 3
    assert len(lengths._classes["batch"].principals["a"].flows) == FLOWS


def test_principals_are_bounded_and_their_votes_leave_with_them() -> None:
    lengths = Lengths()
    for i in range(3 * PRINCIPALS):
        end(lengths, f"p{i}", "f", 1 + i // PRINCIPALS, VOTES + 3)
    assert len(lengths._classes["batch"].principals) == PRINCIPALS
    of_class = lengths.of("batch", "stranger", "f")
    assert of_class is not None
    assert of_class.samples == PRINCIPALS * VOTES
    assert of_class.quantile(0.01) == 3


def test_what_was_stopped_is_not_taken_for_an_end() -> None:
    lengths = Lengths()
    for _ in range(2 * LEAST):
        lengths.ended("batch", "a", "f", 5, finished=False)
    curve = lengths.of("batch", "a", "f")
    assert curve is not None
    assert curve.ends_within(0, 5) == 0.0
    end(lengths, "b", "f", 6, 2 * LEAST)
    of_class = lengths.of("batch", "stranger", "f")
    assert of_class is not None
    assert of_class.ends_within(0, 5) == 0.0


def test_another_model_begins_anew() -> None:
    lengths = Lengths()
    end(lengths, "a", "f", 3, 2 * LEAST)
    lengths.forget()
    assert lengths.of("batch", "a", "f") is None
