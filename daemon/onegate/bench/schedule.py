"""From a scenario to the list of everything that will be sent, and when."""

from collections.abc import Collection, Iterator, Mapping
from random import Random

from msgspec import Struct

from onegate.bench.arrivals import offsets_ns
from onegate.bench.lengths import draw_tok
from onegate.bench.scenario import LoadClass, Phase, Scenario
from onegate.bench.traces import Row, Trace, stretch

_NS_PER_S = 1_000_000_000


class Arrival(Struct, frozen=True, array_like=True):
    """One request. `at_ns` counts from the start of the window; before it is the warm-up.

    `cls` and `client` are numbers: of the scenario's class, and of the client within it. A
    `shortened` one was longer than the target's context can hold.
    """

    at_ns: int
    cls: int
    client: int
    serial: int
    prompt_tok: int
    output_tok: int
    leave: Phase | None = None
    shortened: bool = False


def schedule(
    scenario: Scenario,
    *,
    repeat: int,
    load: float,
    rates: Mapping[str, float],
    traces: Mapping[str, Trace] | None = None,
    only: Collection[str] | None = None,
    least_tok: int = 1,
    context_tok: int | None = None,
) -> list[Arrival]:
    """Every arrival of one part, in order.

    The same scenario, repeat and load give the same arrivals, whatever the target, and whichever
    other classes run beside (`only`). `rates` are requests a second by class, at load 1, and
    `traces` what is recorded of those that have a file. Prompts
    have at least `least_tok`, which the template and one word make; lengths that a
    context of `context_tok` cannot hold are cut.
    """
    found: list[Arrival] = []
    for number, cls in enumerate(scenario.classes):
        if only is None or cls.name in only:
            dice = Dice(scenario, cls, repeat, load)
            rate_per_s = rates.get(cls.name, 0.0)
            trace = (traces or {}).get(cls.name)
            rows = (
                _drawn(scenario, cls, dice, rate_per_s, load)
                if trace is None
                else _recorded(scenario, cls, trace, rate_per_s * load, dice)
            )
            phases = _phases(cls, dice)
            for serial, row in enumerate(rows):
                wanted = max(least_tok, row.prompt_tok), row.output_tok
                fitted = fit(*wanted, context_tok)
                client = serial % cls.clients
                at_ns = round(row.at_s * _NS_PER_S)
                leave, shortened = next(phases), fitted != wanted
                found.append(Arrival(at_ns, number, client, serial, *fitted, leave, shortened))
    return sorted(found, key=lambda a: (a.at_ns, a.cls, a.serial))


class Dice:
    """Random numbers of one class in one part, a stream of their own for each use."""

    def __init__(self, scenario: Scenario, cls: LoadClass, repeat: int, load: float) -> None:
        self._key = f"{scenario.seed}/{repeat}/{load:g}/{cls.name}"

    def of(self, what: str) -> Random:
        return Random(f"{self._key}/{what}")


def _begin_s(scenario: Scenario, cls: LoadClass) -> float:
    return cls.start_s if cls.start_s else -scenario.warmup_s


def _drawn(
    scenario: Scenario, cls: LoadClass, dice: Dice, rate_per_s: float, load: float
) -> Iterator[Row]:
    times = offsets_ns(
        cls.arrivals,
        dice.of("arrivals"),
        begin_s=_begin_s(scenario, cls),
        end_s=scenario.duration_s,
        rate_per_s=rate_per_s,
        load=load,
    )
    prompts, outputs = dice.of("prompt"), dice.of("output")
    for at_ns in times:
        yield Row(at_ns / _NS_PER_S, draw_tok(cls.prompt, prompts), draw_tok(cls.output, outputs))


def _recorded(
    scenario: Scenario, cls: LoadClass, trace: Trace, rate_per_s: float, dice: Dice
) -> Iterator[Row]:
    """Each repeat begins somewhere else in the trace."""
    rows = stretch(
        trace,
        rate_per_s=rate_per_s,
        begin_s=_begin_s(scenario, cls),
        end_s=scenario.duration_s,
        skip=dice.of("arrivals").random(),
    )
    for row in rows:
        yield Row(
            row.at_s,
            min(row.prompt_tok, cls.prompt.max_tok or row.prompt_tok),
            min(row.output_tok, cls.output.max_tok or row.output_tok),
        )


def _phases(cls: LoadClass, dice: Dice) -> Iterator[Phase | None]:
    """In which phase each request is left, if at all."""
    leaving, gone = dice.of("leave"), 0
    while True:
        if cls.leave is not None and leaving.random() < cls.leave.share:
            yield cls.leave.phases[gone % len(cls.leave.phases)]
            gone += 1
        else:
            yield None


def fit(prompt_tok: int, output_tok: int, context_tok: int | None) -> tuple[int, int]:
    """Both lengths, cut to a context: the answer keeps at most half of it, the prompt the rest."""
    if context_tok is None or prompt_tok + output_tok <= context_tok:
        return prompt_tok, output_tok
    output_tok = min(output_tok, max(1, context_tok // 2))
    return max(1, min(prompt_tok, context_tok - output_tok)), output_tok
