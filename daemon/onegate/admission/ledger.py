"""Who holds how much: seats, KV tokens and unprefilled prompt tokens of a pool; bytes by key.

Every charge has a name and is given back once. `check` proves that the totals are the sums.
"""

from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass


@dataclass(slots=True)
class _Charge:
    rank: int
    kv_tok: int
    unprefilled_tok: int
    quarantined: bool = False


class PoolLedger:
    """The charges of one pool, by request."""

    def __init__(self) -> None:
        self._charges: dict[int, _Charge] = {}
        self._unprefilled: dict[int, int] = {}
        self.kv_tok = 0
        self.quarantined = 0

    @property
    def seats(self) -> int:
        """Seats in use, quarantined ones included."""
        return len(self._charges)

    @property
    def unprefilled_tok(self) -> int:
        """Prompt tokens at the engine that are not computed yet."""
        return sum(self._unprefilled.values())

    def unprefilled_up_to(self, rank: int) -> int:
        """Of these, the ones of this rank or a better one."""
        return sum(tok for held, tok in self._unprefilled.items() if held <= rank)

    def __contains__(self, rid: int) -> bool:
        return rid in self._charges

    def __iter__(self) -> Iterator[int]:
        return iter(self._charges)

    def charge(self, rid: int, *, rank: int, kv_tok: int, prompt_tok: int) -> None:
        """Take a seat."""
        assert rid not in self._charges, rid
        self._charges[rid] = _Charge(rank, kv_tok, 0)
        self.kv_tok += kv_tok
        self.leave_unprefilled(rid, prompt_tok)

    def adjust(self, rid: int, *, kv_tok: int) -> None:
        """The request turns out to hold this much KV cache."""
        charge = self._charges[rid]
        self.kv_tok += kv_tok - charge.kv_tok
        charge.kv_tok = kv_tok

    def unprefilled_of(self, rid: int) -> int:
        """The prompt tokens of one request that are still to be computed."""
        return self._charges[rid].unprefilled_tok

    def leave_unprefilled(self, rid: int, tok: int) -> None:
        """So many of its prompt tokens are still to be computed."""
        charge = self._charges[rid]
        of_rank = self._unprefilled.pop(charge.rank, 0) + tok - charge.unprefilled_tok
        if of_rank:
            self._unprefilled[charge.rank] = of_rank
        charge.unprefilled_tok = tok

    def quarantine(self, rid: int) -> None:
        """Its permit is gone, and the engine has not said that the seat is free."""
        charge = self._charges[rid]
        assert not charge.quarantined, rid
        charge.quarantined = True
        self.quarantined += 1

    def free(self, rid: int) -> None:
        """The seat is free; everything it held goes back."""
        self.leave_unprefilled(rid, 0)
        charge = self._charges.pop(rid)
        self.kv_tok -= charge.kv_tok
        self.quarantined -= charge.quarantined

    def check(self, quarantined: Set[int]) -> None:
        """Raise AssertionError unless the totals are the sums of the charges, and the quarantined
        are these."""
        charges = self._charges.values()
        assert self.kv_tok == sum(c.kv_tok for c in charges)
        assert {rid for rid, c in self._charges.items() if c.quarantined} == quarantined
        assert self.quarantined == len(quarantined)
        by_rank: Counter[int] = Counter()
        for charge in charges:
            assert charge.kv_tok >= 0
            assert charge.unprefilled_tok >= 0
            by_rank[charge.rank] += charge.unprefilled_tok
        assert +by_rank == self._unprefilled, (by_rank, self._unprefilled)


@dataclass(frozen=True, slots=True)
class Full:
    """A `BoundedLedger` has no room: `per_key` tells which of its two bounds it was."""

    per_key: bool
    limit: int
    used: int


class BoundedLedger:
    """Amounts by key under two bounds, one for each key and one for all. Forgets empty keys."""

    def __init__(self, total_limit: int, per_key_limit: int) -> None:
        self._total_limit = total_limit
        self._per_key_limit = per_key_limit
        self._held: Counter[str] = Counter()
        self.total = 0

    def __len__(self) -> int:
        return len(self._held)

    def change_limits(self, total_limit: int, per_key_limit: int) -> None:
        """New bounds; what is held stays, also above them."""
        self._total_limit, self._per_key_limit = total_limit, per_key_limit

    def used(self, key: str) -> int:
        """What this key holds."""
        return self._held[key] if key in self._held else 0

    def try_charge(self, key: str, amount: int) -> Full | None:
        """Charge at once, or say which bound is in the way and charge nothing."""
        assert amount >= 0, amount
        held = self.used(key)
        if held + amount > self._per_key_limit:
            return Full(True, self._per_key_limit, held)
        if self.total + amount > self._total_limit:
            return Full(False, self._total_limit, self.total)
        if amount:
            self._held[key] = held + amount
            self.total += amount
        return None

    def refund(self, key: str, amount: int) -> None:
        """Give back what was charged."""
        held = self.used(key)
        assert 0 <= amount <= held, (key, amount, held)
        self.total -= amount
        if held == amount:
            self._held.pop(key, None)
        else:
            self._held[key] = held - amount
