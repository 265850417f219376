"""Who may have one more connection."""

from typing import Any

import pytest

from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason

Box = Any  # of conftest.py

FEW = "[gate]\nsessions_per_uid = 2\nsessions_total = 3\n"


def refusal(client: Any) -> m.Failed:
    (failed,) = client.heard()
    assert isinstance(failed, m.Failed)
    assert (failed.id, failed.phase) == (None, Phase.HANDSHAKE)
    return failed


async def test_connections_are_counted_and_forgotten(box: Box) -> None:
    first, second = box.greeted(), box.greeted(uid=2)
    assert len(box.sessions) == 2
    assert set(box.sessions) == {first.session, second.session}
    first.hang_up()
    await box.quiet()
    assert set(box.sessions) == {second.session}


async def test_one_user_has_so_many(make_box: Any) -> None:
    box = make_box(FEW)
    first, _, third = box.connect(), box.connect(), box.connect()
    failed = refusal(third)
    assert (failed.reason, failed.limit, failed.used) == (Reason.PEER_QUOTA, 2, 2)
    assert failed.message.startswith("you have")
    await box.quiet()
    assert third.transport.lost
    assert box.services.accounts.sessions_refused == 1
    assert len(box.sessions) == 2
    first.hang_up()
    await box.quiet()
    assert box.connect().heard() == []


async def test_all_users_together_have_so_many(make_box: Any) -> None:
    box = make_box(FEW)
    for uid in (1, 2, 3):
        box.connect(uid=uid)
    failed = refusal(box.connect(uid=4))
    assert (failed.reason, failed.limit) == (Reason.PEER_QUOTA, 3)
    assert failed.message.startswith("the daemon has")


async def test_a_refused_connection_is_not_counted_when_it_goes(make_box: Any) -> None:
    box = make_box(FEW)
    box.connect()
    box.connect()
    for _ in range(5):
        box.connect()
        await box.quiet()
    assert len(box.sessions) == 2
    refusal(box.connect())


async def test_a_peer_without_facts_gets_the_lowest_class_and_a_line(box: Box) -> None:
    client = box.connect(unreadable="the process has exited")
    welcome = client.hello()
    assert (welcome.class_, welcome.ceiling) == ("batch", "batch")
    assert "peer_unreadable" in box.log.getvalue()


async def test_a_socket_that_does_not_answer_is_refused(box: Box) -> None:
    from onegate.server.session import Session

    session: Session = box.sessions.accept()

    class Transport:
        closed = 0
        written = b""

        def set_write_buffer_limits(self, high: int) -> None:
            pass

        def get_extra_info(self, name: str) -> Any:
            return OSError(107, "not connected")

        def write(self, data: bytes) -> None:
            self.written += data

        def get_write_buffer_size(self) -> int:
            return 0

        def close(self) -> None:
            self.closed += 1

        def abort(self) -> None:
            raise AssertionError("it reads")

    transport: Any = Transport()
    session.connection_made(transport)
    assert b"permission" in transport.written
    assert transport.closed == 1
    session.data_received(b"\0\0\0\x01\xc0")
    session.connection_lost(None)
    assert len(box.sessions) == 0
    assert "peer_unreadable" in box.log.getvalue()


@pytest.mark.parametrize("refuse", [True, False])
async def test_a_refusal_is_logged_for_the_user(make_box: Any, refuse: bool) -> None:
    box = make_box(FEW)
    for _ in range(2 + refuse):
        box.connect()
    assert ("session_refused uid=1000" in box.log.getvalue()) is refuse


async def test_many_refusals_are_one_line(make_box: Any) -> None:
    box = make_box(FEW)
    for _ in range(12):
        box.connect()
    assert box.services.accounts.sessions_refused == 10
    assert box.log.getvalue().count("session_refused") == 1
