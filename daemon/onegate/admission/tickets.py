"""Promises: who was refused for room is told when to come back, and room is kept for it.

A class has a drain clock. Whoever is refused is due when the clock, at the rate at which the class
drains, says that there is room, and moves it on by its own size, so that the next one is due later:
refused requests form a line outside of the queue. A ticket is good once, for its principal and
class and a request that is no larger, from `EARLY_NS` before it is due until it expires; bounds are
wider for it by the share `ticket_grace`, because a rate is a forecast. One that is presented too
early stays good. Nobody's refusals push the others back by more than his share of the queue: beyond
it, and for his own quota, he moves a clock of his own. Whether promises are claimed is learned of
each principal by himself, so that those who never come do not spoil what the others are told.

What newcomers find while tickets are out: they start when they can start at once, and may wait
while the queue is nearly empty. Else they come after those who were promised room.
"""

from collections import OrderedDict
from dataclasses import dataclass
from heapq import heappop, heappush

from onegate.admission.model import Refused, RequestSpec
from onegate.admission.queue import Backpressure, ClassQueue

EARLY_NS = 50_000_000
# A ticket outlives its due time by this, or by this part of the wait that was promised.
LEAST_LIFE_NS = 5_000_000_000
LIFE_SHARE = 0.2
# Nobody knows what will be in an hour; who is due later than that gets no promise.
FARTHEST_NS = 3_600_000_000_000
MOST_OF_PRINCIPAL = 512
MOST = 4096
# Of the class's bound; below it newcomers wait beside those who were promised room.
LOW_WATER = 0.25
JITTER = 0.05
# How fast it is learned whether promises are claimed: by about this many of them.
MEMORY = 8
# In each class so many principals are remembered by whether they came.
KNOWN = 64


@dataclass(frozen=True, slots=True)
class Ticket:
    """A promise to one principal.

    Its clock went on by `behind_ns`: the class's, or the principal's `own`. `awaited`: newcomers
    stand back for it.
    """

    name: str
    class_: str
    principal: str
    prompt_bytes: int
    max_tok: int
    tok: int
    due_ns: int
    expires_ns: int
    behind_ns: int
    own: bool
    awaited: bool

    def covers(self, spec: RequestSpec) -> bool:
        """Is this the request that it was promised to, or a smaller one?"""
        return (
            spec.class_ == self.class_
            and spec.principal == self.principal
            and spec.prompt_bytes <= self.prompt_bytes
            and spec.max_tok <= self.max_tok
        )


@dataclass(frozen=True, slots=True)
class Forecast:
    """When there is room for one who was refused; `rate` in tokens a ns is what his clock runs by.

    `own`: by a clock of his own, which does not move the class's. `line_ns` is where the class's
    line ends as he joins it: his own line may end later, and does not make others wait.
    """

    due_ns: int
    line_ns: int
    rate: float
    own: bool


@dataclass(slots=True)
class _Share:
    """What one principal has been promised in a class, and when his own line ends."""

    tickets: int = 0
    tok: int = 0
    clock_ns: int = 0


class Comers:
    """Of the promises of one class, the part that somebody came back for, by principal.

    A stranger is taken for what strangers turned out to be, each by his first promise; at first for
    one who comes.
    """

    def __init__(self) -> None:
        self._parts: OrderedDict[str, float] = OrderedDict()
        self._strangers = 1.0

    def part(self, principal: str) -> float:
        """What part of this principal's promises is expected to be claimed."""
        return self._parts.get(principal, self._strangers)

    def learn(self, principal: str, *, claimed: bool) -> None:
        """One of his promises was claimed, or nobody came for it."""
        before = self._parts.pop(principal, None)
        if before is None:
            before = self._strangers
            self._strangers += (claimed - before) / MEMORY
        self._parts[principal] = before + (claimed - before) / MEMORY
        if len(self._parts) > KNOWN:
            self._parts.popitem(last=False)

    def __len__(self) -> int:
        return len(self._parts)


class Tickets:
    """The promises that are out, of all classes."""

    def __init__(self) -> None:
        self._live: dict[str, Ticket] = {}
        self._by_expiry: list[tuple[int, str]] = []
        self._clocks: dict[str, int] = {}
        self._comers: dict[str, Comers] = {}
        # By class, those that newcomers stand back for.
        self._awaited: dict[str, int] = {}
        # By class and principal, and the sum of what they have in the class's line.
        self._shares: dict[str, dict[str, _Share]] = {}
        self._line_tok: dict[str, int] = {}
        self._serial = 0

    def __len__(self) -> int:
        return len(self._live)

    def are_out(self, class_: str, now_ns: int) -> bool:
        """Has a line formed of those who were refused and told to come back, and do they?"""
        self._expire(now_ns)
        return self._clocks.get(class_, 0) > now_ns and self._awaited.get(class_, 0) > 0

    def presented(self, spec: RequestSpec, now_ns: int) -> Ticket | None:
        """The ticket that a request comes with, if it is one for it that has not expired."""
        if spec.ticket is None:
            return None
        self._expire(now_ns)
        ticket = self._live.get(spec.ticket)
        return ticket if ticket is not None and ticket.covers(spec) else None

    def use(self, ticket: Ticket) -> None:
        """The promise is kept."""
        self._comers[ticket.class_].learn(ticket.principal, claimed=True)
        self._forget(ticket)

    def forecast(
        self, queue: ClassQueue, principal: str, full: Backpressure, tok: int, now_ns: int
    ) -> Forecast | None:
        """When such a request is due; None while the class's rate is not known."""
        rate = queue.tok_per_ns(now_ns)
        if rate is None or full.reason is Refused.TOO_LARGE:
            return None
        rate *= full.drain_share
        class_ = queue.spec.name
        share = self._shares.get(class_, {}).get(principal, _Share())
        room_ns = now_ns + round(full.excess_tok / rate)
        if full.reason is Refused.PEER_QUOTA:
            return Forecast(max(room_ns, share.clock_ns), room_ns, rate, own=True)
        line_ns = max(self._clocks.get(class_, 0), room_ns)
        limit_tok = queue.principal_limit_tok()
        usual_tok = self._usual_tok(class_, share)
        if share.tok + tok > limit_tok + usual_tok:
            rate *= queue.spec.per_principal_share
            return Forecast(max(line_ns, share.clock_ns), line_ns, rate, own=True)
        due_ns = line_ns
        if usual_tok > limit_tok:
            ahead_tok = self._fairly_ahead_tok(class_, share, limit_tok)
            fair_ns = room_ns + round(ahead_tok / rate)
            # The line is the better forecast: this one moves with the rate of the moment.
            if fair_ns - now_ns < (line_ns - now_ns) / 2:
                due_ns = fair_ns
        return Forecast(max(due_ns, share.clock_ns), line_ns, rate, own=False)

    def _usual_tok(self, class_: str, share: _Share) -> float:
        """What each of the others has been promised in the class's line, on average.

        Where everybody is told to come back for a quarter of an hour, everybody is beyond his
        bound, and lines of their own side by side would promise the same room to all of them.
        """
        others = len(self._shares.get(class_, ())) - (share.tickets > 0)
        return (self._line_tok.get(class_, 0) - share.tok) / others if others else 0.0

    def _fairly_ahead_tok(self, class_: str, share: _Share, limit_tok: int) -> int:
        """What is served before one who shares fairly with the others of the line: of each of them
        as much as he has been promised himself, and a bound more."""
        most_tok = share.tok + limit_tok
        return share.tok + sum(
            min(one.tok, most_tok) for one in self._shares[class_].values() if one is not share
        )

    def issue(
        self, spec: RequestSpec, queue: ClassQueue, full: Backpressure, tok: int, now_ns: int
    ) -> tuple[int | None, str | None]:
        """In how long to come back, and the promise for then; None for what is not known.

        Without a promise nobody's clock moves.
        """
        self._expire(now_ns)
        forecast = self.forecast(queue, spec.principal, full, tok, now_ns)
        if forecast is None:
            return None, None
        class_ = queue.spec.name
        wait_ns = min(forecast.due_ns - now_ns, FARTHEST_NS)
        self._serial += 1
        # Only ever later: early is to be refused again. Spread by number, for want of chance.
        spread = self._serial * 0x9E3779B1 % 2**32 / 2**32
        due_ns = now_ns + wait_ns + round(wait_ns * JITTER * spread)
        shares = self._shares.setdefault(class_, {})
        share = shares.get(spec.principal, _Share())
        full_up = len(self._live) >= MOST or share.tickets >= MOST_OF_PRINCIPAL
        if full_up or wait_ns == FARTHEST_NS:
            return due_ns - now_ns, None
        shares[spec.principal] = share
        part = self._comers.setdefault(class_, Comers()).part(spec.principal)
        ticket = Ticket(
            name=f"{class_}-{self._serial}",
            class_=class_,
            principal=spec.principal,
            prompt_bytes=spec.prompt_bytes,
            max_tok=spec.max_tok,
            tok=tok,
            due_ns=due_ns,
            expires_ns=due_ns + max(LEAST_LIFE_NS, round(LIFE_SHARE * wait_ns)),
            # Whoever seldom comes back, those behind him need not wait as if he did.
            behind_ns=round(tok / forecast.rate * part),
            own=forecast.own,
            awaited=part > 0.5 and not forecast.own,
        )
        self._live[ticket.name] = ticket
        heappush(self._by_expiry, (ticket.expires_ns, ticket.name))
        share.tickets += 1
        self._awaited[class_] = self._awaited.get(class_, 0) + ticket.awaited
        if ticket.own:
            share.clock_ns = forecast.due_ns + ticket.behind_ns
        else:
            share.tok += tok
            self._line_tok[class_] = self._line_tok.get(class_, 0) + tok
            self._clocks[class_] = forecast.line_ns + ticket.behind_ns
        return due_ns - now_ns, ticket.name

    def _expire(self, now_ns: int) -> None:
        while self._by_expiry and self._by_expiry[0][0] <= now_ns:
            ticket = self._live.get(heappop(self._by_expiry)[1])
            if ticket is None:
                continue
            # Nobody came for it: those behind it need not wait so long.
            if ticket.own:
                self._shares[ticket.class_][ticket.principal].clock_ns -= ticket.behind_ns
            else:
                self._clocks[ticket.class_] -= ticket.behind_ns
            self._comers[ticket.class_].learn(ticket.principal, claimed=False)
            self._forget(ticket)

    def _forget(self, ticket: Ticket) -> None:
        del self._live[ticket.name]
        shares = self._shares[ticket.class_]
        share = shares[ticket.principal]
        share.tickets -= 1
        self._awaited[ticket.class_] -= ticket.awaited
        if not ticket.own:
            share.tok -= ticket.tok
            self._line_tok[ticket.class_] -= ticket.tok
        if not share.tickets:
            del shares[ticket.principal]

    def check(self) -> None:
        """Raise AssertionError unless totals are the sums of the promises that are out."""
        found = [(c, p, share) for c, of in self._shares.items() for p, share in of.items()]
        for class_, principal, share in found:
            of = [t for t in self._live.values() if (t.class_, t.principal) == (class_, principal)]
            assert share.tickets == len(of) > 0
            assert share.tok == sum(t.tok for t in of if not t.own)
        for class_, awaited in self._awaited.items():
            assert awaited == sum(t.awaited for t in self._live.values() if t.class_ == class_)
        for class_, line_tok in self._line_tok.items():
            assert line_tok == sum(share.tok for c, _, share in found if c == class_)
        assert sum(share.tickets for _, _, share in found) == len(self._live) <= MOST
