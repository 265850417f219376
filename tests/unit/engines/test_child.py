import os
import signal
import sys

import pytest

from onegate.engines.child import Child, child_environment


def test_only_what_an_engine_may_need():
    environment = {
        "PATH": "/bin",
        "HOME": "/root",
        "LC_ALL": "C",
        "CUDA_VISIBLE_DEVICES": "1",
        "OV_CACHE": "x",
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
