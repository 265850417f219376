"""What of one class waits for one pool, in the order in which it is served.

First what was in the engine before, in the order of its arrival. Then the one that was next and did
not fit: it keeps its place, or small ones would go on passing a large one. Then whoever would be
late otherwise. Then the principal that was served least, of it the flow that was served least, and
of that the earliest deadline.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from onegate.admission.fairness import Account, LeastServed
from onegate.admission.promises import Promises

NEVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class Member:
    """A waiting request. `start_by_ns` orders it within its flow, `seq` among equals.

    `returned` has been in the engine before.
    """

    rid: int
    seq: int
    account: Account
    tok: int
    start_by_ns: int = NEVER_NS
    returned: bool = False

    @property
    def key(self) -> tuple[int, int, int]:
        """Its place within its flow."""
        return self.start_by_ns, self.seq, self.rid


class Line:
    """The members of one class and pool. One that is `hold` keeps its place at the head."""

    def __init__(self) -> None:
        self._flows: dict[Account, list[tuple[int, int, int]]] = {}
        self._returned: list[tuple[int, int]] = []
        self._held: int | None = None
        self._principals = LeastServed()
        self._flows_of: dict[Account, LeastServed] = {}
        self._promises = Promises()
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def __iter__(self) -> Iterator[int]:
        yield from (rid for _, rid in self._returned)
        for line in self._flows.values():
            yield from (rid for _, _, rid in line)

    @property
    def promised(self) -> bool:
        """Does anybody in it have a time to start by?"""
        return len(self._promises) > 0

    def add(self, member: Member) -> None:
        """It waits from now on."""
        self._waiting += 1
        if member.returned:
            insort(self._returned, (member.seq, member.rid))
            return
        line = self._flows.setdefault(member.account, [])
        insort(line, member.key)
        if member.start_by_ns < NEVER_NS:
            self._promises.add(member.key)
        principal = _principal(member)
        self._principals.add(principal, member.seq)
        self._flows_of.setdefault(principal, LeastServed()).add(member.account, member.seq)

    def remove(self, member: Member) -> None:
        """It does not wait any more."""
        self._waiting -= 1
        if self._held == member.rid:
            self._held = None
        if member.returned:
            self._returned.remove((member.seq, member.rid))
            return
        line = self._flows[member.account]
        place = bisect_left(line, member.key)
        assert line[place] == member.key
        del line[place]
        if member.start_by_ns < NEVER_NS:
            self._promises.remove(member.key)
        if not line:
            del self._flows[member.account]
        principal = _principal(member)
        self._principals.remove(principal, member.seq)
        self._flows_of[principal].remove(member.account, member.seq)
        if principal not in self._principals:
            del self._flows_of[principal]

    def hold(self, member: Member) -> None:
        """It is next and does not fit: nobody passes it until it has started or left."""
        if not member.returned:  # which nobody passes anyway; and another keeps its place behind it
            self._held = member.rid

    def head(self, now_ns: int, gap_ns: float | None) -> int | None:
        """The one that is next, when about one of them starts every `gap_ns` (None: unknown)."""
        if self._returned:
            return self._returned[0][1]
        if self._held is not None:
            return self._held
        if not self._flows:
            return None
        if gap_ns is not None and (rid := self._promises.urgent(now_ns, gap_ns)) is not None:
            return rid
        flow = self._flows_of[self._principals.first()].first()
        return self._flows[flow][0][2]

    def ahead(self, member: Member) -> int:
        """About how many are served before this one, as if all requests were of one size."""
        if member.returned:
            return bisect_left(self._returned, (member.seq, member.rid))
        if member.rid == self._held:
            return len(self._returned)
        principal = _principal(member)
        turn = bisect_left(self._flows[member.account], member.key)
        turn += self._flows_of[principal].before(member.account, member.seq, turn)
        turn += self._principals.before(principal, member.seq, turn)
        return len(self._returned) + (self._held is not None) + turn

    def at_latest(self, member: Member) -> int:
        """How many start before this one at the latest: by deadlines, if it has one."""
        if member.returned or member.start_by_ns >= NEVER_NS:
            return self.ahead(member)
        return len(self._returned) + self._promises.place(member.key)

    def made_late(self, member: Member, now_ns: int, gap_ns: float) -> bool:
        """Would somebody be late because of this one, who was not before it came?"""
        return self._promises.made_late(member.key, now_ns, gap_ns)

    def by_displacement(self) -> Iterator[int]:
        """In which order they are put out: of the most served principal, its most served flow, the
        newest. Not those that have been in the engine."""
        for principal in self._principals.most_served_first():
            for flow in self._flows_of[principal].most_served_first():
                newest = sorted(self._flows[flow], key=lambda key: key[1], reverse=True)
                yield from (rid for _, _, rid in newest)

    def check(self) -> None:
        """Raise AssertionError unless everybody stands in one place."""
        rids = list(self)
        assert len(rids) == len(set(rids)) == self._waiting
        assert all(line and line == sorted(line) for line in self._flows.values())
        assert self._returned == sorted(self._returned)
        assert self._held is None or self._held in rids


def _principal(member: Member) -> Account:
    principal = member.account.parent
    assert principal is not None
    return principal
