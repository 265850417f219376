"""What systemd says about the sockets it passes. Real sockets: tests/integration."""

import os
import stat

import pytest

from onegate.server.listener import FD_NAME, Inherited, ListenError, adopt, take_inherited

PID = 4711


def environ(**changes: str) -> dict[str, str]:
    return {
        "LISTEN_PID": str(PID),
        "LISTEN_FDS": "1",
        "LISTEN_FDNAMES": FD_NAME,
        "PATH": "/bin",
    } | changes


@pytest.fixture
def inheritable(monkeypatch: pytest.MonkeyPatch) -> dict[int, bool]:
    """Records what is done to descriptors instead of doing it."""
    seen: dict[int, bool] = {}
    monkeypatch.setattr(os, "set_inheritable", lambda fd, on: seen.__setitem__(fd, on))
    return seen


def test_what_was_passed_is_taken_by_name(inheritable: dict[int, bool]) -> None:
    env = environ(LISTEN_FDS="2", LISTEN_FDNAMES=f"metrics:{FD_NAME}")
    assert take_inherited(env, PID) == Inherited({"metrics": 3, FD_NAME: 4})
    assert inheritable == {3: False, 4: False}
    assert env == {"PATH": "/bin"}


def test_one_socket_needs_no_name(inheritable: dict[int, bool]) -> None:
    env = environ()
    del env["LISTEN_FDNAMES"]
    assert take_inherited(env, PID) == Inherited({FD_NAME: 3})


@pytest.mark.parametrize("changes", [{"LISTEN_PID": "1"}, {"LISTEN_PID": ""}, {"LISTEN_FDS": "0"}])
def test_what_is_not_for_us_is_left_but_forgotten(
    inheritable: dict[int, bool], changes: dict[str, str]
) -> None:
    env = environ(**changes, LISTEN_PIDFDID="3")
    assert take_inherited(env, PID) is None
    assert env == {"PATH": "/bin"}
    assert inheritable == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"LISTEN_FDS": "x"}, "not a number"),
        ({"LISTEN_FDS": "-1"}, "not a number"),
        ({"LISTEN_FDS": "²"}, "not a number"),
        ({"LISTEN_FDS": ""}, "not a number"),
        ({"LISTEN_FDS": "65"}, "says 65 descriptors"),
        ({"LISTEN_FDS": "9" * 9000}, "one is needed"),
        ({"LISTEN_FDS": "2"}, "2 descriptors are named"),
        ({"LISTEN_FDS": "2", "LISTEN_FDNAMES": "a:a"}, "exactly one ListenStream="),
        ({"LISTEN_FDNAMES": "a:b"}, "1 descriptors are named"),
    ],
)
def test_nonsense_is_an_error_and_forgotten(
    inheritable: dict[int, bool], changes: dict[str, str], message: str
) -> None:
    env = environ(**changes)
    with pytest.raises(ListenError, match=message):
        take_inherited(env, PID)
    assert env == {"PATH": "/bin"}


def test_a_descriptor_that_is_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(fd: int, on: bool) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(os, "set_inheritable", closed)
    with pytest.raises(ListenError, match="descriptor 3 is open; it is not"):
        take_inherited(environ(), PID)


@pytest.mark.parametrize("fds", [{"other": 3}, {FD_NAME: 3, "other": 4}, {}])
def test_only_the_one_expected_socket_is_adopted(fds: dict[str, int]) -> None:
    with pytest.raises(ListenError, match=f"FileDescriptorName={FD_NAME}"):
        adopt(Inherited(fds))


def test_a_file_is_not_adopted() -> None:
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        with pytest.raises(ListenError, match="is not a socket"):
            adopt(Inherited({FD_NAME: fd}))
        assert stat.S_ISCHR(os.fstat(fd).st_mode)
    finally:
        os.close(fd)
