"""The same arrivals for every target, whoever else runs."""

from itertools import pairwise
from typing import Any

from onegate.bench.scenario import Arrivals, Leave, Lengths
from onegate.bench.schedule import Arrival, fit, schedule
from onegate.bench.traces import Row, Trace

S = 1_000_000_000
RATES = {"chat": 4.0, "batch": 2.0}


def of(scenario: Any, **more: Any) -> list[Arrival]:
    return schedule(scenario, **({"repeat": 0, "load": 1.0, "rates": RATES} | more))


def two(made: Any, **more: Any) -> Any:
    length = Lengths(kind="uniform", low_tok=1, high_tok=500)
    return made.scenario(
        made.cls("chat", arrivals=Arrivals(rate_per_s=4.0), prompt=length, clients=3),
        made.cls("batch", arrivals=Arrivals(rate_per_s=2.0), output=length),
        **more,
    )


def test_who_else_runs_changes_nothing(made: Any) -> None:
    both = of(two(made))
    assert [a for a in both if a.cls == 0] == of(two(made), only={"chat"})
    assert [a for a in both if a.cls == 1] == of(two(made), only={"batch"})
    assert both == sorted(both, key=lambda a: a.at_ns)


def test_seed_repeat_and_load_make_other_arrivals(made: Any) -> None:
    first = of(two(made))
    assert of(two(made)) == first
    assert of(two(made, seed=2)) != first
    assert of(two(made), repeat=1) != first


def test_clients_take_turns(made: Any) -> None:
    assert [a.client for a in of(two(made), only={"chat"})][:4] == [0, 1, 2, 0]


def test_the_warm_up_lies_before_the_window_and_a_late_class_has_none(made: Any) -> None:
    late = made.cls("batch", start_s=3.0)
    found = of(made.scenario(made.cls(), late, warmup_s=2.0))
    assert min(a.at_ns for a in found if a.cls == 0) == -2_000_000_000
    assert min(a.at_ns for a in found if a.cls == 1) == 3_000_000_000


def test_some_leave_in_each_phase_in_turn(made: Any) -> None:
    leave = Leave(phases=["queued", "decode"])
    found = of(made.scenario(made.cls(leave=leave)))
    assert [a.leave for a in found][:3] == ["queued", "decode", "queued"]
    half = of(made.scenario(made.cls(leave=Leave(share=0.5))))
    assert 5 < sum(a.leave is None for a in half) < len(half)


TRACE = Trace([Row(float(i), 10 + i, 500) for i in range(10)])


def test_a_trace_gives_times_and_lengths(made: Any) -> None:
    recorded = Arrivals(kind="trace", rate_per_s=2.0, file="f")
    cls = made.cls(arrivals=recorded, output=Lengths(max_tok=100))
    found = of(made.scenario(cls), traces={"chat": TRACE}, rates={"chat": 2.0})
    assert len(found) == 20
    assert [b.at_ns - a.at_ns for a, b in pairwise(found)] == [S // 2] * 19
    assert {a.prompt_tok for a in found} == set(range(10, 20))
    assert {a.output_tok for a in found} == {100}
    twice = of(made.scenario(cls), traces={"chat": TRACE}, rates={"chat": 2.0}, load=2.0)
    assert len(twice) == 40


def test_lengths_are_cut_to_the_context() -> None:
    assert fit(10, 5, None) == (10, 5)
    assert fit(10, 5, 15) == (10, 5)
    assert fit(10_000, 5, 4096) == (4091, 5)
    assert fit(10_000, 10_000, 4096) == (2048, 2048)
    assert fit(5, 10_000, 4096) == (5, 2048)


def test_a_prompt_is_at_least_what_the_target_makes_of_a_word(made: Any) -> None:
    found = of(made.scenario(made.cls(prompt=Lengths(tok=3))), least_tok=32)
    assert {a.prompt_tok for a in found} == {32}


def test_a_scheduled_request_fits_the_context(made: Any) -> None:
    cls = made.cls(prompt=Lengths(tok=9000), output=Lengths(tok=100))
    (first, *_) = of(made.scenario(cls), context_tok=1024)
    assert first.prompt_tok + first.output_tok == 1024
    assert first.shortened
    assert not of(made.scenario(cls), context_tok=9100)[0].shortened
