"""The shipped classes."""

from onegate.config.classes import ORDINARY_CLASS, SHIPPED_CLASSES, ClassConfig


def test_the_ordinary_class_is_shipped() -> None:
    assert ORDINARY_CLASS in {cls.name for cls in SHIPPED_CLASSES}


def test_a_new_class_starts_from_the_ordinary_one() -> None:
    ordinary = next(cls for cls in SHIPPED_CLASSES if cls.name == ORDINARY_CLASS)
    new = ClassConfig(
        name=ORDINARY_CLASS,
        rank=1,
        floor_share=0.05,
        preempt="lower_rank",
        behaviour_live=16,
        behaviour_starts_per_min=240,
    )
    assert new == ordinary


def test_who_may_stop_whom() -> None:
    assert [
        (cls.preempt, cls.preemptible, cls.preempt_grace_ms if cls.preemptible else None)
        for cls in SHIPPED_CLASSES
    ] == [("lower_rank", False, None), ("lower_rank", True, 2000), ("never", True, 0)]


def test_how_much_is_a_persons_and_a_programs_due() -> None:
    bounds = [(cls.behaviour_live, cls.behaviour_starts_per_min) for cls in SHIPPED_CLASSES]
    assert bounds == [(4, 20), (16, 240), (None, None)]


def test_nothing_is_closed_or_rationed_unless_somebody_says_so() -> None:
    for cls in (*SHIPPED_CLASSES, ClassConfig(name="new", rank=9)):
        assert (cls.run_window, cls.daily_tok, cls.itl_target_ms) == ((), None, None)
        assert cls.refuse_on == ()


def test_whoever_can_be_starved_has_a_floor() -> None:
    assert [cls.floor_share > 0 for cls in SHIPPED_CLASSES] == [False, True, True]
