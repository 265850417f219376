import os
import subprocess
import sys

from onegate.engines.host.trtllm.processes import Process, descendants, is_alive, kill

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
