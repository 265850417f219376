"""Client and daemon must agree on where the socket is."""

import pytest

from onegate.config import Config, socket_path
from onegate.protocol.address import SYSTEM_SOCKET, socket_to_connect, user_sockets

ENVIRONMENTS = [
    {"ONEGATE_SOCKET": "/elsewhere/gate.sock", "XDG_RUNTIME_DIR": "/run/user/7"},
    {"XDG_RUNTIME_DIR": "/run/user/7", "XDG_CACHE_HOME": "/c", "HOME": "/home/eva"},
    {"XDG_RUNTIME_DIR": "relative", "XDG_CACHE_HOME": "/c", "HOME": "/home/eva"},
    {"XDG_RUNTIME_DIR": "", "HOME": "/home/eva"},
    {"XDG_RUNTIME_DIR": "/run/user/7/"},
]


@pytest.mark.parametrize("environ", ENVIRONMENTS)
def test_a_client_finds_the_daemon_of_its_user(environ: dict[str, str]) -> None:
    bound = socket_path(Config(), environ=environ, uid=7)
    assert socket_to_connect(environ, lambda path: path == bound) == bound


@pytest.mark.parametrize("environ", [*ENVIRONMENTS[1:], {}])
def test_a_client_finds_the_daemon_of_the_system(environ: dict[str, str]) -> None:
    bound = socket_path(Config(), environ=environ, uid=0)
    assert bound == SYSTEM_SOCKET
    assert socket_to_connect(environ, lambda path: path == bound) == bound


def test_ones_own_daemon_comes_before_the_systems() -> None:
    own = "/run/user/7/onegate.sock"
    assert socket_to_connect({"XDG_RUNTIME_DIR": "/run/user/7"}, lambda path: True) == own


def test_an_empty_variable_is_no_path() -> None:
    assert socket_to_connect({"ONEGATE_SOCKET": ""}, lambda path: False) == SYSTEM_SOCKET


def test_relative_places_are_ignored() -> None:
    assert user_sockets({"XDG_RUNTIME_DIR": "run", "HOME": "home"}) == []
