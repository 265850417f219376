"""What refused callers do."""

from onegate.bench.comeback import HAMMER_MS, Comeback, comeback
from onegate.bench.scenario import Retry
from onegate.bench.targets.base import Refused

HINTED = Refused("class_full", retry_after_ms=700.0, ticket="t")
PLAIN = Refused("class_full")


def test_who_never_retries_gives_up() -> None:
    assert comeback(Retry(), HINTED, 1) is None


def test_who_honours_comes_back_on_time_with_the_ticket() -> None:
    rule = Retry(kind="honour", wait_ms=1234)
    assert comeback(rule, HINTED, 1) == Comeback(700.0, "t")
    assert comeback(rule, PLAIN, 1) == Comeback(1234.0)


def test_others_do_not_listen() -> None:
    assert comeback(Retry(kind="hammer"), HINTED, 1) == Comeback(HAMMER_MS)
    assert comeback(Retry(kind="constant", wait_ms=50), HINTED, 1) == Comeback(50.0)


def test_everybody_gives_up_some_time() -> None:
    assert comeback(Retry(kind="hammer", most=3), PLAIN, 2) is not None
    assert comeback(Retry(kind="hammer", most=3), PLAIN, 3) is None
