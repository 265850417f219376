"""Charges have a name, come back once, and add up."""

import pytest

from onegate.admission.ledger import BoundedLedger, Full, PoolLedger


def charged() -> PoolLedger:
    ledger = PoolLedger()
    ledger.charge(1, rank=0, kv_tok=100, prompt_tok=40)
    ledger.charge(2, rank=2, kv_tok=200, prompt_tok=60)
    ledger.charge(3, rank=2, kv_tok=0, prompt_tok=0)
    return ledger


def test_charges_add_up() -> None:
    ledger = charged()
    assert (ledger.seats, ledger.kv_tok, ledger.unprefilled_tok) == (3, 300, 100)
    assert list(ledger) == [1, 2, 3]
    assert 2 in ledger
    assert 4 not in ledger
    ledger.check(set())


@pytest.mark.parametrize(("rank", "tok"), [(0, 40), (1, 40), (2, 100), (9, 100)])
def test_unprefilled_tokens_by_rank_or_better(rank: int, tok: int) -> None:
    assert charged().unprefilled_up_to(rank) == tok


def test_a_seat_is_taken_once() -> None:
    with pytest.raises(AssertionError):
        charged().charge(1, rank=0, kv_tok=1, prompt_tok=1)


def test_a_request_turns_out_to_hold_more_or_less() -> None:
    ledger = charged()
    ledger.adjust(2, kv_tok=50)
    assert ledger.kv_tok == 150
    ledger.leave_unprefilled(2, 10)
    assert (ledger.unprefilled_of(2), ledger.unprefilled_tok) == (10, 50)
    ledger.leave_unprefilled(2, 0)
    ledger.leave_unprefilled(1, 0)
    assert ledger.unprefilled_tok == 0
    ledger.check(set())


def test_free_gives_everything_back() -> None:
    ledger = charged()
    ledger.quarantine(1)
    assert ledger.quarantined == 1
    ledger.check({1})
    for rid in (1, 2, 3):
        ledger.free(rid)
    assert (ledger.seats, ledger.kv_tok, ledger.unprefilled_tok, ledger.quarantined) == (0,) * 4
    ledger.check(set())


def test_a_seat_is_quarantined_once_and_freed_once() -> None:
    ledger = charged()
    ledger.quarantine(1)
    with pytest.raises(AssertionError):
        ledger.quarantine(1)
    ledger.free(1)
    with pytest.raises(KeyError):
        ledger.free(1)


def test_check_finds_what_does_not_add_up() -> None:
    def kv(ledger: PoolLedger) -> None:
        ledger.kv_tok += 1

    def unprefilled(ledger: PoolLedger) -> None:
        ledger._unprefilled[0] += 1

    def quarantined(ledger: PoolLedger) -> None:
        ledger.quarantined += 1

    def below_zero(ledger: PoolLedger) -> None:
        ledger.adjust(1, kv_tok=-5)

    def prompt_below_zero(ledger: PoolLedger) -> None:
        ledger.leave_unprefilled(1, -5)

    for spoil in (kv, unprefilled, quarantined, below_zero, prompt_below_zero):
        ledger = charged()
        spoil(ledger)
        with pytest.raises(AssertionError):
            ledger.check(set())
    with pytest.raises(AssertionError):
        charged().check({1})


def test_two_bounds_by_key_and_in_all() -> None:
    ledger = BoundedLedger(total_limit=10, per_key_limit=6)
    assert ledger.try_charge("a", 6) is None
    assert ledger.try_charge("a", 1) == Full(True, 6, 6)
    assert ledger.try_charge("b", 5) == Full(False, 10, 6)
    assert ledger.try_charge("b", 4) is None
    assert (ledger.total, ledger.used("a"), ledger.used("b"), ledger.used("c")) == (10, 6, 4, 0)


def test_what_is_given_back_is_forgotten() -> None:
    ledger = BoundedLedger(10, 10)
    assert ledger.try_charge("a", 0) is None
    assert len(ledger) == 0
    ledger.try_charge("a", 6)
    ledger.refund("a", 2)
    assert (len(ledger), ledger.total, ledger.used("a")) == (1, 4, 4)
    ledger.refund("a", 4)
    ledger.refund("a", 0)
    assert (len(ledger), ledger.total) == (0, 0)


def test_nobody_gives_back_more_than_he_has_or_takes_less_than_nothing() -> None:
    ledger = BoundedLedger(10, 10)
    ledger.try_charge("a", 3)
    for amount in (4, -1):
        with pytest.raises(AssertionError):
            ledger.refund("a", amount)
    with pytest.raises(AssertionError):
        ledger.try_charge("a", -1)


def test_new_limits_hold_for_newcomers_only() -> None:
    ledger = BoundedLedger(10, 6)
    ledger.try_charge("a", 6)
    ledger.change_limits(total_limit=5, per_key_limit=3)
    assert ledger.used("a") == 6
    assert ledger.try_charge("a", 1) == Full(True, 3, 6)
    assert ledger.try_charge("b", 1) == Full(False, 5, 6)


def test_the_check_knows_whose_seat_is_quarantined() -> None:
    ledger = charged()
    ledger.quarantine(2)
    ledger.check({2})
    with pytest.raises(AssertionError):
        ledger.check({1})


def test_the_check_sees_a_negative_charge_that_another_makes_up_for() -> None:
    ledger = PoolLedger()
    ledger.charge(1, rank=0, kv_tok=0, prompt_tok=-1)
    ledger.charge(2, rank=0, kv_tok=0, prompt_tok=1)
    with pytest.raises(AssertionError):
        ledger.check(set())
