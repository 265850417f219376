"""Which parts a run has, and in which order."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from onegate.bench.scenario import Scenario
from onegate.bench.schedule import Arrival

Role = Literal["calibrate", "noise", "measure"]
# The same target again, under another name: what differs between A and this is noise.
AGAIN = "A again"

# Enough to keep every seat taken several times over, few enough to be quick.
_CALIBRATE_PER_SEAT = 4
_CALIBRATE_LEAST, _CALIBRATE_MOST = 16, 256
_UNKNOWN_SEATS = 8


class Part(Struct, frozen=True, kw_only=True):
    """One stretch of load on one side. `only` names the one class that runs, None: all."""

    role: Role
    side: str
    repeat: int = 0
    load: float = 1.0
    only: str | None = None

    def __str__(self) -> str:
        alone = f", {self.only} alone" if self.only is not None else ""
        return f"{self.role} {self.side}, load {self.load:g}, repeat {self.repeat + 1}{alone}"


def plan(scenario: Scenario, *, sides: Sequence[str], repeats: int, noise: bool) -> list[Part]:
    """Noise first, then the measurement, sides in turn: what drifts touches them all alike."""
    parts: list[Part] = []
    if noise:
        for repeat in range(repeats):
            pair = _turned(["A", AGAIN], repeat)
            parts += [
                Part(role="noise", side=s, repeat=repeat, load=scenario.loads[0]) for s in pair
            ]
    for load in scenario.loads:
        for repeat in range(repeats):
            for side in _turned(list(sides), repeat):
                for only in (*scenario.isolate, None):
                    parts.append(
                        Part(role="measure", side=side, repeat=repeat, load=load, only=only)
                    )
    return parts


def _turned(sides: list[str], repeat: int) -> list[str]:
    return sides if repeat % 2 == 0 else sides[::-1]


def calibration(scenario: Scenario) -> list[Part]:
    """One part for each class whose rate is a share of what the target can do."""
    return [
        Part(role="calibrate", side="A", only=cls.name)
        for cls in scenario.classes
        if cls.arrivals.share is not None
    ]


def calibration_arrivals(
    scenario: Scenario, name: str, drawn: Sequence[Arrival], seats: int | None
) -> list[Arrival]:
    """As many requests at once as keep the target busy; `drawn` gives their lengths, in turn."""
    number = next(i for i, cls in enumerate(scenario.classes) if cls.name == name)
    n = (seats or _UNKNOWN_SEATS) * _CALIBRATE_PER_SEAT
    n = max(_CALIBRATE_LEAST, min(_CALIBRATE_MOST, n))
    return [
        Arrival(0, number, i % scenario.classes[number].clients, i, p.prompt_tok, p.output_tok)
        for i in range(n)
        for p in (drawn[i % len(drawn)],)
    ]
