"""When to try again."""

import pytest

from onegate.client.errors import InvalidRequest, Rejected, Unavailable, invalid
from onegate.client.request import Retry
from onegate.client.retry import MAX_DEATHS, TAKEN_NS, Patience
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason

S = 1_000_000_000


def refused(reason: Reason, retry_after_ms: int | None = None) -> Rejected:
    return Rejected(
        m.Failed(
            reason=reason,
            message="a sentence",
            retryable=True,
            phase=Phase.ARRIVAL,
            retry_after_ms=retry_after_ms,
        )
    )


def patience(retry: Retry = "restart", deadline_ns: int | None = None) -> Patience:
    return Patience(retry, restart_timeout=10.0, deadline_ns=deadline_ns, backoff=lambda n: n / 10)


@pytest.mark.parametrize("error", [refused(Reason.TOKENS_FULL, 100), refused(Reason.PAUSED, 1)])
def test_by_default_a_refusal_is_the_callers_business(error: Rejected) -> None:
    with pytest.raises(Rejected) as caught:
        patience().wait_s(error, 0)
    assert caught.value is error


def test_a_restart_is_waited_for_as_long_as_the_daemon_says() -> None:
    assert patience().wait_s(refused(Reason.SHUTTING_DOWN, 700), 0) == 0.7


def test_without_a_hint_the_waits_grow() -> None:
    waiting = patience()
    error = refused(Reason.SHUTTING_DOWN)
    assert [waiting.wait_s(error, n * S) for n in range(3)] == [0.1, 0.2, 0.3]


def test_while_it_restarts_a_missing_daemon_is_no_surprise() -> None:
    waiting = patience()
    waiting.wait_s(refused(Reason.SHUTTING_DOWN), 0)
    assert waiting.wait_s(Unavailable("gone"), S, connecting=True) == 0.2


def test_a_missing_daemon_that_did_not_say_goodbye_is_not_waited_for() -> None:
    with pytest.raises(Unavailable):
        patience().wait_s(Unavailable("gone"), 0, connecting=True)


def test_a_connection_that_breaks_is_not_a_restart() -> None:
    waiting = patience()
    waiting.wait_s(refused(Reason.SHUTTING_DOWN), 0)
    with pytest.raises(Unavailable):
        waiting.wait_s(Unavailable("broke while it was asked"), S)


def test_what_a_dead_daemon_took_with_it_is_asked_again_by_the_patient() -> None:
    waiting = patience("honour")
    first = Unavailable("broke while it was asked")
    assert waiting.wait_s(first, 0) == 0.1
    assert waiting.wait_s(Unavailable("not back yet"), S, connecting=True) == 0.2
    assert waiting.wait_s(Unavailable("broke again"), 2 * S) == 0.3
    with pytest.raises(Unavailable) as caught:  # a request that kills each daemon it meets
        waiting.wait_s(Unavailable("broke again"), 10 * S)
    assert caught.value is first


def test_a_daemon_that_was_never_there_is_not_waited_for_by_anybody() -> None:
    with pytest.raises(Unavailable):
        patience("honour").wait_s(Unavailable("gone"), 0, connecting=True)


def test_a_daemon_that_stays_away_ends_in_the_refusal() -> None:
    waiting = patience()
    first = refused(Reason.SHUTTING_DOWN)
    waiting.wait_s(first, 0)
    with pytest.raises(Rejected) as caught:
        waiting.wait_s(Unavailable("gone"), 10 * S, connecting=True)
    assert caught.value is first
    assert isinstance(caught.value.__cause__, Unavailable)


def test_the_window_does_not_begin_anew_with_each_refusal() -> None:
    waiting = patience()
    for at in range(10):
        waiting.wait_s(refused(Reason.SHUTTING_DOWN, 0), at * S)
    with pytest.raises(Rejected):
        waiting.wait_s(refused(Reason.SHUTTING_DOWN, 0), 10 * S + 1)


def test_never_is_never() -> None:
    for error in (refused(Reason.SHUTTING_DOWN, 1), refused(Reason.TOKENS_FULL, 1)):
        with pytest.raises(Rejected):
            patience("never").wait_s(error, 0)


def test_honour_waits_for_every_hint_as_often_as_it_comes() -> None:
    waiting = patience("honour")
    waits = [waiting.wait_s(refused(Reason.CLASS_FULL, ms), 0) for ms in (100, 2000, 100)]
    assert waits == [0.1, 2.0, 0.1]


def test_there_is_nothing_to_honour_without_a_hint() -> None:
    with pytest.raises(Rejected):
        patience("honour").wait_s(refused(Reason.CLASS_FULL), 0)


def test_honour_does_not_repeat_what_cannot_help() -> None:
    with pytest.raises(InvalidRequest):
        patience("honour").wait_s(invalid("no"), 0)


@pytest.mark.parametrize("reason", [Reason.CLASS_FULL, Reason.SHUTTING_DOWN])
def test_a_wait_beyond_the_callers_own_deadline_is_not_begun(reason: Reason) -> None:
    waiting = patience("honour", deadline_ns=5 * S)
    assert waiting.wait_s(refused(reason, 1000), 3 * S) == 1.0
    with pytest.raises(Rejected):
        waiting.wait_s(refused(reason, 1000), 4 * S)


@pytest.mark.parametrize(
    ("retry", "error"),
    [
        ("restart", refused(Reason.SHUTTING_DOWN)),
        ("honour", refused(Reason.SHUTTING_DOWN)),
        ("honour", Unavailable("it closed the connection")),
    ],
)
def test_a_second_restart_has_a_window_of_its_own(
    retry: Retry, error: Rejected | Unavailable
) -> None:
    one = patience(retry)
    one.wait_s(error, 0)
    assert one.wait_s(error, 60 * S, held_ns=TAKEN_NS) == 0.1
    with pytest.raises(type(error)):
        one.wait_s(error, 120 * S, held_ns=TAKEN_NS - 1)


def test_what_daemon_after_daemon_dies_of_is_left_alone() -> None:
    one, gone = patience("honour"), Unavailable("it closed the connection")
    for n in range(MAX_DEATHS):
        one.wait_s(gone, n * 60 * S, held_ns=TAKEN_NS)
    with pytest.raises(Unavailable) as caught:
        one.wait_s(gone, MAX_DEATHS * 60 * S, held_ns=TAKEN_NS)
    assert caught.value is gone


def test_restarts_that_say_so_are_no_deaths() -> None:
    one = patience("honour")
    for n in range(3 * MAX_DEATHS):
        one.wait_s(refused(Reason.SHUTTING_DOWN), n * 60 * S, held_ns=TAKEN_NS)
