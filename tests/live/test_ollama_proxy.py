"""Published clients, proxy, gate, and a real Ollama; or one of one's own (`ONEGATE_OLLAMA_URL`,
with the model that `ONEGATE_OLLAMA_MODEL` names, else `tiny`)."""

import hashlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from tests.contrib.ollama_proxy.clients.conftest import client_node, client_python
from tests.contrib.ollama_proxy.clients.test_clients import (
    CLASSES,
    HERE,
    MANAGEMENT,
    cases,
    close_batch,
    ran,
)
from tests.contrib.ollama_proxy.rig import Rig, proxied
from tests.live.ollama_server import OllamaServer, prepare

__all__ = ["client_node", "client_python"]

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.alone("ollama")]

MODEL = os.environ.get("ONEGATE_OLLAMA_MODEL", "tiny")
GATE = """
[engine]
kind = "ollama"
[engine.ollama]
base_url = "{url}"
boundary = "local"
[[engine.ollama.models]]
model = "{model}"
max_seqs = 1
"""
# Of those that want an engine that does as it is told, these do with one that just talks.
ALSO = {"ollama_abort", "openai_abort", "openai_timeout"}


@pytest.fixture(scope="module")
def url(request, tmp_path_factory) -> Iterator[str]:
    """A user's own server, or the prepared one."""
    own = os.environ.get("ONEGATE_OLLAMA_URL")
    if own is not None:
        yield own
        return
    home = request.getfixturevalue("live_directory") / "ollama"
    prepare(home)
    server = OllamaServer(home, tmp_path_factory.mktemp("ollama"))
    yield server.url
    server.close()


@pytest.fixture(scope="module")
def rig(url, tmp_path_factory, timeout_factor) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("proxied")
    gate = GATE.format(url=url, model=MODEL) + CLASSES
    with proxied(directory, gate, 120 * timeout_factor, upstream=url, more=MANAGEMENT) as found:
        close_batch(found)
        yield found


def ask(rig: Rig, path: str, body: bytes | None = None, *, method: str | None = None) -> bytes:
    request = urllib.request.Request(rig.url + path, body, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def names(rig: Rig) -> set[str]:
    return {entry["name"] for entry in json.loads(ask(rig, "/api/tags"))["models"]}


@pytest.mark.parametrize("program", ["programs.py", "programs.mjs"])
def test_published_clients(rig, client_python, client_node, program):
    wanted = cases(program, without="+*") | (cases(program) & ALSO)
    command = [client_python, HERE / program]
    if program.endswith(".mjs"):
        command = ["node", client_node / program]
    assert ran(rig, *command, rig.url, MODEL, *wanted) == wanted


def test_models_come_and_go_as_ollama_has_it(rig):
    assert ask(rig, "/") == b"Ollama is running"
    body = {"source": MODEL, "destination": "copied"}
    ask(rig, "/api/copy", json.dumps(body).encode())
    assert "copied:latest" in names(rig)
    ask(rig, "/api/delete", b'{"model": "copied"}', method="DELETE")
    assert "copied:latest" not in names(rig)


def test_a_file_is_carried_to_ollama(rig):
    data = os.urandom(8 << 20)
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        ask(rig, f"/api/blobs/{digest}", method="HEAD")
    ask(rig, f"/api/blobs/{digest}", data)
    ask(rig, f"/api/blobs/{digest}", method="HEAD")


def test_what_cannot_be_pulled_says_so_in_the_stream(rig):
    """There is no network here: Ollama's own error is the last line."""
    said = ask(rig, "/api/pull", b'{"model": "127.0.0.1:1/nothing/there", "insecure": true}')
    assert "error" in json.loads(said.splitlines()[-1])
