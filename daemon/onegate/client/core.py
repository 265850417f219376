"""What both clients do, written once.

These coroutines await nothing but a `Transport`. The asynchronous one suspends them; the blocking
one never does, so that its owner runs them to the end by a single step and needs no event loop.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from onegate.client.errors import (
    ProtocolError,
    Unavailable,
    error_of,
    invalid,
)
from onegate.client.request import MAX_S, Retry, convert
from onegate.client.session import HANDSHAKE, Session
from onegate.clock import monotonic_ns
from onegate.protocol import messages as m
from onegate.protocol.features import KNOWN
from onegate.protocol.validate import validate

T = TypeVar("T")
NS_PER_S = 1_000_000_000

# What a daemon that keeps its own deadline may be late by before it counts as gone.
GRACE_S = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one client; times in seconds."""

    path: str
    app: str
    model: str | None
    class_: str | None
    retry: Retry
    connect_timeout: float
    restart_timeout: float
    answer_timeout: float
    on_behalf: m.OnBehalf | None = None


class Link(Protocol):
    """One open connection. Times are those of `onegate.clock.monotonic_ns`."""

    session: Session

    async def send(self, data: bytes, deadline_ns: int | None) -> None:
        """Write; raises Unavailable where the connection is over, or TimeoutError."""

    def send_now(self, data: bytes) -> None:
        """Write a few bytes on the way out of something: never raises, never waits long."""

    async def receive(self, call_id: int, deadline_ns: int | None) -> m.DaemonMessage:
        """The next message for `call_id`; raises why the connection is over, or TimeoutError."""

    def look(self) -> None:
        """Take notice of what has arrived, an end of file included, without waiting."""

    def close(self) -> None:
        """Close at once. The daemon takes that for a cancellation of everything."""


class Transport(Protocol):
    """How a client reaches the world."""

    async def connect(self, path: str, deadline_ns: int) -> Link: ...

    async def sleep(self, seconds: float) -> None: ...

    def lock(self) -> AbstractAsyncContextManager[object]:
        """Held while the client's connection is made, so that it is made once."""


class Core:
    """One client's connection, made anew when the last one is over."""

    def __init__(self, transport: Transport, options: Options) -> None:
        if options.retry not in ("never", "restart", "honour"):
            raise invalid(f"retry is never, restart or honour, not {options.retry!r}", "retry")
        for name in ("connect_timeout", "restart_timeout", "answer_timeout"):
            if not 0 <= (seconds := getattr(options, name)) <= MAX_S:
                raise invalid(f"{name} is from 0 to {MAX_S} seconds, not {seconds}", name)
        self._hello = _hello(options)
        self.transport = transport
        self.options = options
        self._welcome: m.Welcome | None = None
        self._link: Link | None = None
        self._retired: set[Link] = set()  # refuse new requests, still stream old ones
        self._closed = False

    async def link(self) -> Link:
        """The connection, past its handshake.

        Raises Unavailable, NotPermitted, WrongModel, Rejected(shutting_down) and the like.
        """
        self._check_open()
        async with self.transport.lock():
            if self._link is not None:
                self._link.look()
                if self._link.session.ended is None:
                    return self._link
                self.retire(self._link)
            link = await self._greet()
            self._link = link
            self._check_open()
            return link

    def _check_open(self) -> None:
        """Raises Unavailable on a closed client, whose connection may only just have come about."""
        if self._closed:
            self.close()
            raise Unavailable("this client is closed")

    async def _greet(self) -> Link:
        """Connect and say hello."""
        options = self.options
        deadline_ns = deadline_in(options.connect_timeout)
        link = await self.transport.connect(options.path, deadline_ns)
        try:
            await link.send(link.session.encode(self._hello), deadline_ns)
            answer = await link.receive(HANDSHAKE, deadline_ns)
            if isinstance(answer, m.Failed):
                raise error_of(answer, started=False)
            if not isinstance(answer, m.Welcome):
                raise ProtocolError("the daemon answered a hello with something else")
            link.session.finish(HANDSHAKE)
        except TimeoutError:
            link.close()
            raise Unavailable(
                f"the daemon at {options.path} did not answer within {options.connect_timeout} s"
            ) from None
        except BaseException:
            link.close()
            raise
        self._welcome = answer
        return link

    def greeting(self) -> m.Welcome:
        """What the daemon said at the last handshake. Raises Unavailable before the first."""
        if self._welcome is None:
            raise Unavailable("this client has not connected yet")
        return self._welcome

    def retire(self, link: Link) -> None:
        """Ask for nothing more on `link`; it is closed when its last answer is over."""
        if self._link is link:
            self._link = None
        self._retired.add(link)
        self.settle(link)

    def settle(self, link: Link) -> None:
        """To be called when an answer on `link` is over."""
        if link in self._retired and (link.session.live == 0 or link.session.ended is not None):
            self._retired.discard(link)
            link.close()

    async def ask(
        self,
        make: Callable[[int], m.ClientMessage],
        kind: type[T],
        timeout: float | None = None,
        *,
        cancel: bool = False,
    ) -> T:
        """Send what `make` builds for an id, and return its one answer of type `kind`.

        `timeout`: seconds for the answer, by default `answer_timeout`. `cancel`: leaving early
        cancels on the daemon too. Raises RequestError, Unavailable, ProtocolError.
        """
        limit_s = self.options.answer_timeout if timeout is None else timeout
        link = await self.link()
        call_id = link.session.begin()
        owed = started = False
        try:
            deadline_ns = deadline_in(limit_s)
            data = link.session.encode(make(call_id))
            owed = cancel
            await link.send(data, deadline_ns)
            while True:
                answer = await link.receive(call_id, deadline_ns)
                if isinstance(answer, m.Failed):
                    owed = False
                    raise error_of(answer, started=started)
                if isinstance(answer, kind):
                    owed = False
                    return answer
                started = started or isinstance(answer, m.Started)
        except TimeoutError:
            raise Unavailable(f"the daemon did not answer within {limit_s} s") from None
        finally:
            link.session.finish(call_id)
            if owed:
                cancel_now(link, call_id)
            self.settle(link)

    def links(self) -> list[Link]:
        """Every connection that is open."""
        return [*self._retired, *([self._link] if self._link is not None else [])]

    def close(self) -> None:
        """Close every connection: whatever runs on them is cancelled. Safe to call twice."""
        self._closed = True
        for link in self.links():
            link.close()
        self._retired.clear()
        self._link = None


def _hello(options: Options) -> m.Hello:
    """How this client introduces itself. Raises InvalidRequest.

    Checked as the daemon would: it takes a hello that is wrong for a broken client, and hangs up.
    """
    fields: dict[str, object] = {"features": sorted(KNOWN), "app": options.app}
    fields |= {"model": options.model, "class": options.class_, "on_behalf": options.on_behalf}
    hello = convert(fields, m.Hello)
    if (problem := validate(hello)) is not None:
        path, sentence = problem
        raise invalid(f"{path} {sentence}", path)
    return hello


def deadline_in(seconds: float) -> int:
    """The moment in that many seconds, on the clock of `monotonic_ns`."""
    return monotonic_ns() + round(seconds * NS_PER_S)


def cancel_now(link: Link, call_id: int) -> None:
    """Tell the daemon that nobody waits for `call_id`, if it can still be told."""
    if link.session.ended is None:
        link.send_now(link.session.encode(m.Cancel(id=call_id)))
