"""Where values lie on an axis, and which of them are written beside it."""

import math
from collections.abc import Sequence

from msgspec import Struct


class Axis(Struct, frozen=True, kw_only=True):
    """`low` to `high` onto `begin` to `end` pixels; `log` needs both above 0."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value; what lies outside is put on the edge."""
        low, high = self._of(self.low), self._of(self.high)
        share = (self._of(min(max(value, self.low), self.high)) - low) / (high - low)
        return self.begin + share * (self.end - self.begin)

    def _of(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self) -> list[float]:
        """A handful of round values within."""
        if self.log:
            return _log_ticks(self.low, self.high)
        step = _round_step((self.high - self.low) / 6)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def axis(
    values: Sequence[float], *, begin: float, end: float, log: bool = False, zero: bool = True
) -> Axis:
    """An axis that holds all values, from 0 on unless it is logarithmic or `zero` is not wanted."""
    if log:
        above = [value for value in values if value > 0] or [1.0]
        low, high = min(above), max(above)
        if high / low < 10:
            low, high = low / 2, max(high * 2, low * 5)
        return Axis(low=low, high=high, begin=begin, end=end, log=True)
    low = 0.0 if zero else min(values, default=0.0)
    high = max(values, default=1.0)
    if high <= low:
        high = low + 1.0
    return Axis(low=low, high=high + (high - low) * 0.05, begin=begin, end=end)


def _round_step(rough: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine: tuple[int, ...] = (1, 2, 5) if math.log10(high / low) < 2.5 else (1,)
    found = [factor * 10.0**power for power in powers for factor in fine]
    return [value for value in found if low <= value <= high]
