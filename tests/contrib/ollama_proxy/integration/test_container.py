"""Five people in a container, which is another network: the commonest chat there is."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.contrib.ollama_proxy.rig import free_port, proxied

from onegate import Client

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="making a network namespace needs root"),
    pytest.mark.skipif(
        shutil.which("ip") is None,
        reason="ip is not installed (Debian, Ubuntu: sudo apt install iproute2)",
    ),
]

USERS = 5
# For each user at once, as Open WebUI asks: the chat, its title, its tags.
PURPOSES = 3

# The README's lines, and one seat, so that nearly all of them wait: answers without a bound count
# as what is usual, and not as the whole context.
GATE = """
[engine]
kind = "scripted"
[[engine.scripted.pools]]
model = "tiny"
max_seqs = 1
a_ms = 1
[[class]]
name = "interactive"
per_principal_share = 1.0
"""

# The standard library alone, so that it runs anywhere.
PROGRAM = f"""
import json, sys, threading, urllib.error, urllib.request
url = sys.argv[1]
got = []

def ask(user, body):
    headers = {{
        "Content-Type": "application/json",
        "User-Agent": "Python/3.12 aiohttp/3.13",
        "X-OpenWebUI-User-Id": f"user-{{user}}",
    }}
    request = urllib.request.Request(url + "/api/chat", json.dumps(body).encode(), headers)
    try:
        answer = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        answer = error
    with answer:
        lines = answer.read().splitlines()
    said = json.loads(lines[-1])
    got.append(said.get("error") or said["done"])

with urllib.request.urlopen(url + "/api/tags", timeout=60) as answer:
    (model,) = json.load(answer)["models"]
threads = []
for user in range({USERS}):
    for purpose in range({PURPOSES}):
        turns = [{{"role": "user", "content": f"purpose {{purpose}} [[tokens:50]]"}}]
        body = {{"model": model["name"], "messages": turns, "stream": purpose == 0}}
        threads.append(threading.Thread(target=ask, args=(user, body)))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(json.dumps(got))
"""


@dataclass
class Container:
    """A network of its own, from which this machine is at `address`."""

    name: str
    address: str

    def run(self, *command: str) -> str:
        done = subprocess.run(
            ["ip", "netns", "exec", self.name, *command], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert not done.stderr, done.stderr[-300:]
        return done.stdout


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture
def container() -> Iterator[Container]:
    """As Docker makes one: a namespace, and a pair of interfaces between it and this one."""
    number = os.getpid() % 10_000
    name, here, there = f"onegate-{number}", f"og{number}h", f"og{number}c"
    third = number % 250
    ip("netns", "add", name)
    try:
        ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", name)
        ip("addr", "add", f"10.213.{third}.1/24", "dev", here)
        ip("link", "set", here, "up")
        ip("-n", name, "addr", "add", f"10.213.{third}.2/24", "dev", there)
        ip("-n", name, "link", "set", there, "up")
        yield Container(name, f"10.213.{third}.1")
    finally:
        ip("netns", "del", name)  # and the pair with it


def listener(address: str, *, flow: bool) -> str:
    header = 'flow_header = "X-OpenWebUI-User-Id"\n' if flow else ""
    return (
        f'[[listener]]\naddress = "{address}"\nceiling = "interactive"\n'
        f'principal = "open-webui"\n{header}'
    )


def admitted(socket: str) -> dict[str, int]:
    with Client(socket) as gate:
        return {found.name: found.admitted for found in gate.status().classes}


@pytest.mark.parametrize("flow", [True, False])
def test_each_of_five_people_is_a_person(container, tmp_path: Path, timeout_factor, flow):
    address = f"{container.address}:{free_port()}"
    more = listener(address, flow=flow)
    with proxied(tmp_path, GATE, 60 * timeout_factor, more=more) as rig:
        said = container.run(sys.executable, "-c", PROGRAM, f"http://{address}")
        assert json.loads(said) == [True] * (USERS * PURPOSES)
        counts = admitted(rig.daemon.socket)
    if flow:
        assert counts == {"interactive": USERS * PURPOSES, "loop": 0, "batch": 0}, rig.log
    else:
        # As one program they would be one: so many at a time are no person.
        assert counts["interactive"] < USERS * PURPOSES


def test_what_the_header_says_is_not_believed_of_a_program_on_this_machine(
    tmp_path: Path, timeout_factor
):
    """Behind a listener without `flow_header` it is a header like any other."""
    with proxied(tmp_path, GATE, 60 * timeout_factor) as rig:
        subprocess.run([sys.executable, "-c", PROGRAM, rig.url], check=True, capture_output=True)
        assert admitted(rig.daemon.socket)["interactive"] < USERS * PURPOSES
