"""More than the box can do: goodput, what was refused wrongly, what came too late.

All prompts are of one length and answers are drawn from hidden lengths, so that what is admitted is
the same mix at every load, and goodput cannot rise by choosing small requests.
"""

from collections.abc import Collection
from dataclasses import dataclass
from random import Random

from tests.sim.clients import Client, Crowd
from tests.sim.counterfactual import Verdict, if_let_in
from tests.sim.figures import measure, ratio
from tests.sim.profiles import PROFILES
from tests.sim.run import PROMPT_TOK, capacity_per_s, standard
from tests.sim.variants import without
from tests.sim.workload import CHAT, Ask
from tests.sim.world import SECOND, Box

TTFT_NS = 2 * SECOND
USERS = 20
LOADS = (0.5, 0.8, 1.0, 1.5, 2.0, 3.0)
# Of the refusals of a run so many are asked what would have been.
BRANCHES = 60


@dataclass(frozen=True, slots=True)
class Overload:
    """One load. `goodput` is requests with their first token in time and a complete answer, a
    second. `late` is the part of the finished whose first token came after the deadline, `expired`
    the part of those let in whose time ended before it came. Of `asked` refusals `false_refused` is
    how many more requests would have been in time, in all, for each that had been let in, and
    `false_alone` the part that would have been in time themselves; None where there were none.
    """

    load: float
    offered: float
    goodput: float
    refused_at_once: float
    late: float
    expired: float
    wasted: float
    false_refused: float | None
    false_alone: float | None
    asked: int


def arrivals(seed: int, *, seconds: float, rate: float) -> list[Ask]:
    """Poisson arrivals of people who wait two seconds and no longer."""
    rng = Random(f"overload {seed}")
    asks, at_s = [], rng.expovariate(rate)
    while at_s < seconds:
        user = f"u{rng.randrange(USERS)}"
        asks.append(
            Ask(round(at_s * SECOND), "interactive", user, user, PROMPT_TOK,
                CHAT.output.draw(rng), 1024, ttft_ns=TTFT_NS, ttft_is_own=True)
        )  # fmt: skip
        at_s += rng.expovariate(rate)
    return asks


def overload(
    profile: str,
    load: float,
    seed: int,
    *,
    seconds: float,
    off: Collection[str] = (),
    branches: int = BRANCHES,
) -> Overload:
    """One load on one machine. The run goes on until the last of them is through."""
    machine = PROFILES[profile]()
    setup = without(standard(machine), off)
    rate = load * capacity_per_s(machine)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    crowd = Crowd(box)
    asks = arrivals(seed, seconds=seconds, rate=rate)
    crowd.come(asks)
    verdicts: list[Verdict] = []
    every = max(1, len(asks) // max(1, branches))

    def refused(client: Client) -> None:
        if client.last.rid % every == 0 and len(verdicts) < branches:
            verdicts.append(if_let_in(crowd, client))

    crowd.on_refused = refused
    box.run_until(round(seconds * SECOND))
    crowd.on_refused = None
    box.run(lambda: all(job.ended_ns is not None for job in box.jobs.values()))
    taken = [client.last for client in crowd.clients if client.taken]
    finished = [job for job in taken if job.finished]
    met = sum(job.in_time for job in finished)
    expired = sum(job.refusal is not None for job in taken)
    asked = len(verdicts)
    return Overload(
        load,
        offered=len(asks) / seconds,
        goodput=met / seconds,
        refused_at_once=1 - ratio(len(taken), len(asks)),
        late=ratio(len(finished) - met, len(finished)),
        expired=ratio(expired, len(taken)),
        wasted=measure(box).wasted,
        false_refused=sum(verdict.net for verdict in verdicts) / asked if asked else None,
        false_alone=sum(verdict.alone for verdict in verdicts) / asked if asked else None,
        asked=asked,
    )
