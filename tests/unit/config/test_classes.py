"""The shipped classes."""

from onegate.config.classes import ORDINARY_CLASS, SHIPPED_CLASSES, ClassConfig


def test_the_ordinary_class_is_shipped() -> None:
    assert ORDINARY_CLASS in {cls.name for cls in SHIPPED_CLASSES}


def test_a_new_class_starts_from_the_ordinary_one() -> None:
    ordinary = next(cls for cls in SHIPPED_CLASSES if cls.name == ORDINARY_CLASS)
    assert ClassConfig(name=ORDINARY_CLASS, rank=1, floor_share=0.05) == ordinary


def test_whoever_can_be_starved_has_a_floor() -> None:
    assert [cls.floor_share > 0 for cls in SHIPPED_CLASSES] == [False, True, True]
