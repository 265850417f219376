"""Values that tests of the harness are made of."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from onegate.bench import machine
from onegate.bench.conduct import PartResult, Run, Settings
from onegate.bench.plan import AGAIN, Part
from onegate.bench.prompts import Rule
from onegate.bench.record import Outcome, Record
from onegate.bench.scenario import Arrivals, Lengths, LoadClass, Scenario
from onegate.bench.targets.base import Ask, Facts, Usage, Watch
from onegate.bench.targets.spec import Spec
from onegate.bench.wire import Effort

MS = 1_000_000


class Made:
    """Short ways to write what tests need many of; times in milliseconds."""

    @staticmethod
    def cls(name: str = "chat", **more: Any) -> LoadClass:
        fields: dict[str, Any] = {
            "name": name,
            "arrivals": Arrivals(kind="deterministic", rate_per_s=2.0),
            "prompt": Lengths(tok=16),
            "output": Lengths(tok=4),
        }
        return LoadClass(**(fields | more))

    @classmethod
    def scenario(cls, *classes: LoadClass, **more: Any) -> Scenario:
        fields: dict[str, Any] = {"duration_s": 10.0, "warmup_s": 0.0, "seed": 1}
        return Scenario(classes=classes or (cls.cls(),), **(fields | more))

    @staticmethod
    def record(at_ms: float = 0, pieces_ms: tuple[float, ...] = (), **more: Any) -> Record:
        """A finished request of one-token pieces, `pieces_ms` after `at_ms`."""
        at_ns = round(at_ms * MS)
        pieces_ns = [at_ns + round(piece * MS) for piece in pieces_ms]
        fields: dict[str, Any] = {
            "cls": 0,
            "serial": 0,
            "scheduled_ns": at_ns,
            "sent_ns": at_ns,
            "last_sent_ns": at_ns,
            "started_ns": at_ns,
            "ended_ns": pieces_ns[-1] if pieces_ns else at_ns,
            "outcome": Outcome.FINISHED,
            "pieces_ns": pieces_ns,
            "pieces_tok": [1] * len(pieces_ns),
            "attempts": 1,
        }
        return Record(**(fields | more))


@pytest.fixture
def made() -> type[Made]:
    return Made


# --- a run that is over -------------------------------------------------------------------------


def result(made: Any, ttft_ms: float, *complaints: str, **more: Any) -> PartResult:
    return PartResult(
        part=Part(**({"role": "measure", "side": "A"} | more)),
        records=[made.record(0, (ttft_ms, ttft_ms + 10))],
        efforts=[Effort(cpu_s=1.0, wall_s=4.0, lag_ms=2.0)],
        use=machine.Use(
            wall_s=4.0,
            busy_share=0.5,
            steal_share=0.0,
            foreign_share=None,
            pressure={},
            cores={"A": 0.5, "A itself": 0.25},
        ),
        complaints=list(complaints),
    )


@pytest.fixture
def run(made: Any) -> Run:
    return Run(
        scenario=made.scenario(isolate=["chat"]),
        sides={"A": Spec("gate"), "B": Spec("host")},
        settings=Settings(repeats=1),
        machine=machine.facts(),
        facts={side: Facts(model="tiny") for side in "AB"},
        rules={side: Rule("words", 3, True) for side in "AB"},
        rates={"chat": 2.0},
        results=[
            result(made, 100, only="chat"),
            result(made, 300),
            result(made, 100, "too loud", side="B"),
        ],
    )


@pytest.fixture
def flood(made: Any) -> Run:
    """Chat beside a batch on two sides that differ in a setting, with noise."""

    def part(ttft_ms: float, jobs: int, **more: Any) -> PartResult:
        found = result(made, ttft_ms, **more)
        found.records[0].queue_ms = 20.0
        found.records.extend(made.record(0, (10, 60, 110), cls=1) for _ in range(jobs))
        return found

    specs = [Spec("private", setting=f"interactive.preempt={v}") for v in ("lower_rank", "never")]
    return Run(
        scenario=made.scenario(made.cls(), made.cls("batch"), isolate=["chat"]),
        sides={"A": specs[0], "B": specs[1]},
        settings=Settings(repeats=1, noise=True),
        machine=machine.facts(),
        facts={side: Facts(model="tiny") for side in "AB"},
        rules={side: Rule("words", 3, True) for side in "AB"},
        rates={"chat": 2.0, "batch": 2.0},
        results=[
            part(190, 10, role="noise"),
            part(196, 11, role="noise", side=AGAIN),
            part(100, 0, only="chat"),
            part(190, 9),
            part(100, 0, only="chat", side="B"),
            part(700, 10, side="B"),
        ],
    )


# --- time that passes only when everybody waits ---------------------------------------------------


class _Selector(selectors.DefaultSelector):
    """Advances the clock instead of waiting."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everybody waits for something that cannot come"
        self.now_s += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now_s

    def now_ns(self) -> int:
        return round(self._clock.now_s * 1e9)


class VirtualTime:
    """Runs a coroutine in virtual time; `monotonic_ns` of the given modules is that time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self.loop = VirtualLoop()

    def clock_of(self, *modules: str) -> None:
        for module in modules:
            self._monkeypatch.setattr(f"{module}.monotonic_ns", self.loop.now_ns)

    def run(self, coro: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            return runner.run(coro)


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    return VirtualTime(monkeypatch)


class ModelTarget:
    """First come, first served by `seats`; `first_ms` to the first token, `next_ms` for each other.

    `before` runs at the start of every attempt and may raise what a target raises; during the
    stall, in seconds from and to, nothing comes out. `says` is what it claims to have counted.
    """

    def __init__(
        self,
        *,
        seats: int = 100,
        first_ms: float = 150.0,
        next_ms: float = 110.0,
        stall_s: tuple[float, float] = (0.0, 0.0),
        tells: bool = True,
        before: Callable[[Ask, int], None] = lambda ask, attempt: None,
        says: Usage | None = None,
    ) -> None:
        self._seats = asyncio.Semaphore(seats)
        self._first_s, self._next_s = first_ms / 1000, next_ms / 1000
        self._stall_s = stall_s
        self._tells = tells
        self._before = before
        self._says = says
        self.asked: list[Ask] = []
        self.given_up = 0

    async def open(self) -> Facts:
        return Facts(model="model", engine="model", context_tok=4096, seats=4)

    async def count(self, text: str) -> int:
        return len(text.split())

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        self.asked.append(ask)
        self._before(ask, len(self.asked))
        begun_s = asyncio.get_running_loop().time()
        try:
            async with self._seats:
                if self._tells:
                    watch.started((asyncio.get_running_loop().time() - begun_s) * 1000)
                for number in range(ask.output_tok):
                    await asyncio.sleep(self._next_s if number else self._first_s)
                    await self._stall()
                    watch.piece(1, visible=True)
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self._says is not None:
            return self._says
        return Usage(len(ask.text.split()), ask.output_tok, None if self._tells else 7.0)

    async def _stall(self) -> None:
        begin_s, end_s = self._stall_s
        if begin_s <= (now_s := asyncio.get_running_loop().time()) < end_s:
            await asyncio.sleep(end_s - now_s)

    async def aclose(self) -> None: ...


@pytest.fixture
def model_target() -> type[ModelTarget]:
    return ModelTarget
