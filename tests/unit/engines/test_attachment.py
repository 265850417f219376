import socket

import pytest

from onegate.engines.attachment import Attachment
from onegate.engines.stall import LOADING_SILENCE_S


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "h.sock")


@pytest.fixture
def listening(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(path)
        sock.listen(0)
        yield sock


async def test_it_is_connected_and_its_host_never_touched(listening, path):
    made = Attachment(path)
    theirs, _ = listening.accept()
    with theirs, made.sock:
        theirs.setblocking(False)
        made.kill()
        await made.follow_output()
        await made.gone()
        assert not await made.exited(0.0)
        assert made.exit_text() is None
        assert (made.is_ours, made.last_line) == (False, "")
        made.sock.send(b"x")
        assert theirs.recv(10) == b"x"


def test_a_host_that_loads_may_be_silent_for_as_long_as_that_takes():
    assert Attachment.hello_s == LOADING_SILENCE_S


def test_nobody_there(path, listening):
    listening.close()
    with pytest.raises(ConnectionRefusedError):
        Attachment(path)
    with pytest.raises(FileNotFoundError):
        Attachment(path + "x")


def test_a_full_backlog_is_no_wait(path, listening):
    with Attachment(path).sock, pytest.raises(BlockingIOError):
        Attachment(path)
