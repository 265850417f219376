"""Everything that is due at some time, in one heap whose entries may be out of date.

An entry is only a reminder to look: `due` of the owner says what holds now. Stale entries are
cast away when they come up, and all at once when they outnumber the living.
"""

from collections.abc import Callable
from enum import StrEnum
from heapq import heapify, heappop, heappush


class Kind(StrEnum):
    """What is due: a bound of a request by its rid, the opening of a class by its name, or (with
    no name) another look at which pool to load or at whom to stop."""

    TTFT = "ttft"
    WHOLE = "whole"
    SAFETY = "safety"
    OPENING = "opening"
    SWITCH = "switch"
    PREEMPT = "preempt"


Key = tuple[Kind, int | str]
Due = Callable[[Key], int | None]

COMPACT_ABOVE = 64


class Deadlines:
    """Reminders. `due(key)` gives the time that holds now, or None when nothing is due any more."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._heap: list[tuple[int, int, Key]] = []
        self._serial = 0

    def __len__(self) -> int:
        return len(self._heap)

    def remind(self, key: Key, living: int) -> None:
        """Look at `key` when it is due; `living` is how many keys can be due at all."""
        at_ns = self._due(key)
        if at_ns is None:
            return
        if len(self._heap) > COMPACT_ABOVE + 4 * living:
            self._compact()
        self._push(at_ns, key)

    def _push(self, at_ns: int, key: Key) -> None:
        self._serial += 1  # keys of different types do not compare
        heappush(self._heap, (at_ns, self._serial, key))

    def _compact(self) -> None:
        keys = dict.fromkeys(key for _, _, key in self._heap)
        self._heap = []
        for key in keys:
            if (at_ns := self._due(key)) is not None:
                self._serial += 1
                self._heap.append((at_ns, self._serial, key))
        heapify(self._heap)

    def next_ns(self) -> int | None:
        """When something is due next."""
        while self._heap:
            at_ns, _, key = self._heap[0]
            now_due = self._due(key)
            if now_due == at_ns:
                return at_ns
            heappop(self._heap)
            if now_due is not None:
                self._push(now_due, key)
        return None

    def due_by(self, now_ns: int) -> bool:
        """Whether anything may be due: reminders may be early, and are never late."""
        return bool(self._heap) and self._heap[0][0] <= now_ns

    def pop(self, now_ns: int) -> Key | None:
        """The next key that is due at `now_ns`; its owner must change what it is due for."""
        if not self.due_by(now_ns):
            return None
        at_ns = self.next_ns()
        if at_ns is None or at_ns > now_ns:
            return None
        return heappop(self._heap)[2]
