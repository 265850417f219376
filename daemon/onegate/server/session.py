"""One connection: bytes to messages, messages to requests, and everything ended when it ends.

The session never stops reading for a client that does not: a paused reader could not see its peer
vanish. What a client has not read yet waits in the transport's buffer up to a bound; past it the
client's own requests end, with their last words behind what it has not read, and past twice the
bound the connection does. Nobody else is delayed. Reading stops only for the few turns in which
what its principal has sent, here and on its other connections, is worked off.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from onegate import clock
from onegate.protocol import messages as m
from onegate.protocol.connection import (
    Event,
    HelloReceived,
    InvalidRequest,
    Offence,
    RequestReceived,
    ServerConnection,
)
from onegate.protocol.content import Usage
from onegate.protocol.errors import FrameTooLarge, Phase, Reason
from onegate.server.behalf import NoDelegate, attested_uid, classify_for
from onegate.server.checks import find_pool, refuse
from onegate.server.classify import ClassNotAllowed, Decision, UnknownClass, classify
from onegate.server.greeting import welcome
from onegate.server.live import QUEUED_VERBS, LiveRequest, Mute
from onegate.server.outcome import (
    CANCELLED,
    DISCONNECTED,
    DRAINED,
    SLOW_READER,
    Ending,
    Outcome,
    RequestEnded,
)
from onegate.server.peercred import Peer
from onegate.server.request import carry_out, failed_message, too_long
from onegate.server.services import Services

# How long what was said last may take to leave before the connection is cut.
LINGER_S = 2.0
# What a request that is begun costs in its own task, to be refused or to be queued.
REQUEST_NS = 200_000
# Messages of one pass of the loop leave together, up to this: each write is a system call, and
# sixty-four streams on one connection say something in the same moment.
WRITE_BYTES = 16 * 1024
# What is taken apart at once: some dozen small messages at most.
PIECE_BYTES = 1024

BUG = Ending(Outcome.FAILED, Reason.ENGINE_FAILED, "internal error; see the journal")

Dispatch = Callable[["Session", Any], None]


class Session(asyncio.Protocol):
    """One connection. `enter` identifies its peer or raises `RequestEnded`; `dispatch` carries out
    its requests; `leave` is called once, when it is over. `speak` is told when it turns out to be
    for somebody else than its peer, and may raise `RequestEnded`."""

    peer: Peer
    decision: Decision

    def __init__(
        self,
        services: Services,
        dispatch: Dispatch,
        enter: Callable[["Session", socket.socket], tuple[Peer, Decision]],
        leave: Callable[["Session"], None],
        speak: Callable[["Session"], None],
    ) -> None:
        self.services = services
        self.model: str | None = None
        self.live: dict[int, LiveRequest] = {}
        self.leases: dict[int, asyncio.Future[Usage | None]] = {}
        self._app = ""
        self._asked_class: str | None = None
        self._behalf: m.OnBehalf | None = None
        self._rules = services.rules
        self._dispatch = dispatch
        self._enter = enter
        self._leave = leave
        self._speak = speak
        gate = services.config.gate
        self._connection = ServerConnection(gate.max_frame_bytes)
        self._max_unread_bytes = gate.write_buffer_max_bytes
        self._charged_bytes = 0
        self._backlog = bytearray()
        self._events: deque[Event] = deque()
        self._reading_paused = False
        self._outgoing = bytearray()
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._timed_frame = -1
        self._frame_left_ns = self._frame_ends_ns = 0
        self._greeted = False
        self._closing = False
        self._ending_slow = False

    # --- who ------------------------------------------------------------------------------------

    @property
    def principal(self) -> str:
        """Whom this connection's requests are counted for."""
        return self.decision.principal

    @property
    def uid(self) -> int:
        """The peer's uid, as the kernel says; of an end client what his delegate attests."""
        attested = None if self._behalf is None else attested_uid(self._behalf)
        return self.peer.uid if attested is None else attested

    def class_for(self, asked: str | None) -> str:
        """The class of a request that asks for `asked`; raises `RequestEnded`."""
        if asked is None:
            return self.decision.class_
        return self._classified(asked).class_

    def _classified(self, asked: str | None) -> Decision:
        decided = self._decide(asked)
        match decided:
            case Decision():
                return decided
            case NoDelegate():
                raise refuse(Reason.PERMISSION, decided.message, path="on_behalf")
            case UnknownClass():
                raise refuse(Reason.INVALID, decided.message, path="class")
        raise refuse(Reason.CLASS_NOT_ALLOWED, decided.message, path="class")

    def _decide(self, asked: str | None) -> Decision | ClassNotAllowed | UnknownClass | NoDelegate:
        rules = self.services.rules
        if self._behalf is None:
            return classify(self.peer, rules, asked, self._app)
        return classify_for(self.peer, self._behalf, rules, asked, self._app)

    def _follow_rules(self) -> None:
        """Decide anew once a reload has changed the rules: what was granted may be no more."""
        rules = self.services.rules
        if self._rules is rules:
            return
        self._rules = rules
        decided = self._decide(self._asked_class)
        if isinstance(decided, UnknownClass | ClassNotAllowed):
            decided = self._decide(None)
        if not isinstance(decided, Decision):
            # A delegate no more, or the ceiling that it named has gone with its class.
            raise refuse(Reason.PERMISSION, decided.message)
        self.decision = decided

    # --- bytes in -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        gate = self.services.config.gate
        # Only the size matters: nothing here ever waits for the buffer to empty.
        self._transport.set_write_buffer_limits(high=gate.write_high_water_bytes)
        try:
            self.peer, self.decision = self._enter(self, transport.get_extra_info("socket"))
        except RequestEnded as error:
            self._refuse_all(error.ending)
        else:
            self._arm(gate.hello_timeout_s, "no hello came in time")

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._backlog += data
        if not self._reading_paused:
            self.services.turns.come(self)

    def work(self) -> bool:
        """Carry out what has come while it is this principal's turn; true when something is left.

        That waits for another turn, so that no burst delays anybody else. Meanwhile nothing more
        is read. It waits as the bytes that came: small messages are ten times as large once they
        are taken apart.

        Where answers pile up a turn is one message: it takes turns to send what can be sent, and
        to tell the requests that end for it.
        """
        try:
            while not self._closing and self._next_events():
                self._take(self._events.popleft())
                if self.services.turns.over or self.overflowing:
                    break
            if not self._closing:  # what is left then is refunded with the connection
                self._charge_partial()
        except RequestEnded as error:
            self._refuse_all(error.ending)
        except FrameTooLarge as error:
            self._refuse_all(too_long(error))  # not even the welcome fits into a frame
        except BaseException:
            self._cut(BUG)
            raise
        return self._something_left()

    def hold(self) -> bool:
        """Keep what has come for this principal's next turn; false when the connection is over."""
        try:
            self._charge_partial()
        except RequestEnded as error:
            self._refuse_all(error.ending)
        return self._something_left()

    def _something_left(self) -> bool:
        """Read on unless there is."""
        if self._closing or self._transport is None:
            self._events.clear()
            self._backlog.clear()
            return False
        if self._events or self._backlog:
            self._pause_reading(self._transport)
        else:
            self._resume_reading(self._transport)
        self._time_frame()
        return self._reading_paused

    def _next_events(self) -> bool:
        """Take the next piece of what has come apart, if need be; false when nothing is left."""
        while self._backlog and not self._events:
            piece = self._backlog[:PIECE_BYTES]
            del self._backlog[:PIECE_BYTES]
            self._events.extend(self._connection.receive(piece))
        return bool(self._events)

    def _pause_reading(self, transport: asyncio.Transport) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            transport.pause_reading()

    def _resume_reading(self, transport: asyncio.Transport) -> None:
        if self._reading_paused:
            self._reading_paused = False
            transport.resume_reading()

    def eof_received(self) -> bool:
        # A client that will say no more is gone. Closing alone would wait until it has read what
        # is buffered, which it may never do.
        self.close(DISCONNECTED)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._disarm()
        self._refund_partial()
        self.services.unread.forget(self)
        self.services.turns.forget(self)
        for live in tuple(self.live.values()):
            live.end(DISCONNECTED)
        self._leave(self)

    def _take(self, event: Event) -> None:
        match event:
            case HelloReceived(message):
                self._greet(message)
            case RequestReceived(message):
                self._follow_rules()
                self._dispatch(self, message)
            case InvalidRequest(id=id, reason=reason, path=path, message=text):
                if event.ends_live:
                    self._supersede(id)
                self.refuse(id, Ending(Outcome.REJECTED, reason, text, path=path))
            case Offence(message=text):
                self._offended(text)

    def _greet(self, hello: m.Hello) -> None:
        self._app, self._asked_class = hello.app, hello.class_
        self._behalf = hello.on_behalf
        decision = self._classified(hello.class_)
        # What came before this was charged to whoever connected.
        self._refund_partial()
        self.decision = decision
        if hello.on_behalf is not None:
            self._speak(self)
        pools = self.services.pools()
        if hello.model is not None:
            self.model = find_pool(pools, hello.model).model
        self._greeted = True
        self._disarm()
        features = sorted(self._connection.features)
        self.send(welcome(self.peer, self.decision, self.services.config, pools.values(), features))

    # --- bounds on what is unfinished -----------------------------------------------------------

    def _charge_partial(self) -> None:
        held_bytes = self._connection.buffered_bytes + len(self._backlog)
        grown = held_bytes - self._charged_bytes
        if grown > 0:
            full = self.services.inbound.charge(self.principal, grown)
            if full is not None:
                raise RequestEnded(full)
        elif grown < 0:
            self.services.inbound.refund(self.principal, -grown)
        self._charged_bytes = held_bytes

    def _refund_partial(self) -> None:
        if self._charged_bytes:
            self.services.inbound.refund(self.principal, self._charged_bytes)
            self._charged_bytes = 0

    def _time_frame(self) -> None:
        """A frame is timed from its first byte, however it drips in after that; not while it is us
        who does not read on."""
        if not self._greeted:
            return  # the hello's own time runs already
        gate, now_ns = self.services.config.gate, clock.monotonic_ns()
        frame = self._connection.frames if self._connection.incomplete else -1
        if frame != self._timed_frame:
            self._disarm()
            self._timed_frame = frame
            self._frame_left_ns = round(gate.frame_timeout_s * 1e9)
        if self._deadline is None:
            if frame != -1 and not self._reading_paused:
                self._frame_ends_ns = now_ns + self._frame_left_ns
                self._arm(self._frame_left_ns / 1e9, "a frame was not completed in time")
        elif self._reading_paused:
            # The same frame goes on with what is left: others' turns are no way to stretch it.
            self._frame_left_ns = max(0, self._frame_ends_ns - now_ns)
            self._disarm()

    def _arm(self, timeout_s: float, offence: str) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(timeout_s, self._offended, offence)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _offended(self, offence: str) -> None:
        self.services.accounts.protocol_offences += 1
        self._refuse_all(Ending(Outcome.REJECTED, Reason.PROTOCOL, offence))

    # --- requests -------------------------------------------------------------------------------

    def open(self, id: int, verb: str, asked_class: str | None) -> LiveRequest:
        """A live request of this connection; raises `RequestEnded` before anything exists."""
        class_ = self.class_for(asked_class)
        if self.overflowing:
            raise RequestEnded(replace(SLOW_READER, outcome=Outcome.REJECTED))
        services, flow, queued = self.services, self.decision.flow, verb in QUEUED_VERBS
        gate = services.config.gate
        most = gate.in_flight_per_session
        if len(self.live) >= most:
            raise refuse(
                Reason.PEER_QUOTA,
                f"this connection has {len(self.live)} requests of at most {most}: "
                "wait until one has ended",
                limit=most,
                used=len(self.live),
            )
        full = services.live.full(self.principal, gate.max_queued_requests + gate.max_in_flight)
        if full is None and queued:
            treatment = services.treatment(self.principal, flow, class_)
            full = services.rationed(self.principal, treatment.class_)
        if full is not None:
            raise RequestEnded(full)
        live = services.live.open(client=self, id=id, verb=verb, arrived_ns=clock.monotonic_ns())
        live.class_ = class_
        if queued:
            services.begin(live, flow, class_)
        return live

    def start(self, live: LiveRequest, body: Callable[[], Awaitable[None]]) -> None:
        """Carry out a request in a task of its own."""
        self.live[live.id] = live

        async def run() -> None:
            try:
                await carry_out(live, body, self.services.account)
            finally:
                if self.live.get(live.id) is live:
                    del self.live[live.id]

        self.services.tasks.spawn(run(), name=f"request {live.rid}")
        self.services.turns.charge(self.principal, REQUEST_NS)

    def _supersede(self, id: int) -> None:
        """Stop the request that a second one of the same id has made unanswerable: the refusal of
        the second is the last word for both."""
        live = self.live.pop(id, None)
        if live is None:
            return  # refused, or answered at once, since these bytes were read
        live.client = Mute(principal=self.principal, uid=self.uid)
        live.end(CANCELLED)

    def refuse(self, id: int, ending: Ending) -> None:
        """Refuse a request that never came to live."""
        self.send(failed_message(ending, Phase.ARRIVAL, id=id))

    # --- bytes out ------------------------------------------------------------------------------

    def send(self, message: m.DaemonMessage) -> None:
        """Queue a message for the client; nothing happens once the connection is closing."""
        if self._closing or self._transport is None:
            return
        if not self._outgoing:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outgoing += self._connection.send(message)
        if len(self._outgoing) >= WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was sent in this pass of the loop."""
        if self._closing or not self._outgoing:
            return
        self._write()
        self.services.unread.grew(self)
        if not self.overflowing:
            return
        if self.unread_bytes > 2 * self._max_unread_bytes:
            # Its requests were ended, and it still asks for more without reading.
            self._refuse_all(SLOW_READER)
        elif not self._ending_slow:
            self._ending_slow = True
            # Not now: a request may be what sends, and in a turn some of it may have left.
            asyncio.get_running_loop().call_soon(self._end_slow)

    def _write(self) -> None:
        data, self._outgoing = self._outgoing, bytearray()  # the transport keeps what it is given
        if data and self._transport is not None:
            self._transport.write(data)

    def _end_slow(self) -> None:
        self._ending_slow = False
        if self.overflowing:
            for live in tuple(self.live.values()):
                live.end(SLOW_READER)

    @property
    def overflowing(self) -> bool:
        """Has the client left more unread than it may?"""
        return self.unread_bytes > self._max_unread_bytes

    @property
    def unread_bytes(self) -> int:
        """What waits for the client to read it."""
        if self._transport is None:
            return 0
        return len(self._outgoing) + self._transport.get_write_buffer_size()

    def give_up(self) -> None:
        """Others would suffer for what this client leaves unread: it goes, without another word."""
        self._cut(SLOW_READER)

    def _refuse_all(self, ending: Ending) -> None:
        """The connection ends here, and this is why: said once, then closed."""
        if self._closing:
            return
        phase = Phase.ARRIVAL if self._greeted else Phase.HANDSHAKE
        self._outgoing += self._connection.send(failed_message(ending, phase))
        # What ran did not get as far as being refused: it is stopped.
        self.close(replace(ending, outcome=Outcome.ABORTED))

    def close(self, ending: Ending) -> None:
        """End every request and the connection; what was sent still leaves, for a short while."""
        for live in tuple(self.live.values()):
            live.end(ending)
        if self._closing or self._transport is None:
            return
        self._closing = True
        self._disarm()
        self._write()
        self._transport.close()
        # close() waits for a client that reads; one that does not is cut.
        self._deadline = asyncio.get_running_loop().call_later(LINGER_S, self._transport.abort)

    def hang_up(self) -> None:
        """The daemon is going: close without another word, for every request has had its own."""
        self.close(DRAINED)

    def _cut(self, ending: Ending) -> None:
        self._closing = True
        for live in tuple(self.live.values()):
            live.end(ending)
        if self._transport is not None:
            self._transport.abort()
