"""One connection without I/O."""

from typing import Any

import pytest

from onegate.client.errors import InvalidRequest, ProtocolError, Rejected, Unavailable
from onegate.client.session import HANDSHAKE, Session
from onegate.protocol import messages as m
from onegate.protocol.connection import ServerConnection
from onegate.protocol.content import U32_MAX
from onegate.protocol.errors import Reason


class Pair:
    """A session past its handshake, and the daemon's end."""

    def __init__(self, wire: Any) -> None:
        self.session = Session()
        self.daemon = ServerConnection()
        self.daemon.receive(self.session.encode(m.Hello(features=["v1"])))
        self.feed(wire.welcome())
        self.session.finish(HANDSHAKE)

    def feed(self, *messages: m.DaemonMessage) -> list[int]:
        return self.session.feed(b"".join(self.daemon.send(message) for message in messages))

    def ask(self) -> int:
        call_id = self.session.begin()
        self.daemon.receive(self.session.encode(m.Generate(id=call_id, prompt="hi")))
        return call_id


@pytest.fixture
def pair(wire: Any) -> Pair:
    return Pair(wire)


def test_answers_go_to_whoever_waits_for_them(pair: Pair, wire: Any) -> None:
    first, second = pair.ask(), pair.ask()
    assert first != second
    changed = pair.feed(wire.answer(second, "b")[0], wire.answer(first, "a")[0])
    assert changed == [second, first]
    message = pair.session.take(first)
    assert isinstance(message, m.Started)
    assert message.id == first
    assert pair.session.take(first) is None
    assert pair.session.take(second) is not None


def test_what_nobody_waits_for_is_discarded(pair: Pair, wire: Any) -> None:
    call_id = pair.ask()
    pair.session.finish(call_id)
    assert pair.feed(*wire.answer(call_id, "a")) == []
    assert pair.session.take(call_id) is None
    assert pair.session.ended is None


def test_an_id_is_not_used_again_while_the_daemon_may_speak_of_it(pair: Pair) -> None:
    call_id = pair.ask()
    pair.session.finish(call_id)
    pair.session._next_id = call_id
    assert pair.session.begin() == call_id + 1


def test_an_id_is_not_used_twice_at_once(pair: Pair) -> None:
    call_id = pair.session.begin()
    pair.session._next_id = call_id
    assert pair.session.begin() == call_id + 1


def test_ids_wrap_around_within_what_the_wire_can_say(pair: Pair) -> None:
    pair.session._next_id = U32_MAX
    assert [pair.session.begin(), pair.session.begin()] == [U32_MAX, 1]


def test_live_counts_what_is_waited_for(pair: Pair) -> None:
    assert pair.session.live == 0
    call_id = pair.ask()
    assert pair.session.live == 1
    pair.session.finish(call_id)
    assert pair.session.live == 0


def test_the_daemons_bound_is_respected_before_anything_is_sent(pair: Pair) -> None:
    pair.session.max_frame_bytes = 100
    with pytest.raises(InvalidRequest) as caught:
        pair.session.encode(m.Generate(id=9, prompt="x" * 100))
    assert caught.value.reason is Reason.TOO_LARGE
    assert caught.value.limit == 100
    assert caught.value.used is not None
    assert caught.value.used > 100


def test_the_bound_is_that_of_the_welcome(pair: Pair, wire: Any) -> None:
    assert pair.session.max_frame_bytes == wire.welcome().limits.max_frame_bytes


def test_what_cannot_be_encoded_is_the_callers_mistake(pair: Pair) -> None:
    with pytest.raises(InvalidRequest):
        pair.session.encode(m.Generate(id=9, prompt="\ud800"))


def test_an_end_of_file_wakes_everybody(pair: Pair) -> None:
    waiting = [pair.ask(), pair.ask()]
    assert pair.session.feed(b"") == waiting
    assert isinstance(pair.session.ended, Unavailable)


def test_garbage_ends_the_connection_and_wakes_everybody(pair: Pair) -> None:
    waiting = [pair.ask()]
    assert pair.session.feed(b"\x00\x00\x00\x01\xc1") == waiting
    assert isinstance(pair.session.ended, ProtocolError)


def test_a_failure_of_the_connection_reaches_every_request(pair: Pair, wire: Any) -> None:
    waiting = [pair.ask(), pair.ask()]
    assert pair.feed(wire.failed(Reason.SHUTTING_DOWN)) == waiting
    for call_id in waiting:
        message = pair.session.take(call_id)
        assert isinstance(message, m.Failed)
        assert message.reason is Reason.SHUTTING_DOWN
    assert isinstance(pair.session.ended, Rejected)


def test_the_first_end_is_the_one_that_is_told(pair: Pair, wire: Any) -> None:
    pair.feed(wire.failed(Reason.PROTOCOL))
    pair.session.feed(b"")
    pair.session.end(Unavailable("closed"))
    assert isinstance(pair.session.ended, ProtocolError)


def test_every_waiter_gets_an_exception_of_its_own(pair: Pair) -> None:
    pair.session.end(Unavailable("closed"))
    assert pair.session.ended is not pair.session.ended
    assert str(pair.session.ended) == "closed"


def test_what_came_before_the_end_is_still_delivered(pair: Pair, wire: Any) -> None:
    call_id = pair.ask()
    pair.feed(*wire.answer(call_id, "a"))
    pair.session.feed(b"")
    kinds = []
    while (message := pair.session.take(call_id)) is not None:
        kinds.append(type(message))
    assert kinds == [m.Started, m.Chunk, m.Done]


def test_text_that_is_not_utf8_is_named_by_its_field() -> None:
    session = Session()
    session.encode(m.Hello(features=[]))
    with pytest.raises(InvalidRequest, match="not UTF-8") as caught:
        session.encode(m.Generate(id=session.begin(), prompt="hi", class_="\udcff"))
    assert caught.value.path == "class"
