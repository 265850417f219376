"""How long answers are: a survival curve, from answers that ended and from answers that were cut.

A mean says little of lengths that vary a hundredfold, and the mean of the answers that ended says
less: long ones are aborted, cancelled or cut at `max_tok` more often, so what ended is too short.
The product-limit estimate counts a cut answer among those at risk as far as it was watched.

Old answers fade by the number of newer ones, not by the clock: what is asked for changes as people
ask, and a quiet night says nothing about it.
"""

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from math import ceil
from operator import neg

# Below so many answers (newer count more) nothing is known: the median of 20 lies between the true
# 30 % and 70 % points in 19 of 20 cases.
LEAST = 20
# Nothing is said of an age that fewer than so many have been watched at.
LEAST_AT_RISK = 4
# Answers that one curve remembers: the weight of an answer falls by 1/e with so many newer ones.
MEMORY = 512
# Weights grow instead of old counts being faded; before they are too large everything is scaled.
_HEAVY = 2.0**40
# What a curve says is renewed when this part of what it rests on is new. One answer of many does
# not move it, and to solve it costs as much as everything else that is decided about a request.
_NEWS = 1 / 32
# Cut answers count the part of their last bucket that they were watched for, in parts that add and
# subtract without rounding.
_PARTS = 64
# A length is whole; what rounding adds to one does not make it the next.
_ROUNDING = 1e-9


def _edges() -> tuple[int, ...]:
    edges = [1]
    while edges[-1] < 1_000_000:
        edges.append(max(edges[-1] + 1, round(edges[-1] * 1.25)))
    return tuple(edges)


# Bucket i holds lengths above EDGES[i - 1] (0 for the first) up to EDGES[i]: exact to 6 tokens,
# then 25 % wide. What is longer than the last edge counts as the last edge.
EDGES = _edges()
LONGEST_TOK = EDGES[-1]


@dataclass(frozen=True, slots=True)
class _Curve:
    """At edge i `alive[i]` of all are longer, and `area[i]` tokens are made up to it on average.

    Between edges it is a straight line. Ages below `watched_tok` were watched often enough.
    """

    alive: list[float]
    area: list[float]
    watched_tok: int

    def alive_at(self, tok: int) -> float:
        """The share that is longer than `tok`."""
        i = bisect_left(EDGES, tok)
        if i == len(EDGES):
            return self.alive[-1]
        if i == 0:
            low_tok, before = 0, 1.0
        else:
            low_tok, before = EDGES[i - 1], self.alive[i - 1]
        return before + (tok - low_tok) / (EDGES[i] - low_tok) * (self.alive[i] - before)

    def area_at(self, tok: int) -> float:
        """Tokens that are made up to `tok` on average."""
        i = bisect_left(EDGES, tok)
        alive = self.alive_at(tok)
        if i == 0:
            return (1.0 + alive) / 2 * tok
        return self.area[i - 1] + (self.alive[i - 1] + alive) / 2 * (tok - EDGES[i - 1])


class Survival:
    """The curve of one kind of answer. Memory is fixed; no length can break it.

    `memory` is how many answers count, None for all until they are taken back.
    """

    __slots__ = ("_curve", "_cut", "_cut_part", "_ended", "_growth", "_news", "_total", "_weight")

    def __init__(self, memory: int | None = MEMORY) -> None:
        zeros = bytes(8 * len(EDGES))
        self._ended = array("d", zeros)
        self._cut = array("d", zeros)
        self._cut_part = array("d", zeros)
        self._growth = 1.0 if memory is None else memory / (memory - 1)
        self._weight = 1.0
        self._total = 0.0
        self._curve: _Curve | None = None
        self._news = 0

    @property
    def samples(self) -> float:
        """How many answers it rests on, old ones counted less: at most `memory`."""
        return self._total / self._weight

    @property
    def known(self) -> bool:
        """Does it rest on enough to be asked?"""
        return self.samples >= LEAST

    def add(self, output_tok: int, *, ended: bool) -> None:
        """An answer came to its own end after `output_tok`, or was cut there by something else."""
        self._weight *= self._growth
        self._put(output_tok, ended, self._weight)
        if self._weight > _HEAVY:
            for counts in (self._ended, self._cut, self._cut_part):
                for i, count in enumerate(counts):
                    counts[i] = count / self._weight
            self._total /= self._weight
            self._weight = 1.0

    def take_back(self, output_tok: int, *, ended: bool) -> None:
        """Undo `add` exactly, in a curve that does not fade."""
        assert self._growth == 1.0
        self._put(output_tok, ended, -1.0)

    def quantile(self, q: float) -> int | None:
        """The least length that a share `q` of answers does not exceed; grows with `q`.

        None where too few answers were watched as far as that.
        """
        curve = self._solved()
        wanted = 1.0 - q
        i = bisect_left(curve.alive, -wanted, key=neg)
        if i == len(EDGES) or EDGES[i] > curve.watched_tok:
            return None
        low_tok, before = (EDGES[i - 1], curve.alive[i - 1]) if i else (0, 1.0)
        part = (before - wanted) / (before - curve.alive[i]) if before > wanted else 0.0
        return low_tok + max(1, ceil(part * (EDGES[i] - low_tok) - _ROUNDING))

    def alive(self, age_tok: int) -> float | None:
        """P(an answer is longer than `age_tok`), above 0; None where that is not known."""
        curve = self._solved()
        if age_tok >= curve.watched_tok:
            return None
        return curve.alive_at(max(0, age_tok))

    def alive_later(self, tok: int) -> float:
        """The same without a limit: beyond what was watched nobody is taken to end."""
        return self._solved().alive_at(max(0, tok))

    def ends_within(self, age_tok: int, more_tok: int) -> float | None:
        """P(it makes at most `more_tok` further tokens | it has made `age_tok` and goes on).

        Grows with `more_tok`. None at an age that too few were watched at. Beyond the longest
        answer that was watched it is a lower bound.
        """
        alive = self.alive(age_tok)
        if alive is None:
            return None
        return 1.0 - self.alive_later(max(0, age_tok) + max(0, more_tok)) / alive

    def mean_left(self, age_tok: int, cap_tok: int) -> float | None:
        """Expected further tokens of an answer that has made `age_tok` and may make `cap_tok` more.

        None at an age that too few were watched at. An upper estimate where longer ones were cut.
        """
        alive = self.alive(age_tok)
        if alive is None:
            return None
        age_tok, cap_tok = max(0, age_tok), max(0, cap_tok)
        curve, end_tok = self._solved(), age_tok + cap_tok
        # Tokens are whole: the sum of P(longer than t) for each t, not the area between.
        made = curve.area_at(end_tok) - curve.area_at(age_tok)
        made += (alive - curve.alive_at(end_tok)) / 2
        return min(float(cap_tok), made / alive)

    def _put(self, output_tok: int, ended: bool, weight: float) -> None:
        if output_tok < 1 and not ended:
            return  # cut before it said anything: nothing was watched
        tok = min(max(output_tok, 1), LONGEST_TOK)
        i = bisect_left(EDGES, tok)
        if ended:
            self._ended[i] += weight
        else:
            low_tok = EDGES[i - 1] if i else 0
            part = (tok - low_tok) / (EDGES[i] - low_tok)
            self._cut[i] += weight
            self._cut_part[i] += weight * (round(part * _PARTS) / _PARTS)
        self._total += weight
        self._news += 1
        if self._news > _NEWS * self.samples:
            self._curve = None

    def _solved(self) -> _Curve:
        if self._curve is None:
            self._curve = self._solve()
            self._news = 0
        return self._curve

    def _solve(self) -> _Curve:
        at_risk: list[float] = []
        left = 0.0
        for ended, cut, part in zip(
            reversed(self._ended), reversed(self._cut), reversed(self._cut_part), strict=True
        ):
            at_risk.append(left + ended + part)
            left += ended + cut
        at_risk.reverse()
        alive: list[float] = []
        area: list[float] = []
        now, made, low_tok = 1.0, 0.0, 0
        for high_tok, ended, risk in zip(EDGES, self._ended, at_risk, strict=True):
            before = now
            if ended > 0.0:
                now *= 1.0 - ended / risk
            made += (before + now) / 2 * (high_tok - low_tok)
            alive.append(now)
            area.append(made)
            low_tok = high_tok
        watched = bisect_right(at_risk, -LEAST_AT_RISK * self._weight, key=neg)
        return _Curve(alive, area, EDGES[watched - 1] if watched and self.known else 0)
