"""The account of a class with a floor."""

import pytest

from onegate.admission.floor import Floor

# Tokens that the pool has computed within the window.
ALL = 10_000


def test_a_share_of_everything_is_earned() -> None:
    floor = Floor(0.1)
    floor.earn(500, ALL)
    floor.earn(500, ALL)
    assert floor.credit_tok == pytest.approx(100)


@pytest.mark.parametrize(
    ("credit", "head_tok", "owed"),
    [(99, 1000, False), (100, 1000, True), (29, 30, False), (30, 30, True), (0.5, 0, False)],
)
def test_a_quantum_or_the_whole_of_a_smaller_request_must_be_earned(
    credit: float, head_tok: int, owed: bool
) -> None:
    floor = Floor(0.5)
    floor.earn(int(credit * 2), ALL)
    assert floor.owed(head_tok, 100) is owed


def test_a_floor_grant_may_leave_a_debt_and_what_it_left_comes_back() -> None:
    floor = Floor(0.1)
    floor.earn(1000, ALL)
    floor.spend(100)
    floor.spend(300)
    assert floor.credit_tok == pytest.approx(-300)
    floor.repay(40)
    assert floor.credit_tok == pytest.approx(-260)


def test_what_is_given_anyway_uses_up_credit_and_makes_no_debt() -> None:
    floor = Floor(0.1)
    floor.earn(1000, ALL)
    floor.count(30, ALL)
    assert floor.credit_tok == pytest.approx(70)
    assert floor.lead_tok == 0
    floor.count(1000, ALL)
    assert floor.credit_tok == 0
    floor.spend(50)
    floor.count(1000, ALL)
    assert floor.credit_tok == -50


def test_what_is_given_beyond_that_is_a_lead_that_is_earned_off_first() -> None:
    floor = Floor(0.1)
    floor.earn(100, ALL)
    floor.count(110, ALL)
    assert (floor.credit_tok, floor.lead_tok) == (0, 100)
    floor.earn(600, ALL)
    assert (floor.credit_tok, floor.lead_tok) == (0, 40)
    floor.earn(600, ALL)
    assert (floor.credit_tok, floor.lead_tok) == (20, 0)


def test_a_lead_is_a_share_of_the_window_at_most() -> None:
    floor = Floor(0.1)
    floor.count(5000, ALL)
    assert floor.lead_tok == 1000
    floor.earn(100, 2000)  # by now less has been computed lately
    assert (floor.credit_tok, floor.lead_tok) == (0, 190)
    floor.earn(100, 0)
    assert (floor.credit_tok, floor.lead_tok) == (10, 0), "an idle night is nothing to pay for"


def test_a_lead_does_not_pay_for_a_grant() -> None:
    floor = Floor(0.1)
    floor.count(500, ALL)
    floor.spend(50)
    assert (floor.credit_tok, floor.lead_tok) == (-50, 500)
    floor.idle()
    assert floor.lead_tok == 500


def test_credit_is_for_those_who_wait_and_debt_stays() -> None:
    floor = Floor(0.1)
    floor.earn(1000, ALL)
    floor.idle()
    assert floor.credit_tok == 0
    floor.spend(50)
    floor.idle()
    assert floor.credit_tok == -50
