"""The configuration as one value, and the error that there is none."""

import pytest

from onegate.config.model import MAX_PROBLEMS_SHOWN, Config, ConfigError, ConfigProblem


def test_an_error_shows_every_problem() -> None:
    error = ConfigError([ConfigProblem("a.b", "is wrong"), ConfigProblem("c", "is, too")])
    assert str(error) == "a.b: is wrong\nc: is, too"


def test_an_error_shows_no_more_than_anybody_reads() -> None:
    error = ConfigError([ConfigProblem("a", "x")] * (MAX_PROBLEMS_SHOWN + 5))
    assert str(error).endswith("and 5 more")
    assert len(str(error).splitlines()) == MAX_PROBLEMS_SHOWN + 1
    assert len(error.errors) == MAX_PROBLEMS_SHOWN + 5


def test_nothing_changes_it_after_it_was_checked() -> None:
    config = Config()
    with pytest.raises(AttributeError, match="immutable"):
        config.gate.max_in_flight = 3  # type: ignore[misc]
    with pytest.raises(AttributeError, match="immutable"):
        config.classes = ()  # type: ignore[misc]
