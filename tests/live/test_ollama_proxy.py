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
from tests.live.ollama_server import OllamaServer

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
    home = request.getfixturevalue("ollama_home")
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


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
BOUND = {"options": {"num_predict": 4, "temperature": 0, "num_ctx": 4096}}
# Of its last piece; newer releases say it once, in the first.
EMPTY_DELTA = {".choices[].delta.role: str", ".choices[].delta.content: str"}
SHAPES = {
    "/api/chat": (CHAT | BOUND, set()),
    "/api/generate": ({"prompt": "Hi"} | BOUND, set()),
    "/v1/chat/completions": (CHAT | {"max_tokens": 4, "temperature": 0}, EMPTY_DELTA),
    "/v1/completions": ({"prompt": "Hi", "max_tokens": 4, "temperature": 0}, set()),
}


def paths(value: object, at: str = "") -> set[str]:
    """Every place of a document, with the kind of what is there."""
    match value:
        case dict():
            return {found for key, one in value.items() for found in paths(one, f"{at}.{key}")}
        case [first, *_]:
            return paths(first, f"{at}[]")
        case bool():
            return {f"{at}: bool"}
        case int() | float():
            return {f"{at}: number"}
        case None:
            return set()
    return {f"{at}: {type(value).__name__}"}


def posted(url: str, path: str, **given: object) -> list[object]:
    """The documents of an answer, whether there is one or a stream of them."""
    body = json.dumps({"model": MODEL, **given}).encode()
    with urllib.request.urlopen(url + path, body, timeout=120) as answer:
        lines = [line.removeprefix(b"data: ") for line in answer.read().splitlines() if line]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", SHAPES)
def test_an_answer_has_every_place_that_ollamas_has(rig, url, path, stream):
    given, without = SHAPES[path]
    bare, ours = (posted(where, path, stream=stream, **given) for where in (url, rig.url))
    assert paths(bare[0]) - paths(ours[0]) <= without
    assert paths(bare[-1]) - paths(ours[-1]) <= without


@pytest.mark.parametrize("path", ["/api/tags", "/api/version", "/v1/models", f"/v1/models/{MODEL}"])
def test_a_question_has_ollamas_own_answer(rig, url, path):
    with urllib.request.urlopen(url + path, timeout=60) as answer:
        assert in_one_order(json.loads(ask(rig, path))) == in_one_order(json.loads(answer.read()))


def in_one_order(answer: object) -> object:
    """Ollama lists models that were made within one second in an order of its mood."""
    if not isinstance(answer, dict):
        return answer
    return {
        key: sorted(value, key=json.dumps) if isinstance(value, list) else value
        for key, value in answer.items()
    }


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/api/chat", CHAT | {"model": "nothing"}),
        ("/api/generate", {"model": "nothing", "prompt": "Hi"}),
        ("/v1/chat/completions", CHAT | {"model": "nothing"}),
        ("/api/chat", CHAT | {"model": 5}),
        ("/api/show", {"model": "nothing"}),
    ],
)
def test_an_error_has_the_status_and_the_shape_of_ollamas(rig, url, path, given):
    found = []
    for where in (url, rig.url):
        with pytest.raises(urllib.error.HTTPError) as error:
            posted(where, path, **given)
        found.append((error.value.code, json.loads(error.value.read())))
    (bare_status, bare), (status, ours) = found
    assert status == bare_status
    assert paths(bare) <= paths(ours)
