import os
import subprocess
import sys

import pytest

from onegate.engines.host.processes import (
    MARK,
    Process,
    descendants,
    is_alive,
    kill,
    marked,
    started_by,
)

WAIT = "import sys; sys.stdin.read()"
NESTED = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {WAIT!r}], " + (
    "stdin=subprocess.PIPE); print(p.pid, flush=True); sys.stdin.read()"
)


def start(program):
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_children_of_children_are_found_and_ended():
    with start(NESTED) as parent:
        child = int(parent.stdout.readline())
        found = descendants(parent.pid)
        assert [process.pid for process in found] == [child]
        assert {parent.pid, child} <= {process.pid for process in descendants(os.getpid())}
        assert is_alive(found[0])
        kill(found)
        kill(found)
        while is_alive(found[0]):
            pass
        parent.kill()


def test_one_that_has_ended_and_is_not_reaped_is_not_alive():
    with start("") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert process.pid not in {found.pid for found in descendants(os.getpid())}


def test_another_process_of_the_same_id_is_spared():
    with start("print(input(), flush=True); input()") as process:
        (now,) = [p for p in descendants(os.getpid()) if p.pid == process.pid]
        earlier = Process(now.pid, now.started - 1)
        assert not is_alive(earlier)
        kill([earlier])
        process.stdin.write(b"still here\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"still here\n"
        assert is_alive(now)
        kill([now])
        assert process.wait() == -9


@pytest.fixture
def moved():
    """A process with a mark, in a session of its own, whose parent has gone."""
    leaves = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', "
        f"{WAIT!r}], stdin=0, start_new_session=True); print(p.pid, flush=True)"
    )
    environment = {**os.environ, MARK: "of this test"}
    with subprocess.Popen(
        [sys.executable, "-c", leaves],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as parent:
        pid = int(parent.stdout.readline())
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        yield pid, parent.pid
        kill(marked("of this test"))


def test_a_mark_is_found_wherever_its_process_has_moved(moved):
    pid, parent = moved
    assert descendants(parent) == []
    (found,) = marked("of this test")
    assert found.pid == pid
    assert started_by(parent, "of this test") == [found]
    assert marked("of this") == []
    kill([found])
    while is_alive(found):
        pass
    assert marked("of this test") == []


def test_what_is_below_and_has_the_mark_is_one_process(moved):
    pid, _ = moved
    with subprocess.Popen(
        [sys.executable, "-c", WAIT],
        stdin=subprocess.PIPE,
        env={**os.environ, MARK: "of this test"},
    ) as child:
        found = [p.pid for p in started_by(os.getpid(), "of this test")]
        assert found.count(child.pid) == 1
        assert pid in found
        child.kill()


def test_no_mark_is_nobodys_and_no_process_finds_itself(monkeypatch):
    monkeypatch.setenv(MARK, "x")
    assert marked("") == []
    # As this process was started without, only one that it starts has it.
    with start(WAIT) as child:
        assert [process.pid for process in marked("x")] == [child.pid]
        child.kill()
