"""systemd/engine-port.nft in a network of its own: whom the kernel lets connect."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RECIPE = Path(__file__).parents[2] / "systemd/engine-port.nft"
NFT = shutil.which("nft", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
PORT, OTHER_PORT = 11434, 11435
GATE, ANN = 4321, 1000  # whoever they are: uids need no names

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="a network of one's own needs root"),
    pytest.mark.skipif(NFT is None, reason="nft is not installed (apt install nftables)"),
]

# Prints, before the recipe, with it, and after it is taken back, who reaches which address.
_IN_A_NETWORK = """
import fcntl, json, os, socket, struct, subprocess, sys
nft, recipe, uids, ports = sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:5])
with socket.socket() as sock:  # ip link set lo up
    fcntl.ioctl(sock, 0x8914, struct.pack("16sh22x", b"lo", 1))
"".encode("idna")  # loaded while everything can be read
places = [(host, port) for port in ports for host in ("127.0.0.1", "::1", "127.9.9.9")]
servers = []
for family, host in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1")):
    for port in ports:
        servers.append(socket.create_server((host, port), family=family))

def connects(uid, place):
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresuid(uid, uid, uid)
        try:
            socket.create_connection(place, 5).close()
            os._exit(0)
        except ConnectionRefusedError:
            os._exit(1)
        finally:
            os._exit(2)
    return {0: True, 1: False}[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]

def seen():
    return {uid: [connects(uid, place) for place in places] for uid in uids}

def run(*arguments, text=None):
    done = subprocess.run([nft, *arguments], input=text, text=True, check=True, capture_output=True)
    return done.stdout

found = [seen()]
for _ in range(2):
    run("-D", f"port={ports[0]}", "-f", "-", text=recipe)
rules = run("list", "table", "inet", "onegate_engine").count("reject")
found.append(seen())
run("delete", "table", "inet", "onegate_engine")
found.append(seen())
print(json.dumps([rules, found]))
"""


def tried() -> tuple[int, list[dict[str, list[bool]]]]:
    # The machine of a test has no user of that name.
    recipe = RECIPE.read_text(encoding="utf-8").replace("root, onegate", f"root, {GATE}")
    assert str(GATE) in recipe
    arguments = [str(NFT), recipe, json.dumps([0, GATE, ANN]), json.dumps([PORT, OTHER_PORT])]
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-I", "-c", _IN_A_NETWORK, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rules, found = json.loads(done.stdout)
    return rules, found


def test_others_are_refused_and_the_gate_and_root_are_not() -> None:
    rules, (before, closed, after) = tried()
    assert rules == 1, "read twice it is there once"
    everywhere: dict[str, Any] = {str(uid): [True] * 6 for uid in (0, GATE, ANN)}
    assert before == everywhere
    # Of the six the first three are the engine's port, at three addresses of this machine.
    assert closed == everywhere | {str(ANN): [False] * 3 + [True] * 3}
    assert after == everywhere


def test_the_head_of_the_file_says_how_to_use_it() -> None:
    head, _, rules = RECIPE.read_text(encoding="utf-8").partition("\ntable inet")
    # Another machine's port of that number is nobody's business here.
    assert 'oifname "lo" tcp dport $port' in rules
    assert f"nft -D port={PORT} -f /opt/onegate/current/systemd/engine-port.nft" in head
    assert "nft delete table inet onegate_engine" in head
