"""The token queue of one class: bounded in tokens, split by pool, shared out by principal and flow.

Requests keep their number for life, so that one that is queued again finds its old place.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from onegate.admission.fairness import Account, Accounts
from onegate.admission.foresight import Foresight
from onegate.admission.line import Line, Member
from onegate.admission.model import ClassSpec, GateLimits, Refused
from onegate.admission.rate import DrainRate

# The mean prompt is learned from about so many.
PROMPTS = 16


@dataclass(frozen=True, slots=True)
class Backpressure:
    """No room for a newcomer; nothing was charged.

    `limit` and `used` are in `unit`. `excess_tok` is what must leave before the newcomer fits, and
    `drain_share` the part of what leaves its class that makes room for it.
    """

    reason: Refused
    unit: str
    limit: int
    used: int
    excess_tok: float
    drain_share: float = 1.0


@dataclass(slots=True)
class _Waiting:
    """What one principal has waiting in the class."""

    tok: int = 0
    requests: int = 0


class ClassQueue:
    """What waits in one class, and who was served how much in it.

    `running` counts the class's permits, `too_late_in_row` the refusals by prediction since one was
    let in. `turnover` is, by pool, how many answers of the class a nanosecond it finishes with all
    seats taken, where known, and `prompt_tok` the mean of the last prompts that started.
    """

    def __init__(self, spec: ClassSpec) -> None:
        self.spec = spec
        self.rate = DrainRate()
        self.accounts = Accounts()
        self.queued_tok = 0
        self.running = 0
        self.foresight = Foresight()
        self.too_late_in_row = 0
        self.turnover: dict[str, float] = {}
        self.prompt_tok = 0.0
        self._lines: dict[str, Line] = {}
        self._by_principal: dict[str, _Waiting] = {}
        self._members: dict[int, tuple[Line, Member]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[int]:
        return iter(self._members)

    @property
    def mean_tok(self) -> float:
        """Tokens of a waiting request on average, 0 when none waits."""
        return self.queued_tok / len(self._members) if self._members else 0.0

    def principal_limit_tok(self) -> int:
        """What one principal may have waiting here."""
        return int(self.spec.max_queued_tok * self.spec.per_principal_share)

    def room(
        self, principal: str, tok: int, limits: GateLimits, more: float = 0.0
    ) -> Backpressure | None:
        """Whether a newcomer of `tok` tokens fits into the class's and the principal's bounds, or
        into bounds that are `more` wider (0.25: by a quarter).

        The principal's own bound is looked at first: whoever fills it learns just that.
        """
        spec, quota_tok = self.spec, self.principal_limit_tok()
        if tok > quota_tok:
            return Backpressure(Refused.TOO_LARGE, "tokens", quota_tok, tok, 0.0)
        waiting = self._by_principal.get(principal)
        if waiting is not None:
            # Of what leaves the class, about his part of the queue is his.
            part = waiting.tok / self.queued_tok
            excess_tok = waiting.tok + tok - quota_tok * (1 + more)
            if excess_tok > 0:
                return Backpressure(
                    Refused.PEER_QUOTA, "tokens", quota_tok, waiting.tok, excess_tok, part
                )
            most = max(1, int(limits.max_queued_requests * spec.per_principal_share))
            if waiting.requests >= most * (1 + more):
                one_tok = waiting.tok / waiting.requests
                return Backpressure(
                    Refused.PEER_QUOTA, "requests", most, waiting.requests, one_tok, part
                )
        excess_tok = self.queued_tok + tok - spec.max_queued_tok * (1 + more)
        if excess_tok > 0:
            return Backpressure(
                Refused.TOKENS_FULL, "tokens", spec.max_queued_tok, self.queued_tok, excess_tok
            )
        return None

    def add(self, member: Member, pool: str) -> None:
        """Charge and put in its place, whatever the bounds say."""
        assert member.tok > 0, member
        line = self._lines.get(pool)
        if line is None:
            line = self._lines[pool] = Line()
        line.add(member)
        self._members[member.rid] = line, member
        principal = _name(member.account)
        waiting = self._by_principal.get(principal)
        if waiting is None:
            waiting = self._by_principal[principal] = _Waiting()
        self.queued_tok += member.tok
        waiting.tok += member.tok
        waiting.requests += 1

    def remove(self, rid: int, pool: str) -> int:
        """Take out and refund; returns the tokens it was charged."""
        line, member = self._members.pop(rid)
        line.remove(member)
        if not len(line):
            del self._lines[pool]
        principal = _name(member.account)
        waiting = self._by_principal[principal]
        self.queued_tok -= member.tok
        waiting.tok -= member.tok
        waiting.requests -= 1
        if not waiting.requests:
            del self._by_principal[principal]
        return member.tok

    def adjust(self, rid: int, tok: int) -> None:
        """The engine has counted: this member is `tok` tokens. Never refuses."""
        assert tok > 0, tok
        line, member = self._members[rid]
        self.queued_tok += tok - member.tok
        self._by_principal[_name(member.account)].tok += tok - member.tok
        self._members[rid] = line, replace(member, tok=tok)

    def started(self, tok: int, prompt_tok: int, now_ns: int) -> None:
        """One that was charged so many tokens has left for the engine."""
        self.rate.released(tok, now_ns)
        self.prompt_tok += (prompt_tok - self.prompt_tok) / PROMPTS

    def tok_per_ns(self, now_ns: int) -> float | None:
        """How fast the class drains; None if unknown.

        As measured, but not faster than full pools can go on: while empty seats fill up a queue
        drains faster than it will a moment later.
        """
        most = self._full_pools()
        rate = self.rate.tok_per_ns(now_ns, most)
        return rate if rate is None or most is None else min(rate, most)

    def _full_pools(self) -> float | None:
        """How fast it would drain with all seats of its pools; None where that is not known."""
        turnover = 0.0
        for pool in self._lines:
            if pool not in self.turnover:
                return None
            turnover += self.turnover[pool]
        return turnover * self.mean_tok or None

    def gap_ns(self, now_ns: int) -> float | None:
        """The time from one start of the class to the next while others wait; None if unknown."""
        rate = self.tok_per_ns(now_ns)
        return None if rate is None else self.mean_tok / rate

    def head(self, pool: str, now_ns: int) -> int | None:
        """The request that is next for this pool."""
        line = self._lines.get(pool)
        if line is None:
            return None
        return line.head(now_ns, self.gap_ns(now_ns) if line.promised else None)

    def hold(self, rid: int) -> None:
        """It is next and does not fit: nobody of its class passes it."""
        line, member = self._members[rid]
        line.hold(member)

    def ahead(self, rid: int) -> int:
        """About how many of the class are served before this one in the same pool."""
        line, member = self._members[rid]
        return line.ahead(member)

    def at_latest(self, rid: int) -> int:
        """How many of the class start before this one in the same pool, at the latest."""
        line, member = self._members[rid]
        return line.at_latest(member)

    def made_late(self, rid: int, now_ns: int, factor: float) -> bool:
        """Would another one be late because of this newcomer, if all takes `factor` as long as it
        seems?"""
        line, member = self._members[rid]
        gap_ns = self.gap_ns(now_ns)
        return gap_ns is not None and line.made_late(member, now_ns, gap_ns * factor)

    def waiting_for(self, pool: str) -> int:
        """How many wait for this pool."""
        line = self._lines.get(pool)
        return 0 if line is None else len(line)

    def tok_of(self, rid: int) -> int:
        """What this member is charged."""
        return self._members[rid][1].tok

    def by_displacement(self) -> Iterator[int]:
        """In which order they are put out for a better class: from the longest line first."""
        for line in sorted(self._lines.values(), key=len, reverse=True):
            yield from line.by_displacement()

    def check(self) -> None:
        """Raise AssertionError unless totals are sums and nobody stands in two places."""
        members = [member for _, member in self._members.values()]
        by_principal = self._by_principal.values()
        assert self.queued_tok == sum(m.tok for m in members) == sum(w.tok for w in by_principal)
        assert len(members) == sum(w.requests for w in by_principal)
        assert all(w.tok > 0 and w.requests > 0 for w in by_principal)
        assert self.running >= 0
        rids = [rid for line in self._lines.values() for rid in line]
        assert len(rids) == len(set(rids)) == len(members)
        assert set(rids) == self._members.keys()
        for line in self._lines.values():
            assert len(line)
            line.check()
        self.accounts.check()


def _name(account: Account) -> str:
    assert account.parent is not None
    return account.parent.name
