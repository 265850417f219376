"""The account of a class with a floor."""

import pytest

from onegate.admission.floor import Floor


def test_a_share_of_everything_is_earned() -> None:
    floor = Floor(0.1)
    floor.earn(500)
    floor.earn(500)
    assert floor.credit_tok == pytest.approx(100)


@pytest.mark.parametrize(
    ("credit", "head_tok", "owed"),
    [(99, 1000, False), (100, 1000, True), (29, 30, False), (30, 30, True), (0.5, 0, False)],
)
def test_a_quantum_or_the_whole_of_a_smaller_request_must_be_earned(
    credit: float, head_tok: int, owed: bool
) -> None:
    floor = Floor(0.5)
    floor.earn(int(credit * 2))
    assert floor.owed(head_tok, 100) is owed


def test_a_floor_grant_may_leave_a_debt_and_what_it_left_comes_back() -> None:
    floor = Floor(0.1)
    floor.earn(1000)
    floor.spend(100)
    floor.spend(300)
    assert floor.credit_tok == pytest.approx(-300)
    floor.repay(40)
    assert floor.credit_tok == pytest.approx(-260)


def test_what_is_given_anyway_uses_up_credit_and_makes_no_debt() -> None:
    floor = Floor(0.1)
    floor.earn(1000)
    floor.count(30)
    assert floor.credit_tok == pytest.approx(70)
    floor.count(1000)
    assert floor.credit_tok == 0
    floor.spend(50)
    floor.count(1000)
    assert floor.credit_tok == -50


def test_credit_is_for_those_who_wait_and_debt_stays() -> None:
    floor = Floor(0.1)
    floor.earn(1000)
    floor.idle()
    assert floor.credit_tok == 0
    floor.spend(50)
    floor.idle()
    assert floor.credit_tok == -50
