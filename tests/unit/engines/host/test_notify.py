import socket

import pytest

from onegate.engines.host.notify import LOAD_USEC, Notifier

MINUTE_USEC = 60_000_000
SECOND_NS = 1_000_000_000


class Manager:
    """What a service manager has heard; `busy` while it takes nothing."""

    def __init__(self):
        self.heard = []
        self.busy = False
        self.now_ns = 0

    def __call__(self, message):
        if self.busy:
            raise BlockingIOError
        self.heard.append(message.decode().split("\n"))

    def take(self):
        heard, self.heard = self.heard, []
        return heard


@pytest.fixture
def manager():
    return Manager()


@pytest.fixture
def notifier(manager):
    return Notifier(manager, MINUTE_USEC, now_ns=lambda: manager.now_ns)


def test_without_a_manager_nothing_is_watched():
    silent = Notifier()
    silent.ready("here")
    silent.turn(loading=True)
    assert silent.interval_s is None


def test_ready_and_its_status_are_one_message(manager, notifier):
    notifier.ready("waits")
    notifier.status("serves\nREADY=1\u2028")
    assert manager.take() == [["READY=1", "STATUS=waits"], ["STATUS=serves?READY=1?"]]


def test_turns_are_signs_of_life_three_in_the_time_allowed(manager, notifier):
    assert notifier.interval_s == pytest.approx(20.0)
    notifier.turn(loading=False)
    assert manager.take() == [["WATCHDOG=1"]]
    manager.now_ns = 20 * SECOND_NS - 1
    notifier.turn(loading=False)
    assert manager.take() == []
    manager.now_ns += 1
    notifier.turn(loading=False)
    assert manager.take() == [["WATCHDOG=1"]]


def test_nothing_but_a_turn_is_a_sign_of_life(manager, notifier):
    notifier.ready("x")
    notifier.status("y")
    manager.now_ns = 100 * SECOND_NS
    notifier.status("z")
    assert not any("WATCHDOG=1" in message for message in manager.take())


def test_a_load_is_given_its_time_and_only_that(manager, notifier):
    notifier.turn(loading=False)
    manager.take()
    notifier.turn(loading=True)
    assert manager.take() == [[f"WATCHDOG_USEC={LOAD_USEC}", "WATCHDOG=1"]]
    notifier.turn(loading=True)
    assert manager.take() == []
    notifier.turn(loading=False)
    assert manager.take() == [[f"WATCHDOG_USEC={MINUTE_USEC}", "WATCHDOG=1"]]


def test_a_load_never_gets_less_than_a_step(manager):
    notifier = Notifier(manager, 2 * LOAD_USEC)
    notifier.turn(loading=True)
    assert f"WATCHDOG_USEC={2 * LOAD_USEC}" in manager.take()[0]


def test_a_manager_that_does_not_watch_hears_no_signs_of_life(manager):
    notifier = Notifier(manager, None)
    assert notifier.interval_s is None
    notifier.turn(loading=True)
    notifier.turn(loading=False)
    assert manager.take() == []


def test_what_did_not_get_through_comes_with_the_next_turn(manager, notifier):
    manager.busy = True
    notifier.ready("old")
    notifier.status("new")
    manager.busy = False
    notifier.turn(loading=False)
    assert manager.take() == [["READY=1", "STATUS=new", "WATCHDOG=1"]]


@pytest.mark.parametrize("abstract", [False, True])
def test_the_environment_says_where_and_how_often(tmp_path, abstract):
    name = f"@{tmp_path.name}-notify" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0" + name[1:] if abstract else name)
        environ = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7", "A": "b"}
        notifier = Notifier.from_environ(environ, 7)
        assert environ == {"A": "b"}
        assert notifier.interval_s == pytest.approx(1.0)
        notifier.ready("x")
        assert sock.recv(100) == b"READY=1\nSTATUS=x"


@pytest.mark.parametrize(
    "environ",
    [
        {"WATCHDOG_USEC": "3000000"},
        {"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "3000000"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "-5"},
        {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "9" * 19},
        {"NOTIFY_SOCKET": "/x"},
    ],
)
def test_an_environment_in_which_nobody_watches_us(environ):
    notifier = Notifier.from_environ(environ, 7)
    assert notifier.interval_s is None
    assert environ == {}
    notifier.ready("nobody is there")
