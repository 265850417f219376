"""The live requests: each from its arrival to its one end."""

import asyncio
from collections.abc import Collection, Iterator
from typing import Protocol

from onegate.protocol.errors import Phase, Reason
from onegate.protocol.messages import DaemonMessage
from onegate.server.behaviour import Start
from onegate.server.outcome import Ending, Outcome
from onegate.server.work import Work

# Of all live requests, what one principal may have: more than its share of any queue, and never so
# much that nothing is left for the others.
PRINCIPAL_SHARE = 0.9

# The verbs that take a place in a class's queue, and so in its counts.
QUEUED_VERBS = frozenset({"generate", "lease", "embed", "load"})


class Client(Protocol):
    """What a request needs of the connection that it came from."""

    @property
    def principal(self) -> str:
        """Whom its requests are counted for."""

    @property
    def uid(self) -> int:
        """The peer's uid."""

    def send(self, message: DaemonMessage) -> None:
        """Queue a message; nothing happens once the connection is closing."""

    @property
    def overflowing(self) -> bool:
        """Has the client left more unread than it may?"""


class Mute:
    """The client of a request whose id has been taken from it: nothing is said to it any more."""

    overflowing = False

    def __init__(self, *, principal: str, uid: int) -> None:
        self.principal = principal
        self.uid = uid

    def send(self, message: DaemonMessage) -> None:
        """Say nothing."""


class LiveRequest:
    """One request. It ends by finishing or by the first `end` that reaches it, never by both.

    `task` is the one that carries it out, from the moment that it runs. `start` says how it was
    treated, where it counts as what its program does.
    """

    __slots__ = (
        "arrived_ns",
        "class_",
        "client",
        "ending",
        "first_text_ns",
        "granted_ns",
        "id",
        "output_tok",
        "phase",
        "predicted_ns",
        "principal",
        "prompt_tok",
        "rid",
        "serial",
        "start",
        "task",
        "verb",
        "work",
    )

    def __init__(
        self, *, client: Client, id: int, serial: int, rid: str, verb: str, arrived_ns: int
    ) -> None:
        self.client = client
        self.principal = client.principal
        self.id = id
        self.serial = serial
        self.rid = rid
        self.verb = verb
        self.arrived_ns = arrived_ns
        self.class_ = ""
        self.phase = Phase.ARRIVAL
        self.granted_ns: int | None = None
        self.first_text_ns: int | None = None
        # From its arrival to its first token, as expected when it had to wait.
        self.predicted_ns: int | None = None
        self.prompt_tok = 0
        self.output_tok = 0
        self.work = Work()
        self.ending: Ending | None = None
        self.task: asyncio.Task[None] | None = None
        self.start: Start | None = None

    @property
    def asked_class(self) -> str:
        """The class that it asked for, or that its connection is in; `class_` is what it got."""
        return self.class_ if self.start is None else self.start.treatment.asked

    def end(self, ending: Ending) -> None:
        """Stop this request for that reason. The first reason holds; later ones are too late.

        Only one cancellation is ever sent, so that none hits the request while it cleans up. A
        request whose task has not begun is not cancelled, because then it would never run to its
        end: it reads `ending` when it begins.
        """
        if self.ending is None:
            self.ending = ending
            if self.task is not None:
                self.task.cancel()


class LiveRequests:
    """Every live request of the daemon by its rid, and the source of rids.

    A rid is `boot-serial`: unique in the journal across restarts as far as `boot` is.
    """

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._serial = 0
        self._live: dict[str, LiveRequest] = {}
        self._by_principal: dict[str, set[LiveRequest]] = {}
        self._empty = asyncio.Event()
        self._empty.set()

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[LiveRequest]:
        return iter(tuple(self._live.values()))

    def open(self, *, client: Client, id: int, verb: str, arrived_ns: int) -> LiveRequest:
        """Register a request that has just arrived."""
        self._serial += 1
        request = LiveRequest(
            client=client,
            id=id,
            serial=self._serial,
            rid=f"{self._boot}-{self._serial}",
            verb=verb,
            arrived_ns=arrived_ns,
        )
        self._live[request.rid] = request
        self._by_principal.setdefault(request.principal, set()).add(request)
        self._empty.clear()
        return request

    def full(self, principal: str, limit: int) -> Ending | None:
        """Why this principal may not have one more, of `limit` in all. A guard for memory: each is
        a task, whether it waits in a queue, for a count, or for a moment of the loop."""
        own, own_limit = len(self.of(principal)), int(limit * PRINCIPAL_SHARE)
        if own >= own_limit:
            reason, whose, used, most = Reason.PEER_QUOTA, "you have", own, own_limit
        elif len(self._live) >= limit:
            reason, whose, used, most = Reason.CLASS_FULL, "there are", len(self._live), limit
        else:
            return None
        text = f"{whose} {used} requests of at most {most}: wait until some have ended"
        return Ending(Outcome.REJECTED, reason, text, limit=most, used=used)

    def close(self, request: LiveRequest) -> None:
        """Forget a request that has ended."""
        del self._live[request.rid]
        own = self._by_principal[request.principal]
        own.remove(request)
        if not own:
            del self._by_principal[request.principal]
        if not self._live:
            self._empty.set()

    def of(self, principal: str) -> Collection[LiveRequest]:
        """The live requests of one principal."""
        return self._by_principal.get(principal, ())

    async def wait_empty(self, timeout_s: float) -> None:
        """Wait until no request lives, or until the time is over."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty.wait()
        except TimeoutError:
            return

    def find(self, rid: str) -> LiveRequest | None:
        """The live request of that rid."""
        return self._live.get(rid)
