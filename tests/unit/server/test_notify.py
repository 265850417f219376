"""What systemd is told."""

import pytest

from onegate.server.notify import Notifier

PID = 4711


class FakeSocket:
    blocking = True

    def setblocking(self, flag: bool) -> None:
        self.blocking = flag


class FakeBackend:
    def __init__(self) -> None:
        self.socket = FakeSocket()
        self.sent: list[str] = []
        self.full = False

    def notify(self, state: str) -> None:
        if self.full:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.sent.append(state)


def notifier(**environ: str) -> tuple[Notifier, FakeBackend, dict[str, str]]:
    backend = FakeBackend()
    env = {"NOTIFY_SOCKET": "/run/systemd/notify", "PATH": "/bin"} | environ
    return Notifier.from_environ(env, PID, lambda: backend), backend, env


def test_messages() -> None:
    told, backend, _ = notifier()
    assert told.enabled
    told.ready("serving")
    told.status("3 running")
    told.watchdog()
    told.stopping("draining")
    told.extend_timeout(1.5)
    assert backend.sent == [
        "READY=1\nSTATUS=serving",
        "STATUS=3 running",
        "WATCHDOG=1",
        "STOPPING=1\nSTATUS=draining",
        "EXTEND_TIMEOUT_USEC=1500000",
    ]


def test_a_reload_carries_its_time() -> None:
    told, backend, _ = notifier()
    told.reloading()
    first, second = backend.sent[0].split("\n")
    assert first == "RELOADING=1"
    assert second.startswith("MONOTONIC_USEC=")
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0


def test_sending_never_waits() -> None:
    _, backend, _ = notifier()
    assert backend.socket.blocking is False


def test_a_status_is_one_line_and_nothing_else() -> None:
    told, backend, _ = notifier()
    told.status("a\nREADY=1\r\x00é" + "x" * 1000)
    assert backend.sent[0].startswith("STATUS=a?READY=1???xxx")
    assert "\n" not in backend.sent[0]
    assert len(backend.sent[0]) == len("STATUS=") + 200


def test_outside_systemd_nothing_happens() -> None:
    def unexpected() -> FakeBackend:
        raise AssertionError("connected to nothing")

    for env in ({}, {"NOTIFY_SOCKET": ""}, {"WATCHDOG_USEC": "1000000"}):
        told = Notifier.from_environ(dict(env), PID, unexpected)
        assert not told.enabled
        assert told.watchdog_interval_s is None
        told.ready("x")
        told.watchdog()
        assert (told.lost, told.problem) == (0, "")


@pytest.mark.parametrize(
    ("environ", "interval_s"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(PID)}, 15.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({"WATCHDOG_USEC": "9" * 5000}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_asked(
    environ: dict[str, str], interval_s: float | None
) -> None:
    assert notifier(**environ)[0].watchdog_interval_s == interval_s


def test_no_child_finds_what_we_were_told() -> None:
    _, _, env = notifier(WATCHDOG_USEC="1", WATCHDOG_PID="2")
    assert env == {"PATH": "/bin"}


def test_a_manager_that_cannot_be_reached_is_a_problem_and_no_failure() -> None:
    def unreachable() -> FakeBackend:
        raise FileNotFoundError(2, "No such file or directory")

    env = {"NOTIFY_SOCKET": "/nowhere", "WATCHDOG_USEC": "9000000"}
    told = Notifier.from_environ(env, PID, unreachable)
    assert told.problem == "cannot reach the service manager: No such file or directory"
    assert not told.enabled
    assert told.watchdog_interval_s is None
    assert env == {}


def test_a_manager_that_does_not_read_loses_messages_and_stops_nobody() -> None:
    told, backend, _ = notifier()
    backend.full = True
    told.watchdog()
    told.watchdog()
    assert told.lost == 2
    backend.full = False
    told.watchdog()
    assert backend.sent == ["WATCHDOG=1"]
