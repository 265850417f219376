"""What was computed for one request: once, again, and for nothing."""

import pytest

from onegate.server.work import Work

PROMPT = 100


def run(
    work: Work,
    *,
    kept: int = 0,
    cached: int | None = 0,
    prefilled: int | None = None,
    made: int = 0,
) -> None:
    """One run of the engine: of the prompt and `kept` output it computes all, or so much."""
    work.accepted(PROMPT, kept, cached)
    if prefilled is not None:
        work.prefilled(prefilled)
    if made:
        work.produced()
    work.ran(made)


def figures(work: Work) -> tuple[int | None, int, int]:
    return work.cached_tok, work.recomputed_tok, work.discarded_tok


@pytest.mark.parametrize(("cached", "said"), [(None, None), (0, 0), (60, 60), (5000, PROMPT)])
def test_what_the_engine_has_of_the_prompt(cached: int | None, said: int | None) -> None:
    work = Work()
    run(work, cached=cached, made=10)
    assert figures(work) == (said, 0, 0)


@pytest.mark.parametrize(
    ("cached", "again"), [(None, 109), (0, 109), (96, 13), (109, 0), (110, 0), (5000, 0)]
)
def test_what_goes_on_computes_again_what_is_not_cached(cached: int | None, again: int) -> None:
    """Of the prompt and ten tokens of output the last one was in no cache yet."""
    work = Work()
    run(work, made=10)
    run(work, kept=10, cached=cached, made=5)
    assert figures(work) == (0, again, 0)


def test_what_begins_anew_loses_its_output() -> None:
    work = Work()
    run(work, made=10)
    work.begins_anew(PROMPT, 10)
    run(work, cached=32, made=10)
    assert figures(work) == (0, PROMPT - 32, 10)
    work.begins_anew(PROMPT, 10)
    run(work, made=10)
    assert figures(work) == (0, 2 * PROMPT - 32, 20)


def test_only_what_had_been_computed_is_computed_again() -> None:
    work = Work()
    run(work, prefilled=40)
    run(work, made=1)
    assert work.recomputed_tok == 40


def test_stopped_again_before_it_was_where_it_had_been() -> None:
    work = Work()
    run(work, made=11)
    run(work, kept=11, prefilled=30)
    assert work.recomputed_tok == 30
    run(work, kept=11, made=1)
    assert work.recomputed_tok == 30 + 110


def test_a_run_that_never_began_costs_nothing() -> None:
    work = Work()
    run(work, made=11)
    work.ran(0)
    assert figures(work) == (0, 0, 0)


def test_a_first_run_that_came_to_nothing_is_not_the_first() -> None:
    work = Work()
    run(work, cached=None)
    run(work, cached=20, made=1)
    assert figures(work) == (20, 0, 0)


@pytest.mark.parametrize("said", [None, 70])
def test_some_say_at_the_end_what_they_had(said: int | None) -> None:
    work = Work()
    work.accepted(PROMPT, 0, None)
    work.produced()
    work.told(said)
    work.ran(10)
    assert work.cached_tok == said
    work.accepted(PROMPT, 10, None)
    work.produced()
    work.told(said)
    work.ran(3)
    assert figures(work) == (said, 109 - (said or 0), 0)


def test_more_progress_than_there_is_counts_for_no_more() -> None:
    work = Work()
    run(work, prefilled=5000)
    run(work, made=1)
    assert work.recomputed_tok == PROMPT
