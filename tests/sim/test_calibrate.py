"""The arithmetic of the calibration; the engine itself is measured by hand."""

import pytest
from tests.sim.calibrate import (
    Arrival,
    Costs,
    Row,
    arrivals,
    fit,
    middle,
    play_simulated,
    waits_ms,
)
from tests.sim.profiles import PROFILES
from tests.sim.run import people_for, standard

COSTS = (20e6, 3e6, 0.5e6, 200.0)
PROMPTS = [(1, 32), (1, 128), (1, 256), (2, 512), (4, 1024)]
SHAPES = [(1, n, 0, 0) for n in (1, 2, 4, 8)] + [(n, n, tok, tok**2 / 2) for n, tok in PROMPTS]


def taking(costs: Costs) -> list[Row]:
    return [(*shape, sum(a * b for a, b in zip(shape, costs, strict=True))) for shape in SHAPES]


def test_costs_that_were_planted_are_found() -> None:
    assert fit(taking(COSTS)) == pytest.approx(COSTS)


def test_one_wrong_time_of_many_moves_nothing() -> None:
    rows = taking(COSTS) * 5
    rows[0] = (*rows[0][:4], rows[0][4] * 3)
    assert fit(middle(rows)) == pytest.approx(COSTS)


def test_no_cost_is_negative() -> None:
    """Times that fall with more sequences are noise, and cost nothing by the sequence."""
    found = fit(taking((20e6, -1e6, 0.5e6, 200.0)))
    assert min(found) >= 0
    assert found[1] == 0


def test_the_arrivals_are_the_same_every_time_and_a_part_of_what_can_be_done() -> None:
    asks = arrivals(1, COSTS, 16)
    assert asks == arrivals(1, COSTS, 16)
    assert asks != arrivals(2, COSTS, 16)
    step_ns, seq_ns, prompt_tok_ns, _ = COSTS
    busy_ns = sum(
        ask.prompt_tok * prompt_tok_ns + ask.output_tok * (step_ns / 16 + seq_ns) for ask in asks
    )
    assert busy_ns / 30e9 == pytest.approx(0.6, abs=0.3)


def test_what_is_simulated_costs_what_was_measured() -> None:
    machine = PROFILES["host"]()
    (seen,) = play_simulated([Arrival(0, 32, 3)])
    waits = waits_ms([seen])
    assert waits["TTFT"] == pytest.approx([machine.cost_ns(32, 1, 32 * 16) / 1e6])
    assert waits["ITL"] == pytest.approx([machine.cost_ns(0, 1) / 1e6] * 2)


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_people_fit_into_every_machine(name: str) -> None:
    machine = PROFILES[name]()
    asks = people_for(machine, 0, 900)
    assert len(asks) > 20
    longest = max(ask.prompt_tok + ask.max_tok for ask in asks)
    assert longest <= machine.capacity.max_context_tok
    assert standard(machine).limits.max_in_flight > machine.capacity.max_seqs
