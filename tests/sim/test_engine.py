"""The simulated engine by itself: what it costs, what it tells, and what it is given."""

import dataclasses
from dataclasses import replace

import pytest
from tests.sim.engine import Engine, Machine, Work

from onegate.admission.model import PoolCapacity, Reservation
from onegate.engines.base import EngineRequest

CAPACITY = PoolCapacity(4, 10_000, Reservation.GROW, kv_tok=100_000, max_step_tok=512, block_tok=16)
MACHINE = Machine(CAPACITY, step_ns=10_000, seq_ns=100, prompt_tok_ns=10)


class Heard:
    """Everything that the engine says."""

    def __init__(self) -> None:
        self.said: list[tuple] = []

    def prefilled(self, *what: int) -> None:
        self.said.append(("prefilled", *what))

    def produced(self, *what: int) -> None:
        self.said.append(("produced", *what))

    def finished(self, id: int) -> None:
        self.said.append(("finished", id))

    def left(self, id: int) -> None:
        self.said.append(("left", id))


def engine(machine: Machine = MACHINE, answer_tok: int = 3) -> tuple[Engine, Heard]:
    heard = Heard()
    return Engine(machine, lambda prompt: answer_tok, heard), heard


def work(id: int, prompt_tok: int, **more: object) -> Work:
    return replace(Work(id, id, prompt_tok, 100, 0, 0, "p"), **more)


def step(engine: Engine) -> int | None:
    cost_ns = engine.begin()
    if cost_ns is not None:
        engine.end()
    return cost_ns


def test_it_is_given_nothing_that_a_real_engine_is_not() -> None:
    of_request = {
        "id": "id", "prompt": "prompt_tok_ids", "prompt_tok": "prompt_tok_ids",
        "max_tok": "max_tokens", "resume_tok": "resume_tok_ids", "rank": "rank",
        "cache_salt": "cache_salt",
    }  # fmt: skip
    assert {field.name for field in dataclasses.fields(Work)} == of_request.keys()
    assert set(of_request.values()) <= set(EngineRequest.__struct_fields__)


def test_a_step_costs_what_the_model_says_and_prompts_come_in_pieces() -> None:
    e, heard = engine()
    e.take(work(1, 1000))
    assert step(e) == 10_000 + 100 + 10 * 512
    assert step(e) == 10_000 + 100 + 10 * 488
    assert step(e) == 10_000 + 100
    assert step(e) == 10_000 + 100
    assert step(e) is None
    assert heard.said == [
        ("prefilled", 1, 512, 512),
        ("produced", 1, 1, 488),
        ("produced", 1, 2, 0),
        ("produced", 1, 3, 0),
        ("finished", 1),
    ]


def test_what_is_read_is_paid_for_and_company_too() -> None:
    """Steps cost more by what is before a token, and at once by more where there are several."""
    e, _ = engine(replace(MACHINE, prompt_tok_ns=0, attend_ns=2, read_ns=3, many_ns=1000,
                            mixed_ns=5000))  # fmt: skip
    e.take(work(1, 600))
    assert step(e) == 10_000 + 100 + 1000 + 2 * 512 * 256
    assert step(e) == 10_000 + 100 + 1000 + 2 * 88 * (512 + 44)
    e.take(work(2, 1))
    assert step(e) == 10_000 + 200 + 1000 + 5000 + 3 * 601 + 2 * 0.5
    e.stop(1)
    assert step(e) == 10_000 + 200 + 1000 + 3 * (602 + 2)
    assert step(e) == 10_000 + 100 + 3 * 3


def test_a_step_unlike_the_one_before_costs_more() -> None:
    e, _ = engine(replace(MACHINE, prompt_tok_ns=0, change_ns=700))
    e.take(work(1, 512 * 2))
    assert step(e) == 10_000 + 100 + 700
    assert step(e) == 10_000 + 100
    assert step(e) == 10_000 + 100 + 700
    e.take(work(2, 1))
    assert step(e) == 10_000 + 200 + 700
    assert step(e) == 10_000 + 100 + 700


@pytest.mark.parametrize("by_rank", [True, False])
def test_prompts_in_order_of_rank_or_of_arrival(by_rank: bool) -> None:
    e, heard = engine(replace(MACHINE, by_rank=by_rank))
    e.take(work(1, 600, rank=2))
    e.take(work(2, 500))
    step(e)
    first = ("produced", 2, 1, 500) if by_rank else ("prefilled", 1, 512, 512)
    assert heard.said[-1] == first if by_rank else heard.said == [first]


def test_answers_that_run_take_from_what_a_step_has_for_prompts() -> None:
    e, heard = engine(answer_tok=50)
    e.take(work(1, 10))
    e.take(work(2, 10))
    step(e)
    e.take(work(3, 1000))
    step(e)
    assert ("prefilled", 3, 510, 510) in heard.said


def test_what_is_stopped_leaves_with_what_it_has_made_by_the_end_of_the_step() -> None:
    e, heard = engine(answer_tok=5)
    e.take(work(1, 10))
    step(e)
    e.begin()
    e.stop(1)
    e.end()
    assert heard.said[-2:] == [("produced", 1, 2, 0), ("left", 1)]
    assert not e.running


def test_what_finishes_in_that_step_has_finished() -> None:
    e, heard = engine(answer_tok=2)
    e.take(work(1, 10))
    step(e)
    e.begin()
    e.stop(1)
    e.end()
    assert heard.said[-1] == ("finished", 1)


def test_a_resumed_answer_goes_on_where_it_was() -> None:
    e, heard = engine(answer_tok=5)
    e.take(work(1, 10, resume_tok=3, max_tok=97))
    assert step(e) == 10_000 + 100 + 10 * 13
    assert step(e) == 10_000 + 100
    assert heard.said == [("produced", 1, 1, 13), ("produced", 1, 2, 0), ("finished", 1)]


def test_an_answer_is_cut_at_its_bound() -> None:
    e, heard = engine(answer_tok=50)
    e.take(work(1, 10, max_tok=1))
    step(e)
    assert heard.said[-1] == ("finished", 1)


def test_a_prefix_cache_finds_what_was_stopped_for_its_owner_alone() -> None:
    e, _ = engine(MACHINE.with_cache(10_000), answer_tok=50)
    assert e.take(work(1, 100, prompt=7)) == 0
    step(e)
    e.stop(1)
    step(e)
    # Prompt and two tokens are there, in whole blocks; the last token is computed again.
    assert e.take(work(2, 100, prompt=7, resume_tok=2)) == 96
    assert e.take(work(3, 100, prompt=7, cache_salt="q")) == 0
    assert e.take(work(4, 64, prompt=7)) == 48


def test_a_prefix_cache_forgets_what_was_used_longest_ago() -> None:
    e, _ = engine(MACHINE.with_cache(250), answer_tok=1)
    for id in (1, 2, 3):
        e.take(work(id, 100))
        step(e)
    assert e.take(work(4, 100, prompt=1)) == 0
    assert e.take(work(5, 100, prompt=3)) == 96


def test_without_one_everything_is_computed_again() -> None:
    e, _ = engine(answer_tok=1)
    e.take(work(1, 100))
    step(e)
    assert e.take(work(2, 100, prompt=1)) == 0


def test_more_than_there_are_seats_fails_the_run() -> None:
    e, _ = engine()
    for id in range(4):
        e.take(work(id, 10))
    with pytest.raises(AssertionError, match="seats"):
        e.take(work(9, 10))


def test_more_than_a_full_reservation_holds_fails_the_run() -> None:
    full = replace(CAPACITY, reservation=Reservation.FULL, kv_tok=300)
    e, _ = engine(replace(MACHINE, capacity=full))
    e.take(work(1, 100))
    with pytest.raises(AssertionError, match="cache"):
        e.take(work(2, 100))


def test_a_growing_cache_that_is_full_drops_the_newest_and_begins_it_anew() -> None:
    e, heard = engine(replace(MACHINE, capacity=replace(CAPACITY, kv_tok=220)), answer_tok=20)
    e.take(work(1, 100))
    e.take(work(2, 100))
    while step(e) is not None:
        continue
    assert e.evictions == 1
    ends = [said for said in heard.said if said[0] == "finished"]
    assert ends == [("finished", 1), ("finished", 2)]
    made = [said[2] for said in heard.said if said[:2] == ("produced", 2)]
    assert made == list(range(1, 21))
