"""Who was served how much: virtual token counters of principals, and of the flows of each.

Whoever has had the least is next. A counter is charged the prompt when a request starts and each
output token as it comes (Sheng et al., "Fairness in Serving Large Language Models", OSDI'24; input
and output weigh the same here, because a box shares its tokens out, not its money). What turns out
not to be computed, because the engine's cache has it, is set off against what is charged next, so
that a counter never goes back. Whoever comes back after a pause is lifted to the level at which the
others are served (start-time fair queueing, Goyal et al., SIGCOMM'96): nobody saves up by being
away, and a new name never starts below the others.

Whoever is ahead of that level by less than `TOLERANCE_TOK` is not ahead, and equals are served as
they came. Otherwise each newcomer passes everybody who has had one request more than he, and what
was promised to those who wait does not hold.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

# Of accounts without requests, how many are remembered for being above the level. An older one
# that comes back starts at the level: it may have been served a little more than its share.
IDLE_KEPT = 64
# About four chats. With a principal's counter this far ahead he waits; shares are equal to within
# this much.
TOLERANCE_TOK = 8192
# Above so many a place in line is estimated and not counted.
MANY = 64


class Account:
    """One principal of a class, or one flow of a principal.

    `served_tok` only grows. `credit_tok` of it were not computed after all. `live` counts its
    requests that wait or run. `level_tok` is where its own children begin.
    """

    __slots__ = (
        "_children",
        "_idle",
        "credit_tok",
        "level_tok",
        "live",
        "name",
        "parent",
        "served_tok",
    )

    def __init__(self, name: str, parent: "Account | None", served_tok: int) -> None:
        self.name = name
        self.parent = parent
        self.served_tok = served_tok
        self.credit_tok = 0
        self.live = 0
        self.level_tok = 0
        self._children: dict[str, Account] = {}
        self._idle: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._children)

    def __iter__(self) -> Iterator["Account"]:
        return iter(self._children.values())

    @property
    def due_tok(self) -> int:
        """Its turn, among its siblings: what it had beyond the tolerance, or their level."""
        assert self.parent is not None
        return max(self.served_tok - TOLERANCE_TOK, self.parent.level_tok)

    def enter(self, name: str) -> "Account":
        """One more request of this child."""
        child = self._children.get(name)
        if child is not None and not child.live:
            del self._idle[name]
            if child.served_tok <= self.level_tok:
                child = None
            else:  # without its credit it would be lifted to the level, and no further
                child.credit_tok = min(child.credit_tok, child.served_tok - self.level_tok)
        if child is None:
            child = self._children[name] = Account(name, self, self.level_tok)
        child.live += 1
        return child

    def leave(self, child: "Account") -> None:
        """One request less. A child without any is forgotten, or kept for what it is ahead."""
        child.live -= 1
        assert child.live >= 0, child.name
        if child.live:
            return
        if child.served_tok <= self.level_tok:
            del self._children[child.name]
            return
        self._idle[child.name] = None
        if len(self._idle) > IDLE_KEPT:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            del self._children[oldest]

    def charge(self, tok: int) -> None:
        """So many tokens more, less what it was charged for nothing."""
        free_tok = min(self.credit_tok, tok)
        self.credit_tok -= free_tok
        self.served_tok += tok - free_tok

    def check(self) -> None:
        """Raise AssertionError unless the living are counted once and the idle are few."""
        assert self.credit_tok >= 0
        assert len(self._idle) <= IDLE_KEPT
        assert {name for name, child in self._children.items() if not child.live} == set(self._idle)
        for child in self:
            if len(child):
                assert child.live == sum(flow.live for flow in child)
                child.check()


class Accounts:
    """The principals of one class."""

    def __init__(self) -> None:
        self._root = Account("", None, 0)

    def __len__(self) -> int:
        return len(self._root)

    @property
    def live(self) -> int:
        """How many requests wait or run."""
        return sum(principal.live for principal in self._root)

    def enter(self, principal: str, flow: str) -> Account:
        """A request of this flow has come; returns the account to charge."""
        return self._root.enter(principal).enter(flow)

    def leave(self, flow: Account) -> None:
        """The request is over."""
        principal = flow.parent
        assert principal is not None
        principal.leave(flow)
        self._root.leave(principal)

    def chosen(self, flow: Account) -> None:
        """One of its requests starts: this is the level at which others come in from now on."""
        principal = flow.parent
        assert principal is not None
        principal.level_tok = flow.due_tok
        self._root.level_tok = principal.due_tok

    @staticmethod
    def charge(flow: Account, tok: int) -> None:
        """So many tokens were computed for it."""
        principal = flow.parent
        assert principal is not None
        flow.charge(tok)
        principal.charge(tok)

    @staticmethod
    def credit(flow: Account, tok: int) -> None:
        """So many of the tokens that it was charged were not computed."""
        principal = flow.parent
        assert principal is not None
        flow.credit_tok += tok
        principal.credit_tok += tok

    def check(self) -> None:
        """Raise AssertionError unless every total is the sum of its parts."""
        self._root.check()


class LeastServed:
    """Accounts in the order of their turns; equals in the order of what waits at their heads.

    Turns only grow, so an entry that is out of date is only ever too early: the first is looked at
    again until it is true. All but `most_served_first` and `before` are O(log n) in the long run.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, Account]] = []
        self._in: dict[Account, tuple[int, int]] = {}
        self._seqs: dict[Account, list[int]] = {}
        self._serial = 0

    def __contains__(self, account: Account) -> bool:
        return account in self._in

    def add(self, account: Account, seq: int) -> None:
        """One more of it waits, which came as the `seq`-th of all."""
        insort(self._seqs.setdefault(account, []), seq)
        self._enter(account)

    def remove(self, account: Account, seq: int) -> None:
        """One of it does not wait any more."""
        seqs = self._seqs[account]
        del seqs[bisect_left(seqs, seq)]
        if seqs:
            self._enter(account)
        else:
            del self._seqs[account], self._in[account]

    def _enter(self, account: Account) -> None:
        head_seq = self._seqs[account][0]
        known = self._in.get(account)
        if known is not None and known[0] == head_seq:
            return
        self._serial += 1
        self._in[account] = head_seq, self._serial
        heappush(self._heap, (account.due_tok, head_seq, self._serial, account))
        if len(self._heap) > 16 + 2 * len(self._in):
            entries = self._in.items()
            self._heap = [(a.due_tok, seq, serial, a) for a, (seq, serial) in entries]
            heapify(self._heap)

    def first(self) -> Account:
        """The one whose turn it is; there must be one."""
        heap = self._heap
        while True:
            known_tok, seq, serial, account = heap[0]
            if self._in.get(account) != (seq, serial):
                heappop(heap)
            elif account.due_tok != known_tok:
                heapreplace(heap, (account.due_tok, seq, serial, account))
            else:
                return account

    def most_served_first(self) -> list[Account]:
        """All of them, the last to come of equals first."""
        return sorted(self._in, key=lambda a: (a.served_tok, self._in[a]), reverse=True)

    def before(self, account: Account, seq: int, turn: int) -> int:
        """About how many of all others come before this account's `turn`-th, which counts from 0
        and came as the `seq`-th of all: as if nobody were charged and all were of one size."""
        if len(self._in) > MANY:
            # Everybody's place would cost as much as there are of them; half of them is near.
            turns = sum(min(len(seqs), turn) for seqs in self._seqs.values())
            return turns - turn + len(self._in) // 2
        due_tok = account.due_tok
        before = 0
        for other, seqs in self._seqs.items():
            if other is account:
                continue
            if other.due_tok == due_tok:
                before += bisect_left(seqs, seq)
            else:
                before += min(len(seqs), turn + (other.due_tok < due_tok))
        return before
