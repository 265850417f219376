"""What checks are given to look at."""

import contextlib
import os
import pwd
import socket
from pathlib import Path

import pytest

from onegate.cli import checkup
from onegate.cli.checkup import Machine, Verdict, group_of, listener, run, user_name


def test_a_command_that_ends() -> None:
    ran = run("sh", "-c", "echo out; echo err >&2; exit 3")
    assert ran is not None
    assert (ran.code, ran.out, ran.err) == (3, "out\n", "err\n")


def test_a_command_is_asked_in_english_and_has_no_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    ran = run("sh", "-c", 'cat; echo "$LC_ALL"')
    assert ran is not None
    assert ran.out == "C\n"


def test_what_is_not_there_or_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("no-such-command-here") is None
    monkeypatch.setattr(checkup, "COMMAND_S", 0.01)
    assert run("sleep", "60") is None


def test_names() -> None:
    assert user_name(0) == "root"
    assert user_name(4_000_000_000) == "4000000000"
    group = group_of("root")
    assert group is not None
    assert group[0] == 0
    assert group_of("no-such-group-here") is None


def test_this_machine() -> None:
    machine = Machine()
    assert (machine.uid, machine.at("/run/x")) == (os.getuid(), Path("/run/x"))
    assert os.getgid() in machine.gids
    assert machine.user_name(machine.uid) == pwd.getpwuid(os.getuid()).pw_name
    assert Machine(root=Path("/other")).at("/run/x") == Path("/other/run/x")


def test_who_listens(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
        assert listener(path) is None
        sock.listen(1)
        who = listener(path)
        assert who is not None
        assert (who.pid, who.uid) == (os.getpid(), os.getuid())
        with contextlib.ExitStack() as stack:
            while who is not None and who.pid:  # until no more may wait
                more = stack.enter_context(socket.socket(socket.AF_UNIX))
                more.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    more.connect(path)
                who = listener(path)
        assert who is not None
    assert listener(path) is None
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        listener(path)


def test_verdicts_come_from_good_to_bad() -> None:
    assert list(Verdict) == ["ok", "skip", "warn", "fail"]
