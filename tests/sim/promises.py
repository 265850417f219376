"""What a hint is worth: clients that come back when they were told to, with their tickets."""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

from tests.sim.clients import Client, Crowd, Retry
from tests.sim.engine import Machine
from tests.sim.figures import median, ratio
from tests.sim.profiles import PROFILES
from tests.sim.run import PROMPT_TOK, capacity_per_s, standard
from tests.sim.variants import without
from tests.sim.workload import CHAT, Ask
from tests.sim.world import SECOND, Box

from onegate.admission.records import queue_cost

USERS = 40
# As the class of people is shipped.
MAX_QUEUED_TOK, PER_PRINCIPAL_SHARE = 32_768, 0.5
SAMPLE_NS = 20_000_000
# Within some seconds: in the first of them nobody knows how fast a queue drains.
BURST, BURST_S = 120, 5.0


@dataclass(frozen=True, slots=True)
class Promises:
    """`first_retry` is the part of the first retries at their hint that were let in; `attempts` how
    often those who were let in had asked; `hint_error` the median of |actual - hint| ÷ hint, where
    actual is when as many tokens had left the queue as had to; `idle` the part of all seat time
    that was idle while somebody held a hint.
    """

    refused: int
    first_retry: float
    attempts: float
    admitted: float
    hint_error: float
    idle: float


@dataclass(slots=True)
class _Watch:
    """Keeps book of what leaves the queue, who has been told to come back, and idle seats."""

    box: Box
    machine: Machine
    out: dict[Client, int] = field(default_factory=dict)
    # (client, when, tokens that had left by then, tokens that have to leave)
    told: list[tuple[Client, int, int, int]] = field(default_factory=list)
    left_ns: list[int] = field(default_factory=list)
    left_tok: list[int] = field(default_factory=list)
    idle: int = 0
    seats: int = 0
    _seen: int = 0

    def catch_up(self) -> None:
        """Add what has been granted since the last look."""
        for job in self.box.granted[self._seen :]:
            assert job.granted_ns is not None
            before = self.left_tok[-1] if self.left_tok else 0
            self.left_ns.append(job.granted_ns)
            self.left_tok.append(before + self.cost_tok(job.spec.prompt_tok, job.spec.max_tok))
        self._seen = len(self.box.granted)

    def cost_tok(self, prompt_tok: int, max_tok: int) -> int:
        """What a request is in a queue."""
        return queue_cost(self.machine.capacity, prompt_tok, max_tok)

    def refused(self, client: Client) -> None:
        """Somebody has been refused; with a hint he will come back."""
        self.out.pop(client, None)
        refusal = client.last.refusal
        assert refusal is not None
        if refusal.retry_after_ns is None:
            return
        self.catch_up()
        tok = self.cost_tok(client.ask.prompt_tok, client.ask.max_tok)
        excess_tok = max(0, (refusal.used or 0) + tok - (refusal.limit or 0))
        need_tok = excess_tok + sum(self.out.values())
        if len(client.jobs) == 1:
            gone = self.left_tok[-1] if self.left_tok else 0
            self.told.append((client, self.box.now, gone, need_tok))
        self.out[client] = tok

    def sample(self) -> None:
        """Look at the seats, and again in a moment."""
        for client in [client for client in self.out if client.taken]:
            del self.out[client]
        free = self.machine.capacity.max_seqs - len(self.box.engines["m"].running)
        self.seats += self.machine.capacity.max_seqs
        self.idle += free if self.out else 0
        self.box.at(self.box.now + SAMPLE_NS, self.sample)

    def errors(self) -> list[float]:
        """|actual - hint| ÷ hint of everybody who was told one, and whose tokens have left."""
        self.catch_up()
        errors = []
        for client, at_ns, gone_tok, need_tok in self.told:
            refusal = client.hint
            assert refusal is not None
            place = bisect_left(self.left_tok, gone_tok + need_tok)
            if refusal.retry_after_ns and place < len(self.left_ns):
                actual_ns = max(0, self.left_ns[place] - at_ns)
                errors.append(abs(actual_ns - refusal.retry_after_ns) / refusal.retry_after_ns)
        return errors


def crowd_of(seed: int, *, seconds: float, rate: float, bursts: bool) -> list[Ask]:
    """A steady stream; with `bursts`, two times 120 requests at once on top of it."""
    rng = Random(f"promises {seed}")
    times, at_s = [], rng.expovariate(rate)
    while at_s < seconds:
        times.append(at_s)
        at_s += rng.expovariate(rate)
    for part in (0.2, 0.55) if bursts else ():
        times += [seconds * part + rng.uniform(0, BURST_S) for _ in range(BURST)]
    return [
        Ask(round(at_s * SECOND), "interactive", user, user, PROMPT_TOK, output_tok, 1024)
        for at_s in sorted(times)
        for user, output_tok in ((f"u{rng.randrange(USERS)}", CHAT.output.draw(rng)),)
    ]


def promises(
    profile: str, seed: int, *, seconds: float, bursts: bool, off: Collection[str] = ()
) -> Promises:
    """Two bursts over 0.6 of what the box can do, or 1.3 of it all the time."""
    machine = PROFILES[profile]()
    setup = standard(machine).each_class(
        max_queued_tok=MAX_QUEUED_TOK, per_principal_share=PER_PRINCIPAL_SHARE
    )
    setup = without(setup, off)
    box = Box(setup.classes, {"m": machine}, setup.limits, check_every=0)
    crowd = Crowd(box, retry=Retry.HONOUR if setup.tickets else Retry.PLAIN)
    rate = (0.6 if bursts else 1.3) * capacity_per_s(machine)
    crowd.come(crowd_of(seed, seconds=seconds, rate=rate, bursts=bursts))
    watch = _Watch(box, machine)
    crowd.on_refused = watch.refused
    watch.sample()
    box.run_until(round(seconds * SECOND))
    back = [client for client in crowd.clients if client.hint is not None and len(client.jobs) > 1]
    firsts = [client.jobs[1] for client in back]
    taken = [client for client in crowd.clients if client.jobs and client.taken]
    return Promises(
        refused=sum(client.hint is not None for client in crowd.clients if client.jobs),
        first_retry=ratio(sum(job.ended_ns != job.arrived_ns for job in firsts), len(firsts)),
        attempts=ratio(sum(len(client.jobs) for client in taken), len(taken)),
        admitted=ratio(len(taken), len(crowd.clients)),
        hint_error=median(watch.errors()),
        idle=ratio(watch.idle, watch.seats),
    )
