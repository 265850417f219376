"""The engine by the processor's clock, with an engine of the test's own."""

import asyncio
from types import SimpleNamespace

import pytest
from tests.sim import real
from tests.sim.real import Arrival, Stepped

from onegate.engines.base import EngineChunk, PoolState
from onegate.engines.host.engine import StepReport
from onegate.engines.host.wire import Output

MS = 1_000_000


class Steady:
    """A token for everybody in each step, which takes `clock` 10 ms."""

    def __init__(self, clock: list[int]) -> None:
        self.clock = clock
        self.left: dict[int, int] = {}
        self.most = 0

    def pools(self) -> list[SimpleNamespace]:
        capacity = SimpleNamespace(max_seqs=2)
        return [SimpleNamespace(state=PoolState.READY, model="m", capacity=capacity)]

    def submit(self, request: SimpleNamespace) -> None:
        self.left[request.id] = request.max_tokens

    def step(self) -> StepReport:
        self.clock[0] += 10 * MS
        self.most = max(self.most, len(self.left))
        report = StepReport()
        for id in list(self.left):
            report.outputs.append(Output(id=id, chunk=EngineChunk(n_tok=1, text="a")))
            self.left[id] -= 1
            if not self.left[id]:
                del self.left[id]
                report.freed.append(id)
        return report


@pytest.fixture
def stepped(monkeypatch: pytest.MonkeyPatch) -> Stepped:
    clock = [5 * MS]
    monkeypatch.setattr(real, "openvino_plan", lambda config: SimpleNamespace(table=dict))
    monkeypatch.setattr(real, "read_settings", lambda table: None)
    monkeypatch.setattr(real.build, "build_engine", lambda settings, hang_up: Steady(clock))
    monkeypatch.setattr(real.time, "process_time_ns", lambda: clock[0])
    return Stepped()


def play(stepped: Stepped, *asks: Arrival, late: Arrival | None = None) -> list[list[int]]:
    async def run() -> list[list[int]]:
        assert (await stepped.open()).max_seqs == 2
        seen = await stepped.play(asks, late)
        return [[piece // MS for piece in one.pieces_ns] for one in seen]

    return asyncio.run(run())


def test_each_comes_at_its_time_and_waits_for_a_seat(stepped: Stepped) -> None:
    asks = (Arrival(0, 4, 2), Arrival(5 * MS, 4, 3), Arrival(6 * MS, 4, 1))
    assert play(stepped, *asks) == [[10, 20], [20, 30, 40], [30]]
    assert stepped._engine.most == 2


def test_nobody_waits_for_the_next_to_come(stepped: Stepped) -> None:
    assert play(stepped, Arrival(0, 4, 1), Arrival(90 * MS, 4, 1)) == [[10], [100]]


def test_who_is_late_comes_in_the_middle_and_is_not_counted(stepped: Stepped) -> None:
    assert play(stepped, Arrival(0, 4, 4), late=Arrival(0, 4, 1)) == [[10, 20, 30, 40]]
    assert stepped._engine.most == 2
