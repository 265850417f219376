"""What systemd is told."""

import os
import socket
from pathlib import Path

import pytest

from onegate_ollama_proxy.notify import Notifier


def test_outside_of_systemd_nothing_is_said() -> None:
    notifier = Notifier.from_environ({})
    assert notifier.watchdog_s is None
    notifier.say("READY=1")


def test_lines_go_to_its_socket_and_the_environment_is_cleared(tmp_path: Path) -> None:
    path = str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        given = {
            "NOTIFY_SOCKET": path,
            "WATCHDOG_USEC": "4000000",
            "WATCHDOG_PID": str(os.getpid()),
        }
        notifier = Notifier.from_environ(given)
        assert given == {}
        assert notifier.watchdog_s == 2.0
        notifier.say("READY=1", "STATUS=x")
        assert manager.recv(100) == b"READY=1\nSTATUS=x"


@pytest.mark.parametrize(
    ("usec", "pid"), [("x", ""), ("0", ""), ("9" * 30, ""), ("4000000", "1"), ("٣", "")]
)
def test_a_watchdog_that_is_not_for_us(usec: str, pid: str) -> None:
    given = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    assert Notifier.from_environ(given).watchdog_s is None


@pytest.mark.parametrize("address", ["/nowhere/at/all", "@nobody"])
def test_a_manager_that_is_gone_stops_nothing(address: str) -> None:
    Notifier(address, None).say("READY=1")
