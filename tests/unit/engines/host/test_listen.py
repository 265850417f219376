import os
import socket
import stat

import pytest

from onegate.engines.host import listen
from onegate.engines.host.listen import CannotListen, Listener, readable

ME = frozenset({os.geteuid()})


def connected(path):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(path)
    return sock


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "host.sock")


@pytest.fixture
def bind():
    """Makes listeners, and ends them as a process would: the file stays."""
    made = []

    def make(path, uids=ME):
        made.append(Listener(path, uids))
        return made[-1]

    yield make
    for listener in made:
        end(listener)


def end(listener):
    if listener.sock.fileno() >= 0:
        listener.sock.close()
        os.close(listener._lock_fd)


def test_owner_and_group_may_connect_and_nobody_else(bind, path):
    bind(path)
    found = os.stat(path)
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert stat.S_IMODE(os.stat(f"{path}.lock").st_mode) == 0o600


def test_the_umask_is_as_before(bind, path):
    before = os.umask(0o022)
    try:
        bind(path)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_connection_is_accepted_when_its_user_may(bind, path):
    listener = bind(path)
    assert not readable(listener.sock, 0.0)
    with connected(path) as ours:
        assert readable(listener.sock, 10.0)
        with listener.accept() as theirs:
            ours.sendall(b"x")
            assert theirs.recv(10) == b"x"


def test_other_users_are_turned_away_with_a_sentence(bind, path):
    listener = bind(path, frozenset({os.geteuid() + 1}))
    with connected(path) as ours:
        said = listener.accept()
        assert f"uid {os.geteuid()}" in said
        assert str(os.getpid()) in said
        assert ours.recv(10) == b""


def test_what_a_dead_host_left_is_replaced(bind, path):
    end(bind(path))
    assert os.path.exists(path)
    listener = bind(path)
    with connected(path), listener.accept():
        pass


def test_a_living_host_is_left_alone(bind, path):
    bind(path)
    with pytest.raises(CannotListen, match="another engine host holds"):
        bind(path)


def test_the_socket_of_another_program_is_left_alone(bind, path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(path)
        other.listen(1)
        with pytest.raises(CannotListen, match="another program serves"):
            bind(path)
        connected(path).close()


def test_a_file_is_left_alone(bind, path):
    with open(path, "w", encoding="utf-8") as file:
        file.write("mine")
    with pytest.raises(CannotListen, match="is not a socket"):
        bind(path)
    assert os.path.getsize(path) == 4


@pytest.mark.parametrize("path", ["/nowhere/host.sock", "/tmp/" + "x" * 200], ids=["dir", "long"])
def test_a_path_that_cannot_be(bind, path, tmp_path):
    with pytest.raises(CannotListen, match="cannot listen on"):
        bind(path.replace("/tmp", str(tmp_path)))


def test_a_lock_that_is_a_link_is_not_followed(bind, path, tmp_path):
    os.symlink(tmp_path / "victim", f"{path}.lock")
    with pytest.raises(CannotListen):
        bind(path)
    assert not (tmp_path / "victim").exists()


def test_a_short_wait_is_no_busy_one(monkeypatch):
    waits = []

    class Poll:
        def register(self, sock, events):
            pass

        def poll(self, timeout):
            waits.append(timeout)
            return []

    monkeypatch.setattr(listen.select, "poll", Poll)
    for timeout_s in (None, 0.0, 0.0001, 1.5):
        readable(None, timeout_s)
    assert waits == [None, 0, 1, 1500]


def test_a_wait_ends_when_the_engine_has_something_to_tell(bind, path):
    listener = bind(path)
    fd = os.eventfd(1, os.EFD_CLOEXEC)
    try:
        assert not readable(listener.sock, None, wake=fd)
        assert not readable(None, None, wake=fd)
        with connected(path):
            assert readable(listener.sock, None, wake=fd)
    finally:
        os.close(fd)
