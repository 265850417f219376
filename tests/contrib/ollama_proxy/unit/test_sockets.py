"""Sockets from systemd, and our own."""

import os
import socket
from collections.abc import Iterator

import pytest

from onegate_ollama_proxy import sockets as module
from onegate_ollama_proxy.sockets import ListenError, is_here, sockets_for


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """One listening socket, as if systemd had handed it over."""
    sock = socket.create_server(("127.0.0.1", 0))
    monkeypatch.setattr(module, "_FIRST_FD", sock.fileno())
    yield sock
    # Whoever took it over has it, and both names are of one descriptor.
    if sock.fileno() != -1:
        sock.detach()


def environ(count: object = 1, pid: object = None) -> dict[str, str]:
    return {
        "LISTEN_PID": str(os.getpid() if pid is None else pid),
        "LISTEN_FDS": str(count),
        "LISTEN_FDNAMES": "x",
    }


def test_one_that_was_handed_over_is_used(handed: socket.socket) -> None:
    given = environ()
    (found,) = sockets_for([handed.getsockname()], given, 5)
    with found:
        assert found.fileno() == handed.fileno()
        assert not os.get_inheritable(found.fileno())
        assert given == {}  # a child would take them for its own


def test_one_that_no_listener_has_is_an_error(handed: socket.socket) -> None:
    with pytest.raises(ListenError, match=r"no \[\[listener\]\] has that address"):
        sockets_for([("127.0.0.1", 0)], environ(), 5)
    assert handed.detach() >= 0


def test_without_one_the_address_is_bound() -> None:
    (found,) = sockets_for([("127.0.0.1", 0)], {}, 5)
    with found:
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        assert not found.getblocking()


def test_one_for_somebody_else_is_left_alone(handed: socket.socket) -> None:
    (found,) = sockets_for([("127.0.0.1", 0)], environ(pid=1), 5)
    with found:
        assert found.fileno() != handed.fileno()


@pytest.mark.parametrize("count", ["65", "99999", "100000000000"])
def test_a_nonsensical_count(count: str) -> None:
    with pytest.raises(ListenError, match="LISTEN_FDS"):
        sockets_for([], environ(count), 5)


def test_what_is_no_listening_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = socket.socketpair()
    with left, right:
        monkeypatch.setattr(module, "_FIRST_FD", left.fileno())
        with pytest.raises(ListenError, match="no listening TCP socket"):
            sockets_for([], environ(), 5)
        left.detach()
    read, write = os.pipe()
    monkeypatch.setattr(module, "_FIRST_FD", read)
    with pytest.raises(ListenError, match="no socket"):
        sockets_for([], environ(), 5)
    os.close(read)
    os.close(write)


def test_an_address_that_is_taken_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: object, address: object) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(ListenError) as error:
        sockets_for([("127.0.0.1", 11434)], {}, 5)
    assert "OLLAMA_HOST" in str(error.value)
    with pytest.raises(ListenError) as error:
        sockets_for([("127.0.0.1", 4)], {}, 5)
    assert "OLLAMA_HOST" not in str(error.value)


def test_a_name_that_is_no_address() -> None:
    with pytest.raises(ListenError, match="no address of this machine"):
        sockets_for([("nowhere.invalid", 1)], {}, 5)


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("192.0.2.1", False), ("2001:db8::1", False)]
)
def test_an_address_that_comes_later_is_listened_on_already(host: str, here: bool) -> None:
    (found,) = sockets_for([(host, 0)], {}, 5)
    with found:
        assert found.getsockname()[0] == host
        assert is_here(found) is here
