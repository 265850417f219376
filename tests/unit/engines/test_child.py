import asyncio
import os
import signal
import sys

import pytest

from onegate.engines.child import Child, child_environment
from onegate.engines.host.processes import descendants, is_alive, marked

# In place of an interpreter: it starts something in a session of its own, as MPI does.
HOST = """#!/bin/sh
setsid sh -c 'echo started $$; exec sleep 3600' &
exec sleep 3600
"""


def test_only_what_an_engine_may_need():
    environment = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "1",
        "OV_CACHE": "x",
        "OPAL_PREFIX": "/opt/ompi",
        "OMPI_COMM_WORLD_RANK": "1",
        "TRTLLM_X": "1",
        "LISTEN_FDS": "1",
        "NOTIFY_SOCKET": "/run/x",
        "WATCHDOG_USEC": "1",
        "PYTHONPATH": "/evil",
        "LD_PRELOAD": "/evil.so",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HF_TOKEN": "x",
    }
    assert child_environment(environment).keys() == {
        "PATH",
        "HOME",
        "LC_ALL",
        "CUDA_VISIBLE_DEVICES",
        "OV_CACHE",
        "OPAL_PREFIX",
        "TRTLLM_X",
    }


@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "was ended by SIGKILL"), (40, "was ended by signal 40")],
)
async def test_how_a_child_ended_also_by_a_signal_without_a_name(number, said):
    child = Child(sys.executable, [].append)
    try:
        await child.follow_output()
        os.kill(child.pid, number)
        assert await child.exited(60.0)
        assert child.exit_text() == said
    finally:
        await child.gone()
        child.sock.close()


@pytest.mark.parametrize("dies_first", [False, True])
async def test_what_it_has_started_in_another_session_goes_with_it(tmp_path, dies_first):
    python = tmp_path / "python"
    python.write_text(HOST, encoding="utf-8")
    python.chmod(0o755)
    said = asyncio.Queue()
    child = Child(str(python), said.put_nowait)
    try:
        await child.follow_output()
        async with asyncio.timeout(60.0):
            pid = int((await said.get()).removeprefix("started "))
        (worker,) = [process for process in marked(child._mark) if process.pid == pid]
        assert os.getpgid(pid) != child.pid
        if dies_first:
            # Nobody's child any more by the time it is looked for.
            os.kill(child.pid, signal.SIGKILL)
            assert await child.exited(60.0)
    finally:
        await child.gone()
        child.sock.close()
    assert not is_alive(worker)
    assert marked(child._mark) == []


async def test_it_is_ended_at_once_with_what_has_neither_its_group_nor_its_mark(tmp_path):
    """As long as it is below the host, which is looked at before that ends."""
    python = tmp_path / "python"
    python.write_text(HOST.replace("setsid", "/usr/bin/env -i /usr/bin/setsid"), encoding="utf-8")
    python.chmod(0o755)
    said = asyncio.Queue()
    child = Child(str(python), said.put_nowait)
    try:
        await child.follow_output()
        async with asyncio.timeout(60.0):
            pid = int((await said.get()).removeprefix("started "))
        (worker,) = [process for process in descendants(child.pid) if process.pid == pid]
        assert worker not in marked(child._mark)
        child.kill()
        while is_alive(worker):
            pass
    finally:
        await child.gone()
        child.sock.close()


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("x (ModuleNotFoundError: No module named 'onegate')", "onegate is not installed for"),
        ("ModuleNotFoundError: No module named 'msgspec'", "msgspec is not installed for"),
        ("Try `python -h' for more information.", "is older than Python 3.11"),
    ],
)
async def test_an_interpreter_that_cannot_run_a_host_is_told_with_the_fix(line, part):
    child = Child(sys.executable, [].append)
    try:
        child.lines.data_received(f"{line}\n".encode())
        assert part in child.last_line
        assert sys.executable in child.last_line
        child.lines.data_received(b"ModuleNotFoundError: No module named 'torch'\n")
        assert child.last_line == "ModuleNotFoundError: No module named 'torch'"
    finally:
        await child.gone()
        child.sock.close()
