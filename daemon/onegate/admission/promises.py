"""Those who wait with a deadline, earliest first: what was promised to them is kept.

The fair order decides who is next as long as nobody's time runs out. A newcomer is let in only if
everybody can still be in time, in the order of deadlines (which, if any order can, does it); and
once somebody would be late otherwise, that is the order in which they start.
"""

from bisect import bisect_left, insort

# So many of the earliest are looked at; if they are in time at the pace of their class, and each
# newcomer was checked against all, those behind them are.
LOOKED_AT = 8


class Promises:
    """`(start_by_ns, seq, rid)` of all who have a time to start by."""

    def __init__(self) -> None:
        self._by_time: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._by_time)

    def add(self, key: tuple[int, int, int]) -> None:
        """It waits."""
        insort(self._by_time, key)

    def remove(self, key: tuple[int, int, int]) -> None:
        """It does not wait any more."""
        place = bisect_left(self._by_time, key)
        assert self._by_time[place] == key
        del self._by_time[place]

    def place(self, key: tuple[int, int, int]) -> int:
        """How many have to start before it at the latest."""
        return bisect_left(self._by_time, key)

    def urgent(self, now_ns: int, gap_ns: float) -> int | None:
        """The one that starts next whoever's turn it is, when one starts every `gap_ns`: somebody
        has no time left to let others pass."""
        for place, (start_by_ns, _, _) in enumerate(self._by_time[:LOOKED_AT]):
            if start_by_ns - now_ns <= (place + 2) * gap_ns:
                return self._by_time[0][2]
        return None

    def made_late(self, key: tuple[int, int, int], now_ns: int, gap_ns: float) -> bool:
        """Would somebody behind it be late, who was not before it came?"""
        place = self.place(key)
        for behind in range(place + 1, len(self._by_time)):
            left_ns = self._by_time[behind][0] - now_ns
            if behind * gap_ns <= left_ns < (behind + 1) * gap_ns:
                return True
        return False
