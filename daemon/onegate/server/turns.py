"""Whose work the loop does next: its time is shared by principal, not by connection.

Without this, whoever opens fifty connections would get fifty turns for everybody else's one.
"""

import asyncio
from collections import deque
from typing import Protocol

from onegate import clock

# How long one principal may keep all others waiting. Shorter would cost more turns than it saves.
TURN_NS = 2_000_000


class Worker(Protocol):
    """A connection with something to be worked off."""

    @property
    def principal(self) -> str:
        """Whose turn it takes."""

    def work(self) -> bool:
        """Work on what has come until `Turns.over`, at least one message of it.

        True when something is left, which is asked for again: until then nothing more may come.
        """

    def hold(self) -> bool:
        """Keep what has come for a later turn; false when there is nothing to keep after all."""


class Turns:
    """One turn for each principal and pass of the loop, however many connections it has.

    Who has not had its turn in this pass, and has nothing waiting, works at once: a quiet client
    waits for nobody but those whose turn it is. What is left after a turn, and what comes beyond
    it, waits for the next pass; there every principal that has something waiting gets one turn, in
    which its connections take turns among themselves.
    """

    def __init__(self) -> None:
        # In the order of their turns, both the principals and the connections of each.
        self._waiting: dict[str, deque[Worker]] = {}
        self._whose: dict[Worker, str] = {}
        self._used_ns: dict[str, int] = {}
        self._until_ns = 0
        self._scheduled = False

    def __len__(self) -> int:
        """How many connections wait for a turn."""
        return len(self._whose)

    def come(self, worker: Worker) -> None:
        """Something has come on a connection that does not wait for a turn."""
        principal = worker.principal
        if principal not in self._waiting and self._may(principal):
            if self._work(principal, worker):
                self._wait(principal, worker)
        elif worker.hold():
            self._wait(principal, worker)

    def forget(self, worker: Worker) -> None:
        """The connection is over."""
        principal = self._whose.pop(worker, None)
        if principal is not None:
            queue = self._waiting[principal]
            queue.remove(worker)
            if not queue:
                del self._waiting[principal]

    @property
    def over(self) -> bool:
        """Is the present turn over?"""
        return clock.monotonic_ns() >= self._until_ns

    def charge(self, principal: str, ns: int) -> None:
        """This turn is that much shorter: it has begun what will keep the loop as long later."""
        self._used_ns[principal] = self._used_ns.get(principal, 0) + ns
        self._until_ns -= ns

    def _may(self, principal: str) -> bool:
        # Having used nothing is enough, also where a turn is no time at all.
        return principal not in self._used_ns or self._used_ns[principal] < TURN_NS

    def _work(self, principal: str, worker: Worker) -> bool:
        began_ns = clock.monotonic_ns()
        self._until_ns = began_ns + TURN_NS - self._used_ns.get(principal, 0)
        try:
            return worker.work()
        finally:
            self.charge(principal, clock.monotonic_ns() - began_ns)
            self._schedule()

    def _wait(self, principal: str, worker: Worker) -> None:
        self._waiting.setdefault(principal, deque()).append(worker)
        self._whose[worker] = principal
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._pass)

    def _pass(self) -> None:
        self._scheduled = False
        self._used_ns.clear()
        try:
            for principal in tuple(self._waiting):
                self._turn(principal)
        finally:
            # Only now: what has been begun in this pass runs before the next one.
            if self._waiting:
                self._schedule()

    def _turn(self, principal: str) -> None:
        queue = self._waiting[principal]
        try:
            # Each connection once: one that leaves off early waits for what it has written to go.
            for _ in range(len(queue)):
                if not self._may(principal):
                    break
                worker = queue.popleft()
                del self._whose[worker]
                if self._work(principal, worker):
                    queue.append(worker)
                    self._whose[worker] = principal
        finally:
            # A bug ends the connection that it hits; those that wait behind it keep their turns.
            del self._waiting[principal]
            if queue:
                self._waiting[principal] = queue
