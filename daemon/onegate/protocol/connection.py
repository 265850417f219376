"""Both ends of a connection, without I/O: bytes in, events out; messages in, bytes out.

    for event in connection.receive(data): ...
    write(connection.send(message))

The daemon's end is strict and the client's lenient, because the daemon must survive anybody and a
client must survive a newer daemon. The peer breaks the protocol: the daemon's end reads an
`Offence`, the client's raises RemoteProtocolError. LocalProtocolError: this side did, a bug.
"""

from dataclasses import dataclass
from typing import Any, Final, get_args

import msgspec
from msgspec import msgpack

from onegate.protocol import exchange
from onegate.protocol.decode import Invalid, decode_request
from onegate.protocol.errors import FrameTooLarge, LocalProtocolError, Reason, RemoteProtocolError
from onegate.protocol.exchange import State
from onegate.protocol.features import BUILT, lacking, negotiate
from onegate.protocol.framing import DEFAULT_MAX_FRAME_BYTES, frame
from onegate.protocol.locate import UNREADABLE
from onegate.protocol.messages import (
    ClientMessage,
    DaemonMessage,
    Failed,
    Hello,
    Lease,
    Settle,
    Welcome,
)
from onegate.protocol.stage import STAGES, Connection, Stage


@dataclass(frozen=True, slots=True)
class HelloReceived:
    """The peer introduced itself: answer with `Welcome`, or with a `Failed` without id."""

    message: Hello


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request in order as far as the protocol can tell."""

    message: ClientMessage


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """A request that cannot be carried out: answer with `Failed(id, reason, message, path)`.

    `ends_live`: the id is that of a live request, and the `Failed` is the end of that one too.
    Stop it without a further word. Its client could not tell the two answers apart.
    """

    id: int
    reason: Reason
    path: str | None
    message: str
    ends_live: bool = False


@dataclass(frozen=True, slots=True)
class Offence:
    """The peer broke the protocol, and nothing that it says is heard any more.

    Answer what came before it as far as that can be done at once, then send one `Failed(protocol)`
    without id and close. `message` names the offence.
    """

    message: str


Event = HelloReceived | RequestReceived | InvalidRequest | Offence

Bytes = bytes | bytearray | memoryview

_DECODER: Final = msgpack.Decoder(DaemonMessage)
_KNOWN_TAGS: Final = frozenset(kind.__struct_config__.tag for kind in get_args(DaemonMessage))


class _Tag(msgspec.Struct):
    """Of a message that cannot be decoded, only what it is."""

    t: str


_TAG_DECODER: Final = msgpack.Decoder(_Tag)


class ServerConnection(Connection):
    """The daemon's end.

    `features`: after the hello, what both sides can do, to be said in `Welcome`.
    """

    def __init__(
        self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES, *, built: frozenset[str] = BUILT
    ) -> None:
        super().__init__(max_frame_bytes)
        self._built = built
        self._deaf = False
        self.features: frozenset[str] = frozenset()

    def receive(self, data: Bytes) -> list[Event]:
        """Take the next bytes and return what they complete, in order.

        An `Offence` is the last event there is: after it, and after a `Failed` without id, bytes
        are ignored.
        """
        events: list[Event] = []
        if self._deaf or self._stage is Stage.OVER:
            return events
        try:
            for payload in self._reader.feed(data):
                events.append(self._event(payload))
        except RemoteProtocolError as error:
            self._deaf = True
            self._forget_frame()
            events.append(Offence(str(error)))
        return events

    def _event(self, payload: bytes) -> Event:
        decoded = decode_request(payload)
        kind = decoded.kind if isinstance(decoded, Invalid) else type(decoded)
        if isinstance(decoded, Hello) != (self._stage is Stage.NEW):
            what = "a second hello" if isinstance(decoded, Hello) else f"{_tag(kind)} before hello"
            raise RemoteProtocolError(f"{what}: a connection begins with hello, and has one")
        if isinstance(decoded, Hello):
            self.features = negotiate(decoded.features, self._built)
            self._stage = STAGES[self._stage, Hello]
            return HelloReceived(decoded)
        feature = lacking(kind, self.features)
        if kind is Settle and (feature is not None or not self._leased(decoded.id)):
            # There is nothing to settle, whatever else is wrong: a `Failed` could end a request
            # that is none of its business, and a client that waits for its `Ack` would ignore it.
            return RequestReceived(
                Settle(id=decoded.id) if isinstance(decoded, Invalid) else decoded
            )
        if feature is not None:
            sentence = f"{_tag(kind)} needs the feature {feature}, which is not in the welcome"
            return self._refused(decoded.id, kind, Reason.UNSUPPORTED, None, sentence)
        if isinstance(decoded, Invalid):
            return self._refused(
                decoded.id, kind, Reason.INVALID, decoded.path, f"{decoded.path} {decoded.message}"
            )
        if kind in exchange.EXCHANGES:
            if decoded.id in self._live:
                sentence = f"id {decoded.id} is in use: the request that had it ends here too"
                return self._refused(decoded.id, kind, Reason.INVALID, "id", sentence)
            self._live[decoded.id] = (kind, State.WAITING)
        return RequestReceived(decoded)

    def _refused(
        self,
        request_id: int,
        kind: type[ClientMessage],
        reason: Reason,
        path: str | None,
        text: str,
    ) -> InvalidRequest:
        ends_live = request_id in self._live
        if not ends_live:
            self._live[request_id] = (kind, State.WAITING)  # until its Failed is sent
        return InvalidRequest(request_id, reason, path, text, ends_live)

    def _leased(self, request_id: int) -> bool:
        kind, _ = self._live.get(request_id, (None, None))
        return kind is Lease

    def send(self, message: DaemonMessage) -> bytes:
        """The frame to write; follows the exchange that the message belongs to.

        Raises FrameTooLarge (then nothing has happened: send a `Failed` instead), and
        LocalProtocolError for a message that has no place: an id that is not live, an answer that
        such a request does not get, anything before `Welcome` or after the end.
        """
        place = self._place(message)
        payload = self._encode(message)
        if len(payload) > self._max_frame_bytes:
            raise FrameTooLarge(
                f"{_tag(type(message))} is {len(payload)} bytes, a frame holds "
                f"{self._max_frame_bytes}"
            )
        if isinstance(place, Stage):
            self._stage = place
        elif place is not None and not isinstance(message, Welcome) and message.id is not None:
            self._move(message.id, place)
        return frame(payload)

    def _place(self, message: DaemonMessage) -> Stage | State | None:
        """The stage or the state that `message` leads to; None where it moves nothing."""
        tag = _tag(type(message))
        if isinstance(message, Welcome) or message.id is None:
            stage = STAGES.get((self._stage, type(message)))
            if stage is None:
                raise LocalProtocolError(f"{tag} on a connection that is {self._stage.name}")
            return stage
        if self._stage is not Stage.OPEN:
            raise LocalProtocolError(f"{tag} on a connection that is {self._stage.name}")
        if exchange.stands_beside(message):
            return None
        if message.id not in self._live:
            if isinstance(message, Failed) and message.reason in _OF_INVALID:
                return None
            raise LocalProtocolError(f"{tag} for id {message.id}, which is not live")
        kind, state = self._live[message.id]
        following = exchange.after(kind, state, message)
        if following is None:
            raise LocalProtocolError(f"{tag} for a {_tag(kind)} that is {state.name}")
        return following

    def _move(self, request_id: int, state: State) -> None:
        if state is State.OVER:
            del self._live[request_id]
        else:
            self._live[request_id] = (self._live[request_id][0], state)


# Each InvalidRequest is answered, also when an answer for the same id has just gone out: a client
# that uses an id twice at once may get two.
_OF_INVALID: Final = (Reason.INVALID, Reason.UNSUPPORTED)


class ClientConnection(Connection):
    """A client's end. `max_frame_bytes` bounds what it takes, not what it sends.

    `welcome` is the daemon's, once it came.
    """

    def __init__(self, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> None:
        super().__init__(max_frame_bytes)
        self.welcome: Welcome | None = None

    def send(self, message: ClientMessage) -> bytes:
        """The frame to write.

        Raises LocalProtocolError for what cannot be encoded, anything before `Hello`, a second
        one, an id in use, and after the end. Requests may follow the `Hello` at once.
        """
        tag, following = _tag(type(message)), None
        if isinstance(message, Hello):
            following = STAGES.get((self._stage, Hello))
        elif self._stage in (Stage.GREETED, Stage.OPEN):
            following = self._stage
        if following is None:
            raise LocalProtocolError(f"{tag} on a connection that is {self._stage.name}")
        opens = type(message) in exchange.EXCHANGES
        if opens and not isinstance(message, Hello) and message.id in self._live:
            raise LocalProtocolError(f"id {message.id} is in use")
        payload = frame(self._encode(message))
        self._stage = following
        if opens and not isinstance(message, Hello):
            self._live[message.id] = (type(message), State.WAITING)
        return payload

    def receive(self, data: Bytes) -> list[DaemonMessage]:
        """Take the next bytes and return the messages they complete, in order.

        Ignored: unknown tags and fields, messages for ids that are not live (an end that crossed
        with a cancellation), and answers that such a request does not get. Raises
        RemoteProtocolError for broken framing, a message that cannot be read, and one before
        `Welcome`.
        """
        if self._stage in (Stage.BROKEN, Stage.OVER):
            return []
        try:
            decoded = [self._message(payload) for payload in self._reader.feed(data)]
        except RemoteProtocolError:
            self._stage = Stage.BROKEN
            self._forget_frame()
            raise
        return [message for message in decoded if message is not None]

    def _message(self, payload: bytes) -> DaemonMessage | None:
        if self._stage is Stage.OVER:
            return None
        message = _decode_answer(payload)
        if message is None:
            return None
        if isinstance(message, Welcome) or message.id is None:
            stage = STAGES.get((self._stage, type(message)))
            if stage is None:
                raise RemoteProtocolError(f"{_tag(type(message))} out of place")
            self._stage = stage
            if isinstance(message, Welcome):
                self.welcome = message
            return message
        if self._stage is not Stage.OPEN:
            raise RemoteProtocolError(f"{_tag(type(message))} before welcome")
        return message if exchange.stands_beside(message) or self._follow(message) else None

    def _follow(self, message: Any) -> bool:
        """Whether the message belongs to an open exchange; closes it where that is its end."""
        kind, _ = self._live.get(message.id, (None, None))
        if kind is None or not exchange.belongs(kind, message):
            return False
        if exchange.ends(kind, message):
            del self._live[message.id]
        return True


def _decode_answer(payload: bytes) -> DaemonMessage | None:
    """The message, or None for one of a kind that this version does not know."""
    try:
        try:
            return _DECODER.decode(payload)
        except UNREADABLE as error:
            tag = _TAG_DECODER.decode(payload).t
            if tag not in _KNOWN_TAGS:
                return None
            raise RemoteProtocolError(f"{tag} cannot be read: {error}") from None
    except RecursionError:
        raise RemoteProtocolError("a message is nested too deeply") from None
    except UNREADABLE:
        raise RemoteProtocolError("a message is no msgpack map with a tag") from None


def _tag(kind: type[ClientMessage] | type[DaemonMessage]) -> str:
    return str(kind.__struct_config__.tag)
