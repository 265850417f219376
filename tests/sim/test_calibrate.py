"""The arithmetic of the calibration; the engine itself is measured by hand."""

import pytest
from tests.sim.calibrate import arrivals, compared, play_simulated, waits_ms
from tests.sim.costs import Costs
from tests.sim.profiles import PROFILES
from tests.sim.real import Arrival, Seen
from tests.sim.run import people_for, standard

COSTS = Costs(20e6, 8e6, 9e6, 5e6, 3e6, 0.5e6, 200.0, 5e3)


def test_the_arrivals_are_the_same_every_time_and_a_part_of_what_can_be_done() -> None:
    asks = arrivals(1, COSTS, 16)
    assert asks == arrivals(1, COSTS, 16)
    assert asks != arrivals(2, COSTS, 16)
    busy_ns = sum(
        ask.prompt_tok * COSTS.prompt_tok_ns + ask.output_tok * (COSTS.step_ns / 16 + COSTS.seq_ns)
        for ask in asks
    )
    assert busy_ns / 45e9 == pytest.approx(0.5, abs=0.2)


def test_what_is_simulated_costs_what_was_measured() -> None:
    machine = PROFILES["host"]()
    (seen,) = play_simulated([Arrival(0, 32, 3)], machine)
    waits = waits_ms([seen])
    assert waits["TTFT"] == pytest.approx([machine.cost_ns(32, 1, 32 * 16, changed=True) / 1e6])
    steps = [
        machine.cost_ns(0, 1, read_tok=32 + made_tok, changed=made_tok == 1) / 1e6
        for made_tok in (1, 2)
    ]
    assert waits["ITL"] == pytest.approx(steps)


def test_the_table_has_the_noise_beside_the_ratio() -> None:
    first = [Seen(0, [10_000_000, 30_000_000])]
    again = [Seen(0, [20_000_000, 60_000_000])]
    text = compared(first, again, [Seen(0, [15_000_000, 45_000_000])])
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    assert ["TTFT p50 ms", "10.0", "2.00", "15.0", "1.50"] in cells
    assert ["ITL p95 ms", "40.0", "2.00", "30.0", "0.75"] in cells


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_people_fit_into_every_machine(name: str) -> None:
    machine = PROFILES[name]()
    asks = people_for(machine, 0, 900)
    assert len(asks) > 20
    longest = max(ask.prompt_tok + ask.max_tok for ask in asks)
    assert longest <= machine.capacity.max_context_tok
    assert standard(machine).limits.max_in_flight > machine.capacity.max_seqs
