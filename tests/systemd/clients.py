"""For the probes: clients that go on until they are stopped, and lose nothing."""

import subprocess

from tests.systemd.machine import PREFIX, SOCKET, as_user

# Connects every few milliseconds until its input ends; a refused connection is an error.
_KNOCK = """
import select, socket, sys, time
tries = 0
while not select.select([sys.stdin], [], [], 0.005)[0]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(sys.argv[1])
    tries += 1
print(tries)
"""

# Asks until its input ends; what the client of that policy loses is an error.
_ASK = """
import select, sys
from onegate import Client
answers = 0
with Client(retry="honour") as gate:
    while not select.select([sys.stdin], [], [], 0)[0]:
        answers += gate.generate("[[tokens:5]]", max_tokens=5).usage.output_tok == 5
print(answers)
"""


def knock() -> subprocess.Popen[str]:
    """Connect all the time."""
    return _python(_KNOCK, str(SOCKET))


def ask() -> subprocess.Popen[str]:
    """Ask all the time, with the patience to wait for a daemon that comes back."""
    return _python(_ASK)


def _python(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*as_user("ann"), PREFIX / "current/venv/bin/python", "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd="/",
    )


def stopped(running: subprocess.Popen[str]) -> int:
    """What a program printed once its input ended."""
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    return int(out)
