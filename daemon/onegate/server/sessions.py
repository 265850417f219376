"""All connections: who may have one more, and what is said to who may not."""

import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from onegate import clock
from onegate.protocol.errors import Reason
from onegate.server.classify import Decision, classify
from onegate.server.log import Event
from onegate.server.outcome import Ending, Outcome, RequestEnded
from onegate.server.peercred import Peer, identify
from onegate.server.services import Services
from onegate.server.session import Session

NOBODY = Ending(
    Outcome.REJECTED, Reason.PERMISSION, "the kernel does not say who you are: connect again"
)

LOG_EVERY_NS = 1_000_000_000


class Sessions:
    """The open connections, bounded in all and for each uid. Makes a session of each accept."""

    def __init__(self, services: Services, dispatch: Callable[[Session, Any], None]) -> None:
        self._services = services
        self._dispatch = dispatch
        # Each with the names under which it is counted.
        self._open: dict[Session, list[str]] = {}
        self._counts: Counter[str] = Counter()
        self._unlogged = 0
        self._log_next_ns = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._open))

    def accept(self) -> Session:
        """The protocol factory of the listening socket."""
        return Session(self._services, self._dispatch, self._enter, self._leave, speak=self._speak)

    def _enter(self, session: Session, sock: socket.socket) -> tuple[Peer, Decision]:
        """Identify and admit a connection; raises `RequestEnded` where it may not stay."""
        services = self._services
        try:
            peer = identify(sock, services.kernel)
        except OSError as error:
            services.log.event(Event.PEER_UNREADABLE, detail=error.strerror)
            raise RequestEnded(NOBODY) from error
        if peer.unreadable:
            services.log.event(
                Event.PEER_UNREADABLE, uid=peer.uid, pid=peer.pid, detail=peer.unreadable
            )
        gate = services.config.gate
        self._check(len(self._open), gate.sessions_total, "the daemon has", peer.uid)
        decision = classify(peer, services.rules, None, "")
        assert isinstance(decision, Decision)  # nothing was asked for that could be refused
        name, limit = f"uid:{peer.uid}", gate.sessions_per_uid
        if decision.delegate:
            # It has one for each end client, and they are counted one by one; what is left is for
            # those who come themselves.
            name, limit = f"delegate:{peer.uid}", max(limit, gate.sessions_total // 2)
        self._check(self._counts[name], limit, "you have", peer.uid)
        self._open[session] = [name]
        self._counts[name] += 1
        return peer, decision

    def _speak(self, session: Session) -> None:
        """A delegate has said whom this connection is for: one of his, from now on.

        Raises `RequestEnded` where he has too many.
        """
        name, limit = session.decision.end_client, self._services.config.gate.sessions_per_uid
        self._check(self._counts[name], limit, "the client that you speak for has", session.uid)
        self._open[session].append(name)
        self._counts[name] += 1

    def _check(self, used: int, limit: int, who: str, uid: int) -> None:
        if used < limit:
            return
        self._services.accounts.sessions_refused += 1
        self._unlogged += 1
        now_ns = clock.monotonic_ns()
        if now_ns >= self._log_next_ns:
            # One line for many: whoever is refused in a loop must not fill the journal.
            self._log_next_ns = now_ns + LOG_EVERY_NS
            detail = f"{self._unlogged} refused since the last such line"
            self._services.log.event(Event.SESSION_REFUSED, uid=uid, count=used, detail=detail)
            self._unlogged = 0
        raise RequestEnded(
            Ending(
                Outcome.REJECTED,
                Reason.PEER_QUOTA,
                f"{who} {used} connections of at most {limit}: close one, or use one for several "
                "requests",
                limit=limit,
                used=used,
            )
        )

    def _leave(self, session: Session) -> None:
        for name in self._open.pop(session, ()):
            self._counts[name] -= 1
            if not self._counts[name]:
                del self._counts[name]  # one entry for each that is here, none for the others
