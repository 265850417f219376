"""The token queue of one class: bounded in tokens, ordered by arrival, split by pool.

Requests keep their number for life, so that one that is queued again finds its old place.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass

from onegate.admission.model import ClassSpec, GateLimits, Refused
from onegate.admission.rate import DrainRate


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
    """What waits in one class. Every member is `(seq, rid)` under its pool.

    `running` counts the class's permits.
    """

    def __init__(self, spec: ClassSpec) -> None:
        self.spec = spec
        self.rate = DrainRate()
        # Until when the refused have been told to come back, so that not all come at once.
        self.drain_clock_ns = 0
        self.queued_tok = 0
        self.running = 0
        self._by_pool: dict[str, list[tuple[int, int]]] = {}
        self._by_principal: dict[str, _Waiting] = {}
        self._tok: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._tok)

    def __iter__(self) -> Iterator[int]:
        for members in self._by_pool.values():
            yield from (rid for _, rid in members)

    @property
    def mean_tok(self) -> float:
        """Tokens of a waiting request on average, 0 when none waits."""
        return self.queued_tok / len(self._tok) if self._tok else 0.0

    def principal_limit_tok(self) -> int:
        """What one principal may have waiting here."""
        return int(self.spec.max_queued_tok * self.spec.per_principal_share)

    def room(self, principal: str, tok: int, limits: GateLimits) -> Backpressure | None:
        """Whether a newcomer of `tok` tokens fits into the class's and the principal's bounds.

        The principal's own bound is looked at first: whoever fills it learns just that.
        """
        spec, quota_tok = self.spec, self.principal_limit_tok()
        if tok > quota_tok:
            return Backpressure(Refused.TOO_LARGE, "tokens", quota_tok, tok, 0.0)
        waiting = self._by_principal.get(principal)
        if waiting is not None:
            # Of what leaves the class, about his part of the queue is his.
            part = waiting.tok / self.queued_tok
            excess_tok = waiting.tok + tok - quota_tok
            if excess_tok > 0:
                return Backpressure(
                    Refused.PEER_QUOTA, "tokens", quota_tok, waiting.tok, excess_tok, part
                )
            most = max(1, int(limits.max_queued_requests * spec.per_principal_share))
            if waiting.requests >= most:
                one_tok = waiting.tok / waiting.requests
                return Backpressure(
                    Refused.PEER_QUOTA, "requests", most, waiting.requests, one_tok, part
                )
        excess_tok = self.queued_tok + tok - spec.max_queued_tok
        if excess_tok > 0:
            return Backpressure(
                Refused.TOKENS_FULL, "tokens", spec.max_queued_tok, self.queued_tok, excess_tok
            )
        return None

    def add(self, rid: int, seq: int, pool: str, principal: str, tok: int) -> None:
        """Charge and insert at the place of `seq`, whatever the bounds say."""
        assert tok > 0, tok
        insort(self._by_pool.setdefault(pool, []), (seq, rid))
        self._tok[rid] = tok
        self.queued_tok += tok
        waiting = self._by_principal.get(principal)
        if waiting is None:
            waiting = self._by_principal[principal] = _Waiting()
        waiting.tok += tok
        waiting.requests += 1

    def remove(self, rid: int, seq: int, pool: str, principal: str) -> int:
        """Take out and refund; returns the tokens it was charged."""
        members = self._by_pool[pool]
        place = bisect_left(members, (seq, rid))
        assert members[place] == (seq, rid)
        del members[place]
        if not members:
            del self._by_pool[pool]
        tok = self._tok.pop(rid)
        self.queued_tok -= tok
        waiting = self._by_principal[principal]
        waiting.tok -= tok
        waiting.requests -= 1
        if not waiting.requests:
            del self._by_principal[principal]
        return tok

    def adjust(self, rid: int, principal: str, tok: int) -> None:
        """The engine has counted: this member is `tok` tokens. Never refuses."""
        assert tok > 0, tok
        grown = tok - self._tok[rid]
        self.queued_tok += grown
        self._by_principal[principal].tok += grown
        self._tok[rid] = tok

    def head(self, pool: str) -> int | None:
        """The request that has waited longest for this pool."""
        members = self._by_pool.get(pool)
        return members[0][1] if members else None

    def ahead(self, seq: int, rid: int, pool: str) -> int:
        """How many wait before this one for the same pool."""
        return bisect_left(self._by_pool.get(pool, []), (seq, rid))

    def waiting_for(self, pool: str) -> int:
        """How many wait for this pool."""
        return len(self._by_pool.get(pool, ()))

    def check(self) -> None:
        """Raise AssertionError unless totals are sums and nobody stands in two places."""
        rids = list(self)
        assert len(rids) == len(set(rids)) == len(self._tok)
        assert set(rids) == set(self._tok)
        by_principal = self._by_principal.values()
        assert self.queued_tok == sum(self._tok.values()) == sum(w.tok for w in by_principal)
        assert len(rids) == sum(w.requests for w in by_principal)
        assert all(w.tok > 0 and w.requests > 0 for w in by_principal)
        assert self.running >= 0
        for members in self._by_pool.values():
            assert members
            assert members == sorted(members)
