"""What a program does is a hint too: one that acts like a loop is not a person.

Each class may bound how many requests of one flow are live and how many it starts in a minute
(`behaviour_live`, `behaviour_starts_per_min`). What counts against a class are the requests that
asked for it or for a better one. A newcomer that exceeds one of the two is treated as one of the
next lower class, unless that is exceeded too, and so is every later one until the flow calms down:
until, without the newcomer, both are at half of their bounds or below. So a program that keeps to
its bounds is never lowered, and one that runs just beyond them does not change class with every
request. Nobody is ever raised, and what asked for a lower class of itself counts against no better
one. Requests that have come stay in the class that they were given.

Counted is by flow, which is one end client, also behind a delegate. The counts of a minute are kept
in slices, so that the minute is between 55 and 60 s.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from onegate.config import ClassConfig

SLICE_NS = 5_000_000_000
SLICES = 12

# Flows that are remembered: of one principal, so that whoever makes up many pushes out none but his
# own, and principals. About a kilobyte each.
FLOWS_PER_PRINCIPAL = 32
PRINCIPALS = 128


class Starts:
    """How many began within the last minute, in slices of it."""

    __slots__ = ("_counts", "_slice", "_total")

    def __init__(self) -> None:
        self._counts = [0] * SLICES
        self._total = 0
        self._slice = 0

    def add(self, now_ns: int) -> None:
        """One begins now."""
        self._turn(now_ns)
        self._counts[self._slice % SLICES] += 1
        self._total += 1

    def count(self, now_ns: int) -> int:
        """Those of this slice and the ones before it that make up a minute."""
        self._turn(now_ns)
        return self._total

    def _turn(self, now_ns: int) -> None:
        """Forget the slices that are over a minute old."""
        now = now_ns // SLICE_NS
        if now <= self._slice:
            return
        for i in range(self._slice + 1, min(now, self._slice + SLICES) + 1):
            self._total -= self._counts[i % SLICES]
            self._counts[i % SLICES] = 0
        self._slice = now


@dataclass(slots=True)
class _Tally:
    """What a flow has of the requests that asked for one class."""

    live: int = 0
    starts: Starts = field(default_factory=Starts)


@dataclass(slots=True)
class _Flow:
    """One flow: its tallies by class, and the classes that it has lost until it calms down."""

    tallies: dict[str, _Tally] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Treatment:
    """The class that a request gets, and, if that is not the one it asked for, why."""

    class_: str
    asked: str
    why: tuple[str, ...] = ()

    @property
    def detail(self) -> str | None:
        """A sentence for whoever is lowered; None for the others."""
        if self.class_ == self.asked:
            return None
        return f"treated as {self.class_}, not as {self.asked}: {'; '.join(self.why)}"


@dataclass(frozen=True, slots=True)
class Start:
    """A request that counts as live until `Behaviour.ended`."""

    treatment: Treatment
    tally: _Tally


class Behaviour:
    """The flows of late. `classes` gives those of now, best first."""

    def __init__(self, classes: Callable[[], tuple[ClassConfig, ...]]) -> None:
        self._classes = classes
        self._principals: OrderedDict[str, OrderedDict[str, _Flow]] = OrderedDict()

    def started(self, *, principal: str, flow: str, asked: str, now_ns: int) -> Start:
        """A request for the class `asked` begins; its treatment is settled for its whole life."""
        found = self._remembered(principal, flow)
        treatment, found.lost = self._judge(found, asked, now_ns)
        tally = found.tallies.setdefault(asked, _Tally())
        tally.live += 1
        tally.starts.add(now_ns)
        return Start(treatment, tally)

    def ended(self, start: Start) -> None:
        """It is over; to be said once."""
        start.tally.live -= 1

    def would_be(self, *, principal: str, flow: str, asked: str, now_ns: int) -> Treatment:
        """How a request would be treated that began now; nothing is counted."""
        flows = self._principals.get(principal)
        if flows is None or flow not in flows:
            return Treatment(asked, asked)
        return self._judge(flows[flow], asked, now_ns)[0]

    def __len__(self) -> int:
        return sum(map(len, self._principals.values()))

    def _remembered(self, principal: str, flow: str) -> _Flow:
        flows = self._principals.setdefault(principal, OrderedDict())
        self._principals.move_to_end(principal)
        found = flows.setdefault(flow, _Flow())
        flows.move_to_end(flow)
        if len(flows) > FLOWS_PER_PRINCIPAL:
            flows.popitem(last=False)
        if len(self._principals) > PRINCIPALS:
            self._principals.popitem(last=False)
        return found

    def _judge(self, flow: _Flow, asked: str, now_ns: int) -> tuple[Treatment, set[str]]:
        """The treatment of one more, and the classes that the flow has lost with it."""
        live = starts = 0
        lost = set(flow.lost)
        reached = False
        why: list[str] = []
        *bounded, lowest = self._classes()
        for cls in bounded:
            reached = reached or cls.name == asked
            if (tally := flow.tallies.get(cls.name)) is not None:
                live += tally.live
                starts += tally.starts.count(now_ns)
            excess = _excess(cls, live, starts, lost=cls.name in lost)
            if excess is None:
                lost.discard(cls.name)
                if reached:
                    return Treatment(cls.name, asked, tuple(why)), lost
            elif reached:
                lost.add(cls.name)
                why.append(excess)
        return Treatment(lowest.name, asked, tuple(why)), lost


def _excess(cls: ClassConfig, live: int, starts: int, *, lost: bool) -> str | None:
    """Why one more would be too many for the class, on top of so many that there are.

    `lost`: it has been too many before, and half of the bounds is what must be reached again.
    """
    for count, most, what in (
        (live, cls.behaviour_live, "at a time"),
        (starts, cls.behaviour_starts_per_min, "a minute"),
    ):
        if most is not None and (count >= most or (lost and count > most // 2)):
            return (
                f"this program has {count} requests {what} before this one, {cls.name} is for "
                f"{most} at most, and again from {most // 2} on"
            )
    return None
