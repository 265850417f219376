"""One connection: what it may do, how long it may take, and what ends with it."""

import asyncio
import itertools
import time
from typing import Any

import msgspec
import pytest

from onegate import config as configuration
from onegate.protocol import messages as m
from onegate.protocol.connection import ClientConnection
from onegate.protocol.errors import Phase, Reason
from onegate.server import session as session_module
from onegate.server import turns as turns_module
from onegate.server.classify import compile_rules
from onegate.server.outcome import CANCELLED, DRAINED, Outcome

Box = Any  # of conftest.py
MIB = 2**20


async def until(condition: Any, factor: float) -> None:
    async with asyncio.timeout(10 * factor):
        while not condition():
            await turn()


async def turn() -> None:
    await asyncio.sleep(0)


# --- hello ----------------------------------------------------------------------------------------


async def test_a_welcome_says_who_and_what(box: Box) -> None:
    client = box.connect(tty=True, unit="user@1000.service", user_unit="app-term.scope")
    welcome = client.hello(app="term")
    peer = welcome.peer
    assert (peer.uid, peer.gid, peer.pid, peer.tty) == (1000, 1000, 9, True)
    assert (peer.unit, peer.user_unit) == ("user@1000.service", "app-term.scope")
    assert peer.slice == "user-1000.slice"
    assert (welcome.class_, welcome.ceiling) == ("interactive", "interactive")
    assert welcome.why
    assert [(model.model, model.state) for model in welcome.models] == [("tiny", "ready")]
    assert welcome.models[0].max_context_tok == 4096
    assert set(welcome.limits.classes) == {"interactive", "loop", "batch"}
    assert welcome.limits.classes["loop"].ttft_timeout_ms == 60_000
    assert welcome.limits.frame_timeout_ms == 10_000
    assert "v1" in welcome.features
    assert client.session.uid == 1000


async def test_a_class_above_the_ceiling_is_not_shown(box: Box) -> None:
    client = box.connect(slice="system.slice", unit="cron.service")
    welcome = client.hello()
    assert welcome.ceiling == "batch"
    assert set(welcome.limits.classes) == {"batch"}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"class_": "interactive"}, Reason.CLASS_NOT_ALLOWED),
        ({"class_": "nonsense"}, Reason.INVALID),
        ({"model": "huge"}, Reason.WRONG_MODEL),
        ({"on_behalf": m.OnBehalf(source="unknown")}, Reason.PERMISSION),
    ],
)
async def test_a_hello_can_be_refused(box: Box, fields: dict[str, Any], reason: Reason) -> None:
    client = box.connect(slice="system.slice", unit="cron.service")
    client.say(m.Hello(features=["v1"], **fields), m.Generate(id=1, prompt="why?"))
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (None, reason, Phase.HANDSHAKE)
    if reason is Reason.WRONG_MODEL:
        assert failed.models == ["tiny"]
    await box.quiet()
    assert client.transport.lost
    assert len(box.services.live) == 0
    assert len(box.sessions) == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff",  # two gigabytes are coming
        b"\0\0\0\0",
        b"\0\0\0\x01\xc0",
        b"\xff" * 4096,
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_garbage_is_one_answer_and_the_end(box: Box, data: bytes) -> None:
    client = box.connect()
    client.raw(data)
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (None, Reason.PROTOCOL, Phase.HANDSHAKE)
    await box.quiet()
    assert client.transport.lost
    assert box.services.accounts.protocol_offences == 1
    client.session.data_received(data)
    assert client.heard() == []


@pytest.mark.parametrize("offence", [b"\0\0\0\0", b"\0\0\0\x01\xc0"])
async def test_what_came_before_an_offence_in_the_same_bytes_is_served(
    box: Box, offence: bytes
) -> None:
    client = box.connect()
    asked = (m.Hello(features=["v1"]), m.Whoami(id=1), m.Generate(id=2, prompt="why?"))
    client.raw(b"".join(map(client.connection.send, asked)) + offence)
    welcome, report, failed = client.heard()
    assert isinstance(welcome, m.Welcome)
    assert isinstance(report, m.WhoamiReport)
    assert (failed.id, failed.reason, failed.phase) == (None, Reason.PROTOCOL, Phase.ARRIVAL)
    await box.quiet()
    assert client.heard() == []
    assert client.transport.lost
    assert box.outcomes() == {Outcome.ABORTED: 1}
    assert box.services.accounts.protocol_offences == 1


async def test_a_hello_that_is_refused_is_the_last_word_also_for_an_offence(box: Box) -> None:
    client = box.connect()
    client.raw(client.connection.send(m.Hello(features=["v1"], class_="none")) + b"\0\0\0\0")
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (Reason.INVALID, Phase.HANDSHAKE)
    assert box.services.accounts.protocol_offences == 0


async def test_a_request_before_hello(box: Box) -> None:
    client = box.connect()
    client.say_anyway(m.Whoami(id=1))
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (None, Reason.PROTOCOL)


async def test_hello_twice_ends_what_runs(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    client.raw(_hello())
    (_, failed) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (None, Reason.PROTOCOL, Phase.ARRIVAL)
    await box.quiet()
    assert run.closed == 1
    assert box.outcomes() == {Outcome.ABORTED: 1}


def _hello() -> bytes:
    return ClientConnection().send(m.Hello(features=["v1"]))


async def test_bytes_one_at_a_time(box: Box) -> None:
    client = box.connect()
    for byte in client.connection.send(m.Hello(features=["v1"])):
        client.raw(bytes([byte]))
    assert isinstance(client.heard()[0], m.Welcome)
    assert box.services.inbound.total_bytes == 0


# --- time and memory of what is unfinished --------------------------------------------------------


async def test_a_connection_that_says_nothing_is_closed(
    make_box: Any, timeout_factor: float
) -> None:
    box = make_box("[gate]\nhello_timeout_s = 0.001\n")
    client = box.connect()
    await until(lambda: client.transport.lost, timeout_factor)
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (Reason.PROTOCOL, Phase.HANDSHAKE)
    assert "hello" in failed.message
    assert box.services.accounts.protocol_offences == 1


async def test_a_hello_that_drips_in_is_timed_from_the_start(
    make_box: Any, timeout_factor: float
) -> None:
    box = make_box("[gate]\nhello_timeout_s = 0.001\n")
    client = box.connect()
    data = _hello()
    drip = iter(data[:-1])

    def dripped() -> bool:
        byte = next(drip, None)
        if byte is not None:
            client.raw(bytes([byte]))
        return bool(client.transport.lost)

    await until(dripped, timeout_factor)


async def test_half_a_frame_is_closed(make_box: Any, timeout_factor: float) -> None:
    box = make_box("[gate]\nframe_timeout_s = 0.001\n")
    client = box.greeted()
    client.raw(b"\0\0\0\x09half")
    assert box.services.inbound.total_bytes == 8
    await until(lambda: client.transport.lost, timeout_factor)
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (None, Reason.PROTOCOL)
    assert "frame" in failed.message
    await box.quiet()
    assert box.services.inbound.total_bytes == 0


class Timers:
    """Stands in for the loop: timers are noted and never fire, and no pass ever ends."""

    def __init__(self) -> None:
        self.armed: list[float] = []
        self.left: list[float] = []

    def call_later(self, delay_s: float, *args: Any) -> "Timer":
        self.armed.append(delay_s)
        self.left.append(delay_s)
        return Timer(self, delay_s)

    def call_soon(self, *args: Any) -> None:
        pass


class Timer:
    """One of them."""

    def __init__(self, timers: Timers, delay_s: float) -> None:
        self._timers = timers
        self._delay_s = delay_s

    def cancel(self) -> None:
        self._timers.left.remove(self._delay_s)


async def test_a_frame_is_timed_from_its_first_byte(make_box: Any) -> None:
    box = make_box("[gate]\nframe_timeout_s = 7.0\nhello_timeout_s = 5.0\n")
    timers = Timers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module.asyncio, "get_running_loop", lambda: timers)
        client = box.connect()
        assert timers.armed == timers.left == [5.0]
        hello = client.connection.send(m.Hello(features=["v1"]))
        client.raw(hello + b"\0")
        assert timers.left == [7.0]
        for byte in b"\0\0\x09half":
            client.raw(bytes([byte]))
        assert timers.left == [7.0]
    assert timers.armed == [5.0, 7.0]


async def test_a_complete_frame_stops_the_clock_and_the_next_starts_it_anew(make_box: Any) -> None:
    box = make_box("[gate]\nframe_timeout_s = 7.0\n")
    client = box.greeted()
    timers = Timers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module.asyncio, "get_running_loop", lambda: timers)
        frames = client.connection.send(m.Whoami(id=1)) + client.connection.send(m.Whoami(id=2))
        client.raw(frames[:5])
        client.raw(frames[5:-5])  # the rest of one and the beginning of the next
        assert timers.armed == [7.0, 7.0]
        assert timers.left == [7.0]
        client.raw(frames[-5:])
        assert timers.left == []
    assert len(client.heard()) == 2


async def test_unfinished_frames_are_bounded_for_each_principal(make_box: Any) -> None:
    box = make_box(
        "[gate]\nmax_frame_bytes = 4096\ninbound_bytes_per_principal = 5000\ninbound_bytes = 9000\n"
    )
    part = b"\0\0\x10\0" + b"x" * 3000
    first, second, other = box.greeted(), box.greeted(), box.greeted(uid=2)
    first.raw(part)
    second.raw(part)
    (failed,) = second.heard()
    assert (failed.id, failed.reason) == (None, Reason.BYTES_FULL)
    other.raw(part)
    assert other.heard() == []
    assert box.services.inbound.total_bytes == 2 * 3004
    await box.quiet()
    first.hang_up()
    other.hang_up()
    await box.quiet()
    assert box.services.inbound.total_bytes == 0


# --- requests -------------------------------------------------------------------------------------


async def test_a_connection_has_so_many_requests(make_box: Any) -> None:
    box = make_box("[gate]\nin_flight_per_session = 2\n")
    client = box.greeted()
    client.say(*(m.Generate(id=id, prompt="why?") for id in (1, 2, 3)))
    (failed,) = [answer for answer in client.heard() if isinstance(answer, m.Failed)]
    assert (failed.id, failed.reason, failed.rid) == (3, Reason.PEER_QUOTA, None)
    assert (failed.limit, failed.used, failed.phase) == (2, 2, Phase.ARRIVAL)
    assert box.outcomes() == {Outcome.REJECTED: 1}
    client.say(m.Whoami(id=4))
    assert isinstance(client.heard()[-1], m.WhoamiReport)


async def test_an_id_in_use_ends_both(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    client.heard()
    client.say_anyway(m.Generate(id=1, prompt="and?"))
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.path) == (1, Reason.INVALID, "id")
    run.chunk("Be")
    run.finish()
    await box.quiet()
    assert client.heard() == []
    assert box.outcomes() == {Outcome.CANCELLED: 1}
    again = await box.run(client)
    again.finish()
    await box.quiet()
    assert isinstance(client.heard()[-1], m.Done)


@pytest.mark.parametrize(
    "first",
    [
        m.Whoami(id=1),
        m.Generate(id=1, prompt="why?", class_="nonsense"),
        m.Generate(id=1, prompt="why?"),
    ],
)
async def test_an_id_used_twice_in_one_piece(box: Box, first: Any) -> None:
    client = box.greeted()
    frames = client.connection.send(first)
    client.raw(frames * 3)
    answers = client.heard()
    await box.quiet()
    assert all(answer.id == 1 for answer in answers)
    assert box.crashes == []
    assert not client.transport.closing
    assert len(box.services.live) == 0
    client.say(m.Whoami(id=2))
    assert client.heard()[-1].id == 2


async def test_a_malformed_request_ends_alone(box: Box) -> None:
    client = box.greeted()
    await box.run(client, 1)
    client.heard()
    client.say(m.Generate(id=2))
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.path) == (2, Reason.INVALID, "prompt")
    assert box.gate.view().in_flight == 1


async def test_another_class_for_one_request(box: Box) -> None:
    client = box.greeted()
    await box.run(client, 1, class_="batch")
    (live,) = box.services.live
    assert live.class_ == "batch"
    client.say(m.Generate(id=2, prompt="why?", class_="nonsense"))
    assert client.heard()[-1].path == "class"


# --- rules change ---------------------------------------------------------------------------------


def reload(box: Box, text: str) -> None:
    services = box.services
    services.config = configuration.check(text)
    services.rules = compile_rules(services.config, lambda name: None)


async def test_what_a_reload_takes_away_is_gone(box: Box) -> None:
    admin = box.greeted(uid=0)
    admin.say(m.Pause(id=1, class_="batch"))
    assert isinstance(admin.heard()[-1], m.Ack)
    reload(box, "[[grant]]\nuid = 0\nadmin = false\nceiling = 'batch'\n")
    admin.say(m.Unpause(id=2, class_="batch"))
    failed = admin.heard()[-1]
    assert (failed.id, failed.reason) == (2, Reason.PERMISSION)
    admin.say(m.Whoami(id=3))
    assert admin.heard()[-1].ceiling == "batch"


async def test_a_class_that_was_asked_for_is_kept_while_it_is_allowed(box: Box) -> None:
    client = box.connect()
    client.hello(class_="interactive")
    reload(box, "")
    client.say(m.Whoami(id=1))
    assert client.heard()[-1].class_ == "interactive"
    reload(box, "[[grant]]\nuid = 1000\nceiling = 'loop'\n")
    client.say(m.Whoami(id=2))
    assert client.heard()[-1].class_ == "loop"


# --- the end --------------------------------------------------------------------------------------


async def test_end_of_file_ends_everything_though_nobody_reads(
    box: Box, monkeypatch: pytest.MonkeyPatch, timeout_factor: float
) -> None:
    monkeypatch.setattr(session_module, "LINGER_S", 0.001)
    client = box.greeted()
    run = await box.run(client)
    client.transport.reads = False
    client.transport.unread_bytes = 10
    assert client.session.eof_received() is False
    await box.quiet()
    assert run.closed == 1
    await until(lambda: client.transport.aborted, timeout_factor)
    await box.quiet()
    assert len(box.sessions) == 0


async def test_end_of_file_of_a_reader_needs_no_force(box: Box) -> None:
    client = box.greeted()
    client.session.eof_received()
    await box.quiet()
    assert client.transport.lost
    assert not client.transport.aborted
    assert len(box.sessions) == 0


async def test_nothing_is_sent_after_the_end(box: Box) -> None:
    client = box.greeted()
    client.session.close(CANCELLED)
    client.session.send(m.Ack(id=1, verb="cancel"))
    assert client.heard() == []
    client.raw(b"\0\0\0\x01\xc0")
    assert client.heard() == []


async def test_hanging_up_ends_what_runs(box: Box) -> None:
    client = box.greeted()
    await box.run(client)
    client.heard()
    client.session.hang_up()
    await box.quiet()
    assert client.heard() == []
    assert client.transport.lost
    assert [line["reason"] for line in box.ends()] == [DRAINED.reason.value]


async def test_a_reader_that_is_too_slow_overflows(make_box: Any) -> None:
    box = make_box("[gate]\nwrite_buffer_max_bytes = 2000\nwrite_high_water_bytes = 1024\n")
    client = box.greeted()
    assert client.transport.high == 1024
    client.transport.unread_bytes = 2000
    assert not client.session.overflowing
    client.transport.unread_bytes = 2001
    assert client.session.overflowing


SLOW = "[gate]\nwrite_buffer_max_bytes = 2000\nwrite_high_water_bytes = 1024\n"


async def test_past_the_bound_every_request_is_told_behind_what_is_unread(make_box: Any) -> None:
    """Also one that waits, one that shows nothing, and one whose engine says nothing."""
    box = make_box(SLOW)
    client = box.greeted()
    runs = [await box.run(client, 1), await box.run(client, 2, stream=False)]
    await box.ask(client, 3)
    assert box.gate.view().queued == 1
    client.heard()
    client.transport.reads = False
    client.say(*(m.Whoami(id=id) for id in range(10, 18)))
    await box.quiet()
    answers = client.heard()
    ended = {x.id: (x.reason, x.retryable) for x in answers if isinstance(x, m.Failed)}
    assert ended == dict.fromkeys((1, 2, 3), (Reason.SLOW_READER, True))
    assert {x.id for x in answers if isinstance(x, m.WhoamiReport)} == set(range(10, 18))
    assert not client.transport.closing
    assert [run.closed for run in runs] == [1, 1]
    box.all_is_given_back()


async def test_a_burst_does_not_end_a_request_whose_client_reads(
    make_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport sends between turns; what it could not send by then counts."""
    box = make_box(SLOW)
    client = box.greeted()
    await box.run(client)
    client.heard()
    client.transport.reads = False
    client.say(*(m.Whoami(id=id) for id in range(10, 20)))
    assert client.session.overflowing
    for _ in range(20):
        client.transport.unread_bytes = 0
        await turn()
    assert [x.id for x in client.heard()] == list(range(10, 20))
    assert box.gate.view().in_flight == 1


async def test_nothing_begins_while_so_much_is_unread(make_box: Any) -> None:
    box = make_box(SLOW)
    client = box.greeted()
    client.heard()
    client.transport.unread_bytes = 2001
    client.say(m.Generate(id=1, prompt="why?"))
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (1, Reason.SLOW_READER, Phase.ARRIVAL)
    assert box.outcomes() == {Outcome.REJECTED: 1}
    client.transport.unread_bytes = 0
    await box.run(client, 1)


async def test_whoever_asks_on_without_reading_is_ended_with_a_word_and_cut(
    make_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LINGER_S", 0.0)
    box = make_box(SLOW)
    client = box.greeted()
    run = await box.run(client)
    client.heard()
    client.transport.reads = False
    client.say(*(m.Whoami(id=id) for id in range(10, 40)))
    await box.quiet()
    answers = client.heard()
    assert [x.reason for x in answers if isinstance(x, m.Failed) and x.id == 1] == [
        Reason.SLOW_READER
    ]
    assert (answers[-1].id, answers[-1].reason) == (None, Reason.SLOW_READER)
    assert client.transport.aborted
    assert run.closed == 1
    assert [line["reason"] for line in box.ends()] == [Reason.SLOW_READER.value]
    assert box.services.accounts.protocol_offences == 0


async def test_one_answer_can_be_too_much(make_box: Any) -> None:
    box = make_box(SLOW)
    client = box.greeted()
    run = await box.run(client)
    client.heard()
    client.transport.reads = False
    client.transport.unread_bytes = 4000
    client.say(m.Whoami(id=10), m.Whoami(id=11))
    report, failed = client.heard()
    assert report.id == 10
    assert (failed.id, failed.reason) == (None, Reason.SLOW_READER)
    await box.quiet()
    assert run.closed == 1
    assert client.heard() == []


async def test_frames_in_which_nothing_fits(make_box: Any) -> None:
    box = make_box("[gate]\nmax_frame_bytes = 1024\n")
    tiny = box.engine.infos["tiny"]
    for i in range(99):
        box.engine.infos[f"model-{i}"] = msgspec.structs.replace(tiny, model=f"model-{i}")
    client = box.connect()
    client.say(m.Hello(features=["v1"]))
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (None, Reason.TOO_LARGE)
    await box.quiet()
    assert client.transport.lost


# --- bursts ---------------------------------------------------------------------------------------


async def test_a_burst_is_worked_off_turn_by_turn(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = box.greeted(), box.greeted(uid=1001)
    await turn()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    client.say(*(m.Whoami(id=id) for id in range(5)), m.Generate(id=9, prompt="why?"))
    client.raw(b"\0")
    assert [x.id for x in client.heard()] == [0]
    assert client.transport.paused
    other.say(m.Whoami(id=7))
    assert [x.id for x in other.heard()] == [7]
    await turn()
    assert [x.id for x in client.heard()] == [1]
    await box.quiet()
    assert [x.id for x in client.heard()] == [2, 3, 4, 9]
    assert not client.transport.paused
    assert box.services.inbound.total_bytes > 0
    assert len(box.engine.runs) == 1


async def test_more_may_come_while_a_burst_is_worked_off(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = box.greeted()
    await turn()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    client.say(m.Whoami(id=1), m.Whoami(id=2), m.Whoami(id=3))
    client.say(m.Whoami(id=4))
    assert [x.id for x in client.heard()] == [1]
    await box.quiet()
    assert [x.id for x in client.heard()] == [2, 3, 4]
    assert not client.transport.paused


@pytest.mark.parametrize("way", ["lost", "offence", "closed"])
async def test_a_burst_ends_with_its_connection(
    box: Box, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    client = box.greeted()
    await turn()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    client.say(m.Whoami(id=1), m.Generate(id=2, prompt="why?"), m.Generate(id=3, prompt="why?"))
    match way:
        case "lost":
            client.hang_up()
        case "offence":
            client.raw(b"\0\0\0\0")
        case "closed":
            client.session.close(CANCELLED)
    await box.quiet()
    # What came before an offence is served first, and ended by it.
    assert len(box.engine.runs) == (2 if way == "offence" else 0)
    assert all(run.closed for run in box.engine.runs)
    assert client.transport.lost
    box.all_is_given_back()


@pytest.mark.parametrize("way", ["worked off", "lost"])
async def test_what_waits_of_a_burst_is_held_as_bytes_and_charged(
    box: Box, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Small messages are many times as large once they are taken apart."""
    client = box.greeted()
    await turn()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    burst = b"".join(client.connection.send(m.Whoami(id=id)) for id in range(500))
    client.raw(burst)
    waiting_bytes = box.services.inbound.total_bytes
    assert len(burst) - session_module.PIECE_BYTES <= waiting_bytes < len(burst)
    if way == "lost":
        client.hang_up()
    await box.quiet(600)
    assert box.services.inbound.total_bytes == 0
    assert len(client.heard()) == (0 if way == "lost" else 500)


async def test_a_frame_is_not_late_while_a_burst_is_worked_off(
    make_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first byte came, then the rest with many others behind it, for which the time is ours."""
    box = make_box("[gate]\nframe_timeout_s = 0.001\n")
    client = box.greeted()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    burst = b"".join(client.connection.send(m.Whoami(id=id)) for id in range(100))
    client.raw(burst[:7])
    client.raw(burst[7:] + client.connection.send(m.Whoami(id=999))[:9])
    time.sleep(0.01)  # noqa: ASYNC251  longer than a frame may take
    while not client.transport.closing:  # the last one never comes to its end, and is timed
        await turn()
    *reports, failed = client.heard()
    assert [report.id for report in reports] == list(range(100))
    assert (failed.id, failed.reason) == (None, Reason.PROTOCOL)


async def test_many_connections_of_one_user_are_one_in_turn(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the time that another's two requests take, ten connections get as many answers."""
    crowd, other = [box.greeted() for _ in range(10)], box.greeted(uid=1001)
    await box.quiet()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    for client in crowd:
        client.say(*(m.Whoami(id=id) for id in range(5)))
    other.say(m.Whoami(id=1), m.Whoami(id=2), m.Whoami(id=3))
    assert [len(client.heard()) for client in crowd] == [1] + [0] * 9
    assert all(client.transport.paused for client in crowd)
    assert [x.id for x in other.heard()] == [1]
    await turn()
    await turn()
    assert [x.id for x in other.heard()] == [2, 3]
    assert sum(len(client.heard()) for client in crowd) == 2
    await box.quiet(60)
    assert sum(len(client.heard()) for client in crowd) == 47
    assert not any(client.transport.paused for client in crowd)
    assert box.services.inbound.total_bytes == 0


async def test_what_waits_for_a_turn_is_charged_and_bounded(
    make_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = make_box(
        "[gate]\nmax_frame_bytes = 4096\ninbound_bytes_per_principal = 5000\ninbound_bytes = 9000\n"
    )
    first, second, third = box.greeted(), box.greeted(), box.greeted()
    await turn()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    first.say(*(m.Whoami(id=id) for id in range(5)))
    begun = second.connection.send(m.Whoami(id=1))
    second.raw(begun)
    assert box.services.inbound.total_bytes == len(begun)
    third.raw(b"\0\0\x10\0" + b"x" * 4990)
    (failed,) = third.heard()
    assert (failed.id, failed.reason) == (None, Reason.BYTES_FULL)
    assert len(box.services.turns) == 2
    second.hang_up()
    await turn()
    assert len(box.services.turns) == 1
    await box.quiet()
    assert box.services.inbound.total_bytes == 0
    assert len(box.services.turns) == 0
    assert second.heard() == []


async def test_what_a_request_costs_later_is_counted_when_it_is_begun(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise as many as fit into a turn would keep the loop for many turns after it."""
    client = box.greeted()
    await turn()
    monkeypatch.setattr(session_module, "REQUEST_NS", turns_module.TURN_NS // 2)
    client.say(m.Whoami(id=0), *(m.Generate(id=id, prompt="why?") for id in range(1, 6)))
    assert [x.id for x in client.heard()] == [0]
    assert len(box.services.live) == 2
    await turn()
    assert len(box.services.live) == 4
    await turn()
    assert len(box.services.live) == 5


async def test_others_work_does_not_stretch_the_time_of_a_frame(
    make_box: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it waits for its turn its clock stands still, and goes on with what was left."""
    box = make_box("[gate]\nframe_timeout_s = 7.0\n")
    busy, client = box.greeted(), box.greeted()
    await turn()
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    timers, soon = Timers(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_module.asyncio, "get_running_loop", lambda: timers)
        patch.setattr(timers, "call_soon", soon.append)
        client.raw(b"\0\0\0\x09")
        assert timers.left == [7.0]
        box.skip(3)
        busy.say(m.Whoami(id=1), m.Whoami(id=2))
        client.raw(b"h")  # waits for its turn
        assert client.transport.paused
        assert timers.left == []
        box.skip(100)
        while client.transport.paused:
            soon.pop()()
        (left,) = timers.left
        assert 3.5 < left <= 4.0
        while soon:
            soon.pop()()
        client.raw(b"a")
        assert timers.left == [left]


async def test_what_all_leave_unread_is_bounded(make_box: Any) -> None:
    """The one that has left most of it goes, whoever is written to last."""
    box = make_box(
        "[gate]\nunread_bytes = 60000\nunread_bytes_per_principal = 60000\n"
        "write_buffer_max_bytes = 50000\nwrite_high_water_bytes = 1024\n"
    )
    greedy, modest = box.greeted(), box.greeted(uid=1001)
    run = await box.run(greedy)
    greedy.transport.reads = modest.transport.reads = False
    ids = itertools.count(10)
    while greedy.session.unread_bytes < 40_000:
        greedy.say(m.Whoami(id=next(ids)))
    while not greedy.transport.closing:
        assert modest.session.unread_bytes < 30_000
        modest.say(m.Whoami(id=next(ids)))
        modest.session.flush()
    await box.quiet()
    assert greedy.transport.aborted
    assert run.closed == 1
    assert not modest.transport.closing
    assert box.services.unread.total_bytes == modest.session.unread_bytes
    modest.hang_up()
    await box.quiet()
    assert box.services.unread.total_bytes == 0


async def test_live_requests_are_bounded_whatever_they_wait_for(make_box: Any) -> None:
    box = make_box("[gate]\nmax_queued_requests = 6\nmax_in_flight = 4\n")
    client, other = box.greeted(), box.greeted(uid=1001)
    client.say(*(m.CountTokens(id=id, prompt="x") for id in range(12)))
    failed = [x for x in client.heard() if isinstance(x, m.Failed)]
    assert [(x.id, x.reason, x.limit) for x in failed] == [
        (id, Reason.PEER_QUOTA, 9) for id in (9, 10, 11)
    ]
    other.say(m.CountTokens(id=1, prompt="x"), m.CountTokens(id=2, prompt="x"))
    (full,) = (x for x in other.heard() if isinstance(x, m.Failed))
    assert (full.id, full.reason, full.limit) == (2, Reason.CLASS_FULL, 10)


async def test_a_bug_in_a_verb_ends_the_connection(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = box.greeted()
    run = await box.run(client)
    monkeypatch.setattr(type(box.services.reporter), "status", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        client.say(m.GetStatus(id=5))
    await box.quiet()
    assert client.transport.aborted
    assert run.closed == 1
    assert box.outcomes() == {Outcome.FAILED: 1}


# --- slow readers ---------------------------------------------------------------------------------


async def test_whoever_does_not_read_gets_nothing_new(box: Box) -> None:
    client = box.greeted()
    client.transport.unread_bytes = 5 * MIB
    client.say(m.Generate(id=1, prompt="why?"))
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (1, Reason.SLOW_READER, Phase.ARRIVAL)
    assert box.outcomes() == {Outcome.REJECTED: 1}
    client.transport.unread_bytes = 0
    await box.run(client, 2)


async def test_all_requests_of_a_slow_reader_end_with_the_turn(box: Box) -> None:
    client = box.greeted()
    runs = [await box.run(client, 1), await box.run(client, 2)]
    client.heard()
    client.transport.unread_bytes = 5 * MIB
    client.say(m.Whoami(id=3))
    assert len(client.session.live) == 2
    await box.quiet()
    assert [run.closed for run in runs] == [1, 1]
    failed = client.heard()[1:]
    assert {x.reason for x in failed} == {Reason.SLOW_READER}
    assert box.outcomes() == {Outcome.ABORTED: 2}
    assert not client.transport.closing


async def test_a_buffer_that_empties_within_the_turn_ends_nothing(box: Box) -> None:
    client = box.greeted()
    await box.run(client, 1)
    client.transport.unread_bytes = 5 * MIB
    client.say(m.Whoami(id=3))
    client.transport.unread_bytes = 0
    await box.quiet()
    assert len(client.session.live) == 1


async def test_what_is_said_in_one_pass_leaves_in_one_write(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = box.greeted()
    await turn()
    writes: list[int] = []
    monkeypatch.setattr(client.transport, "write", lambda data: writes.append(len(data)))
    client.say(*(m.Whoami(id=id) for id in range(3)))
    assert writes == []
    one_bytes = client.session.unread_bytes // 3
    await turn()
    assert writes == [3 * one_bytes]
    await turn()
    assert len(writes) == 1


async def test_much_is_written_at_once(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    client = box.greeted()
    await turn()
    monkeypatch.setattr(session_module, "WRITE_BYTES", 1)
    client.transport.reads = False
    client.say(m.Whoami(id=1))
    assert client.transport.unread_bytes == client.session.unread_bytes > 0


async def test_the_last_words_stand_behind_what_was_said_before(box: Box) -> None:
    client = box.greeted()
    client.say(m.Whoami(id=1))
    client.raw(b"\0\0\0\0")
    heard = client.heard()
    assert [type(message) for message in heard] == [m.WhoamiReport, m.Failed]
    assert client.transport.closing
