"""What a program does is a hint too."""

import pytest

from onegate.config import ClassConfig, check
from onegate.server import behaviour as module
from onegate.server.behaviour import Behaviour, Start, Starts

S = 1_000_000_000
MINUTE = 60 * S


class Played:
    """Some flows at a time that the test sets; interactive is for 4 and 20, loop for 16 and 240."""

    def __init__(self, text: str = "") -> None:
        self.classes = check(text).classes
        self.behaviour = Behaviour(lambda: self.classes)
        self.now_ns = 1_000 * S

    def start(
        self, asked: str = "interactive", flow: str = "uid:1/a", principal: str = ""
    ) -> Start:
        return self.behaviour.started(
            principal=principal or flow.partition("/")[0],
            flow=flow,
            asked=asked,
            now_ns=self.now_ns,
        )

    def classes_of(self, n: int, asked: str = "interactive", flow: str = "uid:1/a") -> list[str]:
        """The classes of so many, none of which ends."""
        return [self.start(asked, flow).treatment.class_ for _ in range(n)]

    def would_be(self, asked: str = "interactive", flow: str = "uid:1/a") -> str:
        return self.behaviour.would_be(
            principal=flow.partition("/")[0], flow=flow, asked=asked, now_ns=self.now_ns
        ).class_


def test_more_at_a_time_than_a_person_is_a_loop_and_then_a_batch() -> None:
    played = Played()
    assert played.classes_of(4) == ["interactive"] * 4
    assert played.classes_of(12) == ["loop"] * 12
    assert played.classes_of(3) == ["batch"] * 3


def test_more_in_a_minute_than_a_person_is_a_loop_and_then_a_batch() -> None:
    played = Played()
    got = []
    for _ in range(250):
        start = played.start()
        got.append(start.treatment.class_)
        played.behaviour.ended(start)
    assert got == ["interactive"] * 20 + ["loop"] * 220 + ["batch"] * 10


def test_it_stays_lowered_until_half_of_the_bound() -> None:
    played = Played()
    starts = [played.start() for _ in range(5)]
    ends = iter(starts)
    played.behaviour.ended(next(ends))
    assert played.would_be() == "loop"  # four are live, as at the first lowered one
    played.behaviour.ended(next(ends))
    assert played.would_be() == "loop"  # three: below the bound, and not yet calm
    played.behaviour.ended(next(ends))
    assert played.would_be() == "interactive"
    assert played.start().treatment.class_ == "interactive"
    # Calm it is at the bound again, not at half of it.
    assert played.classes_of(1) == ["interactive"]
    assert played.classes_of(1) == ["loop"]


def test_a_minute_later_it_has_calmed_down() -> None:
    played = Played()
    for _ in range(21):
        played.behaviour.ended(played.start())
    played.now_ns += 54 * S
    assert played.would_be() == "loop"
    played.now_ns += 6 * S
    assert played.would_be() == "interactive"


def test_the_starts_must_calm_down_to_half_too() -> None:
    played = Played()
    for _ in range(11):
        played.behaviour.ended(played.start())
    played.now_ns += 30 * S
    for _ in range(10):
        played.behaviour.ended(played.start())
    played.now_ns += 31 * S
    # The eleven are gone; the ten of the second half are exactly half of twenty.
    assert played.would_be() == "interactive"
    played.behaviour.ended(played.start())
    assert played.would_be() == "interactive"


def test_eleven_of_twenty_are_not_calm() -> None:
    played = Played()
    for _ in range(10):
        played.behaviour.ended(played.start())
    played.now_ns += 30 * S
    for _ in range(11):
        played.behaviour.ended(played.start())
    played.now_ns += 31 * S
    assert played.would_be() == "loop"


def test_asking_changes_nothing() -> None:
    played = Played()
    starts = [played.start() for _ in range(4)]
    assert played.would_be() == "loop"  # the fifth would be
    played.behaviour.ended(starts[0])
    assert played.would_be() == "interactive"  # and nobody has been the fifth


def test_a_lower_class_that_was_asked_for_counts_against_no_better_one() -> None:
    played = Played()
    assert played.classes_of(30, "batch") == ["batch"] * 30
    assert played.classes_of(15, "loop") == ["loop"] * 15
    assert played.would_be() == "interactive"


def test_a_better_class_that_was_asked_for_counts_against_the_lower_ones() -> None:
    played = Played()
    assert played.classes_of(4) == ["interactive"] * 4
    assert played.classes_of(13, "loop") == ["loop"] * 12 + ["batch"]


def test_each_end_client_counts_by_itself() -> None:
    played = Played()
    for person in range(5):
        assert played.classes_of(4, flow=f"uid:1/{person}") == ["interactive"] * 4


def test_without_bounds_nobody_is_lowered() -> None:
    keys = 'behaviour_live = "none"\nbehaviour_starts_per_min = "none"\n'
    played = Played(f'[[class]]\nname = "interactive"\n{keys}')
    assert played.classes_of(300) == ["interactive"] * 300


def test_a_reload_changes_the_bounds_at_once() -> None:
    played = Played()
    played.classes_of(4)
    played.classes = check('[[class]]\nname = "interactive"\nbehaviour_live = 9\n').classes
    assert played.classes_of(1) == ["interactive"]


def test_why_is_said_with_the_numbers() -> None:
    played = Played()
    played.classes_of(16)
    assert played.start("batch").treatment.detail is None
    detail = played.start().treatment.detail
    assert detail is not None
    assert detail.startswith("treated as batch, not as interactive: ")
    assert "16 requests at a time before this one, interactive is for 4 at most" in detail
    assert "loop is for 16 at most, and again from 8 on" in detail


def test_whoever_makes_up_flows_pushes_out_none_but_his_own() -> None:
    played = Played()
    played.classes_of(5, flow="uid:2/quiet")
    for i in range(10 * module.FLOWS_PER_PRINCIPAL):
        played.start(flow=f"uid:1/{i}")
    assert len(played.behaviour) == module.FLOWS_PER_PRINCIPAL + 1
    assert played.would_be(flow="uid:2/quiet") == "loop"


def test_principals_are_bounded_too_and_the_latest_stay() -> None:
    played = Played()
    for i in range(2 * module.PRINCIPALS):
        played.classes_of(5, flow=f"uid:{i}/a")
        played.would_be(flow="uid:0/a")
    assert len(played.behaviour) == module.PRINCIPALS
    assert played.would_be(flow=f"uid:{2 * module.PRINCIPALS - 1}/a") == "loop"
    assert played.would_be(flow="uid:0/a") == "interactive"


def test_the_end_of_a_request_whose_flow_was_forgotten_harms_nobody() -> None:
    played = Played()
    old = [played.start(flow="uid:1/old") for _ in range(5)]
    for i in range(module.FLOWS_PER_PRINCIPAL):
        played.start(flow=f"uid:1/{i}")
    assert played.classes_of(4, flow="uid:1/old") == ["interactive"] * 4
    for start in old:
        played.behaviour.ended(start)
    assert played.would_be(flow="uid:1/old") == "loop"


@pytest.mark.parametrize(("later_s", "count"), [(0, 1), (54, 1), (60, 0), (10_000, 0)])
def test_a_start_counts_for_a_minute(later_s: int, count: int) -> None:
    starts = Starts()
    starts.add(1_000 * S)
    assert starts.count((1_000 + later_s) * S) == count


def test_a_class_below_without_bounds_takes_what_is_left() -> None:
    text = '[[class]]\nname = "agents"\nrank = 5\n[[class]]\nname = "batch"\nrank = 9\n'
    played = Played(text)
    assert isinstance(played.classes[2], ClassConfig)
    assert played.classes_of(17)[-1] == "agents"
