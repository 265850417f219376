"""The simulator itself: what happens to what is stopped, and that runs can be compared."""

import statistics
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.sim.clients import Client, Crowd, Retry
from tests.sim.counterfactual import Verdict, if_let_in
from tests.sim.figures import measure, quantile
from tests.sim.job import Job
from tests.sim.profiles import CACHE_TOK, slots
from tests.sim.run import Case, standard
from tests.sim.workload import CHAT, CODE, Ask, papers, people, stream
from tests.sim.world import SECOND, Box

from onegate.admission.model import RequestSpec, Resume

ANSWER_TOK = 300


def stopped_once(resume: Resume, cache_tok: int = 0) -> tuple[Box, int]:
    """A batch answer that makes room for a person half-way; the box, and what it had by then."""
    machine = slots(1).with_cache(cache_tok)
    setup = standard(machine).gate(recompute_share=1.0)
    box = Box(setup.classes, {"m": machine}, setup.limits)
    job = box.submit("batch", 1000, ANSWER_TOK, resume=resume)
    box.run(lambda: job.made_tok == ANSWER_TOK // 2)
    box.submit("interactive", 100, 5)
    box.run(lambda: job.run is None)
    had_tok = job.made_tok + job.lost_tok
    box.run(lambda: job.ended_ns is not None)
    assert job.finished
    assert job.preempted == 1
    assert job.made_tok == ANSWER_TOK
    return box, had_tok


def test_an_exact_one_goes_on_and_its_prompt_is_computed_twice() -> None:
    box, had_tok = stopped_once(Resume.EXACT)
    job = box.jobs[1]
    assert job.lost_tok == 0
    assert job.decoded_tok == ANSWER_TOK
    assert job.again_tok == 1000 + had_tok
    assert measure(box).wasted == 0
    box.go_home()


def test_a_prefix_cache_saves_all_of_it_but_a_block() -> None:
    box, _ = stopped_once(Resume.EXACT, CACHE_TOK)
    assert box.jobs[1].again_tok <= 16


def test_one_that_restarts_loses_what_it_had() -> None:
    box, had_tok = stopped_once(Resume.RESTART)
    job = box.jobs[1]
    assert job.lost_tok == had_tok
    assert job.decoded_tok == ANSWER_TOK + had_tok
    assert measure(box).wasted == pytest.approx(had_tok / (ANSWER_TOK + had_tok + 5))
    box.go_home()


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    machine = slots(2)
    case = Case(machine, standard(machine), people(1, seconds=20), 1, 20)
    first, again = (measure(case.play()[0]) for _ in range(2))
    assert first == again
    other = replace(case, asks=people(2, seconds=20))
    assert measure(other.play()[0]).ttft_ms != first.ttft_ms


def test_arrivals_do_not_depend_on_what_else_is_in_the_box() -> None:
    machine = slots(8)
    case = Case(machine, standard(machine), people(1, seconds=20), 1, 20)
    boxes = [replace(case, batch=batch).play()[0] for batch in (True, False)]
    arrived = [
        [(j.arrived_ns, j.spec.prompt_tok, j.output_tok) for j in box.of_class("interactive")]
        for box in boxes
    ]
    assert arrived[0] == arrived[1]
    assert len(arrived[0]) > 10


def test_what_is_told_to_the_core_does_not_depend_on_true_lengths() -> None:
    """Until an answer ends, a longer one looks the same."""
    machine = slots(1)
    setup = standard(machine)
    said = []
    for output_tok in (50, 60):
        told: list[object] = []
        box = Box(
            setup.classes,
            {"m": machine},
            setup.limits,
            record=lambda now_ns, event, _, told=told: told.append((now_ns, event)),
        )
        job = box.submit("batch", 100, output_tok, max_tok=1000)
        box.run(lambda job=job: job.made_tok == 49)
        said.append(told)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("source", "rate", "prompt_tok", "output_tok", "cv"),
    [(CHAT, 0.8, (1020, 4083), (129, 451), 1.09), (CODE, 0.4, (1469, 7315), (13, 90), 5.3)],
    ids=["conversation", "code"],
)
def test_arrivals_have_the_statistics_of_the_traces(
    monkeypatch, source, rate, prompt_tok, output_tok, cv
) -> None:
    monkeypatch.delenv("ONEGATE_TRACES", raising=False)
    asks = stream(source, 0, seconds=20_000, rate=rate, name="x")
    gaps = [after.at_ns - before.at_ns for before, after in pairwise(asks)]
    assert len(asks) / 20_000 == pytest.approx(rate, rel=0.15)
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.15)
    for name, (p50, p95) in (("prompt_tok", prompt_tok), ("output_tok", output_tok)):
        drawn = [getattr(ask, name) for ask in asks]
        assert quantile(drawn, 0.5) == pytest.approx(p50, rel=0.1)
        assert quantile(drawn, 0.95) == pytest.approx(p95, rel=0.1)
    # What is asked for tells nothing of how long it will be.
    assert {ask.max_tok for ask in asks} == {source.max_tok}
    assert max(drawn) <= source.max_tok


def refusing(*ttft_ms: int) -> tuple[Crowd, list[Client]]:
    """One seat, a bound of one waiting prompt, and people at once who wait so long."""
    machine = slots(1)
    setup = standard(machine).each_class(max_queued_tok=150)
    crowd = Crowd(Box(setup.classes, {"m": machine}, setup.limits))
    ask = Ask(0, "interactive", "u", "u", 100, 20, 20, ttft_is_own=True)
    refused: list[Client] = []
    crowd.on_refused = refused.append
    crowd.come(replace(ask, ttft_ns=ms * SECOND // 1000) for ms in ttft_ms)
    crowd.box.run_until(1)
    assert len(refused) == 1
    return crowd, refused


@pytest.mark.parametrize(
    ("ttft_ms", "alone", "net"),
    [
        ((1000, 1000, 1000), True, 1),
        ((1000, 100, 100), False, 0),
        ((1000, 300, 250), True, 0),  # it would have been in time, and another one late for it
    ],
)
def test_what_would_have_been_is_known_and_changes_nothing(
    ttft_ms: tuple[int, ...], alone: bool, net: int
) -> None:
    """With room made, a branch runs on in the state that the core was in."""
    crowd, refused = refusing(*ttft_ms)
    before = (crowd.box.told, crowd.box.now, len(crowd.box.jobs))
    queue = crowd.box.core._book.queues["interactive"]
    queue.spec = replace(queue.spec, max_queued_tok=1000)
    assert if_let_in(crowd, refused[0]) == Verdict(alone, net)
    assert (crowd.box.told, crowd.box.now, len(crowd.box.jobs)) == before


def test_a_branch_that_fails_is_not_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd, refused = refusing(1000, 1000, 1000)
    monkeypatch.setattr(crowd.box, "run_until", None)
    with pytest.raises(EOFError):
        if_let_in(crowd, refused[0])


def test_in_time_is_by_the_deadline_of_the_first_token() -> None:
    spec = RequestSpec(1, "m", "interactive", "u", "u", 10, 10, 0)
    bound = replace(spec, ttft_deadline_ns=50)
    assert Job(spec, 10, "u").in_time
    assert not Job(bound, 10, "u").in_time
    assert Job(bound, 10, "u", first_ns=50).in_time
    assert not Job(bound, 10, "u", first_ns=51).in_time


def test_who_honours_a_hint_comes_back_then_and_who_does_not_stays_away() -> None:
    for retry, attempts in ((Retry.NEVER, 1), (Retry.HONOUR, 2)):
        machine = slots(1)
        setup = standard(machine).each_class(max_queued_tok=2_000)
        crowd = Crowd(Box(setup.classes, {"m": machine}, setup.limits), retry=retry)
        asks = [
            Ask(SECOND * at // 4, "interactive", f"u{at}", f"u{at}", 500, 100, 100)
            for at in range(30)
        ]
        crowd.come(asks)
        crowd.box.run_until(60 * SECOND)
        hinted = [client for client in crowd.clients if client.hint is not None]
        assert hinted
        for client in hinted:
            assert len(client.jobs) >= attempts
            assert (len(client.jobs) > 1) == (retry is Retry.HONOUR)
            if retry is Retry.HONOUR:
                came_ns = client.jobs[1].arrived_ns - client.jobs[0].arrived_ns
                assert came_ns == client.hint.retry_after_ns


def test_the_night_never_ends() -> None:
    asks = papers(0, Resume.RESTART)
    drawn = [next(asks) for _ in range(500)]
    assert {ask.principal for ask in drawn} == {"b1", "b2"}
    assert quantile((ask.prompt_tok for ask in drawn), 0.5) == pytest.approx(2730, rel=0.1)
    assert quantile((ask.output_tok for ask in drawn), 0.5) == pytest.approx(167, rel=0.1)
