"""Proxy and gate as processes: who is asking, who has gone, and how each no arrives."""

import contextlib
import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contrib.ollama_proxy.rig import Rig, proxied, speaks_for_others
from tests.integration.conftest import running_daemon

from onegate import Client

WITHIN_S = 30

# Two seats, so that a third request waits.
GATE = """
[engine]
kind = "scripted"
[[engine.scripted.pools]]
model = "tiny"
max_seqs = 2
context_tok = 600
a_ms = 5
[[class]]
name = "interactive"
max_tokens_default = 100
max_tokens_max = 300
behaviour_live = "none"
behaviour_starts_per_min = "none"
"""
PROXY = """
max_body_bytes = 100000
drain_timeout_s = 2
[models]
gpt = "tiny"
[class.interactive]
pad_after_s = 0.5
"""
HI = "Hi [[tokens:3]]"
# It runs until somebody stops it.
LONG = "a story [[tokens:250]] [[step-ms:200]]"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, timeout_factor: float) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("proxy")
    with proxied(directory, GATE, 30 * timeout_factor, more=PROXY) as rig:
        yield rig


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "rig" in request.fixturenames:
        request.getfixturevalue("rig").wait_idle()


def wait(rig: Rig, true: Callable[[Any], bool]) -> None:
    """Until the gate says so."""
    with Client(rig.daemon.socket) as gate:
        rig.daemon.wait(lambda: true(gate.status()) or None)


def connect(rig: Rig) -> http.client.HTTPConnection:
    host, _, port = rig.url.removeprefix("http://").partition(":")
    return http.client.HTTPConnection(host, int(port), timeout=WITHIN_S)


def chat(prompt: str = HI, **more: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": prompt}]} | more


def ask(
    rig: Rig, body: Any = None, path: str = "/api/chat", method: str = "POST", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """One request on a connection of its own."""
    connection = connect(rig)
    with contextlib.closing(connection):
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer, answer.read()


def begun(rig: Rig, body: Any) -> socket.socket:
    """A connection on which something was asked, and nothing read."""
    connection = connect(rig)
    connection.request("POST", "/api/chat", json.dumps(body).encode())
    assert connection.sock is not None
    return connection.sock


# --- answers --------------------------------------------------------------------------------------


def test_a_stream_of_lines(rig: Rig) -> None:
    answer, data = ask(rig, chat())
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-ndjson")
    lines = [json.loads(line) for line in data.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1]["eval_count"] == 3
    assert lines[-1]["done_reason"] in ("stop", "length")


def test_one_document(rig: Rig) -> None:
    answer, data = ask(rig, chat(stream=False))
    assert answer.headers["Content-Length"] == str(len(data))
    assert json.loads(data)["message"]["content"]
    assert b"Python" not in answer.headers["Server"].encode()


def test_many_requests_on_one_connection(rig: Rig) -> None:
    with contextlib.closing(connect(rig)) as connection:
        for stream in (True, False, True):
            connection.request("POST", "/api/chat", json.dumps(chat(stream=stream)))
            answer = connection.getresponse()
            assert answer.status == 200
            assert b'"done":true' in answer.read()
        connection.request("GET", "/api/version")
        assert connection.getresponse().read().startswith(b'{"version":"')


def test_two_requests_in_one_piece(rig: Rig) -> None:
    body = json.dumps(chat(stream=False)).encode()
    head = f"POST /api/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(rig.url.rpartition(":")[2]))) as sock:
        sock.settimeout(WITHIN_S)
        sock.sendall((head.encode() + body) * 2)
        got = b""
        while got.count(b'"done":true') < 2:
            piece = sock.recv(65_536)
            assert piece, got
            got += piece


def test_a_body_that_is_packed(rig: Rig) -> None:
    body = gzip.compress(json.dumps(chat(stream=False)).encode())
    with contextlib.closing(connect(rig)) as connection:
        connection.request("POST", "/api/chat", body, {"Content-Encoding": "gzip"})
        assert b'"done":true' in connection.getresponse().read()
        bomb = gzip.compress(b" " * 10_000_000)
        connection.request("POST", "/api/chat", bomb, {"Content-Encoding": "gzip"})
        assert connection.getresponse().status == 413


def test_a_client_that_waits_to_be_told_to_go_on(rig: Rig) -> None:
    body = json.dumps(chat(stream=False)).encode()
    head = (
        "POST /api/chat HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(rig.url.rpartition(":")[2]))) as sock:
        sock.settimeout(WITHIN_S)
        sock.sendall(head.encode())
        assert sock.recv(25, socket.MSG_WAITALL) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(body)
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_conversation_that_goes_on_by_its_context(rig: Rig) -> None:
    asked = {"model": "gpt", "prompt": HI, "stream": False}
    _, data = ask(rig, asked, "/api/generate")
    first = json.loads(data)
    _, data = ask(rig, asked | {"context": first["context"]}, "/api/generate")
    second = json.loads(data)
    assert second["prompt_eval_count"] > first["prompt_eval_count"]
    assert len(second["context"]) > len(first["context"])
    answer, _ = ask(rig, asked | {"context": [1, 2, 3]}, "/api/generate")
    assert answer.status == 400


def test_loading_and_unloading(rig: Rig) -> None:
    _, data = ask(rig, {"model": "tiny"}, "/api/generate")
    assert json.loads(data)["done_reason"] == "load"
    _, data = ask(rig, {"model": "tiny", "keep_alive": 0}, "/api/generate")
    assert json.loads(data)["done_reason"] == "unload"
    wait(rig, lambda status: status.pools[0].state == "cold")
    _, data = ask(rig, {"model": "tiny", "messages": []})
    assert json.loads(data)["done_reason"] == "load"
    wait(rig, lambda status: status.pools[0].state == "ready")


# --- saying no ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "path", "status", "words"),
    [
        (chat(model="huge"), "/api/chat", 404, "model 'huge' not found; there are: tiny, gpt"),
        (chat(model="x:cloud"), "/api/chat", 403, "ollama.com"),
        ({}, "/api/chat", 400, "model is required"),
        (None, "/api/chat", 400, "missing request body"),
        (chat(options={"num_ctx": 5000}), "/api/chat", 400, "num_ctx is 5000"),
        (chat(options={"temperature": 9}), "/api/chat", 400, "options.temperature"),
        (chat(think=True), "/api/chat", 400, "does not support thinking"),
        ({"model": "tiny", "input": "x"}, "/api/embed", 400, "makes no embeddings"),
        (chat("x" * 200_000), "/api/chat", 413, "longer than 100000 bytes"),
    ],
)
def test_each_no_is_one_line_that_says_what_to_do(
    rig: Rig, body: Any, path: str, status: int, words: str
) -> None:
    answer, data = ask(rig, body, path)
    assert answer.status == status
    assert words in json.loads(data)["error"]
    assert b"\n" not in data


def test_the_same_in_the_openai_dialect(rig: Rig) -> None:
    answer, data = ask(rig, chat(model="huge"), "/v1/chat/completions")
    error = json.loads(data)["error"]
    assert (answer.status, error["code"]) == (404, "model_not_found")
    assert answer.headers["x-should-retry"] == "false"


def test_not_now_says_when(rig: Rig) -> None:
    with Client(rig.daemon.socket) as admin:
        admin.pause("interactive", until=time.time() + 60)  # noqa: TID251  a Unix time
        try:
            answer, data = ask(rig, chat())
        finally:
            admin.unpause("interactive")
    assert answer.status == 503
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert int(answer.headers["retry-after-ms"]) <= 60_000
    said = json.loads(data)["error"]
    assert said.startswith("not now for class interactive (paused)")
    assert "come back in" in said


def test_after_the_first_byte_it_is_a_line_and_no_clean_end(rig: Rig) -> None:
    answer, data = ask(rig, chat("Hi [[tokens:9]] [[die:3]]"))
    lines = [json.loads(line) for line in data.splitlines()]
    assert answer.status == 200
    if "error" not in lines[-1]:
        pytest.fail(f"it ended cleanly: {lines[-1]}")
    assert not any(line.get("done") for line in lines)
    wait(rig, lambda status: status.pools[0].state == "ready")


def test_more_than_the_class_has_is_lowered_and_logged(rig: Rig) -> None:
    answer, _ = ask(rig, chat(stream=False, options={"num_predict": 5000, "mirostat": 1}))
    assert answer.status == 200
    assert "300 tokens, which is class interactive's maximum" in rig.log
    assert "options.mirostat is accepted and left out" in rig.log


def test_what_does_not_fit_is_cut_where_the_client_lets_it(rig: Rig) -> None:
    turns = [{"role": "user", "content": f"{i} " * 100} for i in range(20)]
    body = {"model": "tiny", "stream": False, "messages": [*turns, chat()["messages"][0]]}
    answer, data = ask(rig, body)
    assert answer.status == 200, data
    assert "messages did not fit" in rig.log
    answer, data = ask(rig, body | {"truncate": False})
    assert answer.status == 400
    answer, _ = ask(rig, body, **{"X-Onegate-Class": "batch"})
    assert answer.status == 400


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/api/nothing", {}, 404),
        ("GET", "/api/chat", {}, 405),
        ("POST", "/api/chat", {"Origin": "https://evil.example"}, 403),
        ("GET", "/api/tags", {"Origin": "https://evil.example"}, 403),
        ("OPTIONS", "/api/chat", {"Origin": "https://evil.example"}, 403),
        ("OPTIONS", "/api/chat", {"Origin": "http://localhost:3000"}, 204),
        ("GET", "/api/tags", {"Host": "evil.example"}, 403),
        ("GET", "/api/tags", {"Host": "localhost"}, 200),
    ],
)
def test_who_may_ask_at_all(
    rig: Rig, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    answer, _ = ask(rig, None, path, method, **headers)
    assert answer.status == status


def test_a_page_that_may_can_read_the_answer(rig: Rig) -> None:
    answer, _ = ask(rig, chat(), Origin="http://localhost:3000")
    assert answer.headers["Access-Control-Allow-Origin"] == "http://localhost:3000"


def test_what_is_no_http_shows_nothing_in_the_log(rig: Rig) -> None:
    with socket.create_connection(("127.0.0.1", int(rig.url.rpartition(":")[2]))) as sock:
        sock.settimeout(WITHIN_S)
        sock.sendall(b"secret words that are no request\r\n\r\n")
        while sock.recv(65_536):
            pass
    ask(rig, chat(), Authorization="Bearer secret words")
    assert "secret words" not in rig.log


# --- who has gone ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
def test_who_leaves_while_it_runs_costs_nothing_from_then_on(
    rig: Rig, stream: bool, reset: bool
) -> None:
    sock = begun(rig, chat(LONG, stream=stream))
    wait(rig, lambda status: status.gate.in_flight == 1)
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    rig.wait_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_while_it_waits_is_never_begun(rig: Rig, stream: bool) -> None:
    running = [begun(rig, chat(LONG)) for _ in range(2)]
    wait(rig, lambda status: status.gate.in_flight == 2)
    sock = begun(rig, chat(LONG, stream=stream))
    wait(rig, lambda status: status.gate.queued == 1)
    sock.close()
    wait(rig, lambda status: status.gate.queued == 0)
    for each in running:
        each.close()


def test_a_long_wait_is_kept_alive_with_blanks(rig: Rig) -> None:
    running = [begun(rig, chat(LONG)) for _ in range(2)]
    wait(rig, lambda status: status.gate.in_flight == 2)
    with contextlib.closing(connect(rig)) as connection:
        connection.request("POST", "/api/chat", json.dumps(chat(stream=False)))
        answer = connection.getresponse()  # its headers are there, and it still waits
        with Client(rig.daemon.socket) as gate:
            assert gate.status().gate.queued == 1
        for each in running:
            each.close()
        data = answer.read()
    assert answer.status == 200
    assert data.startswith(b" ")
    assert json.loads(data)["done"] is True


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [True, False])
def test_what_fails_behind_blanks_does_not_end_cleanly(rig: Rig, path: str, stream: bool) -> None:
    running = [begun(rig, chat(LONG)) for _ in range(2)]
    wait(rig, lambda status: status.gate.in_flight == 2)
    with contextlib.closing(connect(rig)) as connection:
        connection.request("POST", path, json.dumps(chat(stream=stream)))
        answer = connection.getresponse()
        with Client(rig.daemon.socket) as admin:
            (waiting,) = (one for one in admin.requests() if one.state == "queued")
            admin.cancel_any(waiting.rid)
        try:
            data = answer.read()
        except http.client.IncompleteRead as error:
            assert not stream
            data = error.partial
        else:
            assert stream
    assert answer.status == 200
    assert json.loads(data.rpartition(b"data: ")[2])["error"]
    for each in running:
        each.close()


# --- who is asking --------------------------------------------------------------------------------

# One request as another user; the standard library alone.
AS_USER = """
import encodings.idna, json, os, sys, urllib.request  # all of it before it is another user
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
turns = [{"role": "user", "content": "Hi [[tokens:2]]"}]
body = json.dumps({"model": "tiny", "messages": turns, "stream": False}).encode()
request = urllib.request.Request(sys.argv[1] + "/api/chat", body)
print(json.load(urllib.request.urlopen(request, timeout=60))["done"])
"""


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="not root: cannot be another user")
def test_each_user_is_counted_for_himself(rig: Rig) -> None:
    done = subprocess.run(
        [sys.executable, "-c", AS_USER, rig.url], capture_output=True, text=True, timeout=WITHIN_S
    )
    assert done.stdout == "True\n", done.stderr
    ask(rig, chat())
    with Client(rig.daemon.socket) as admin:
        rows = {row.principal for row in admin.usage().rows}
    assert {"uid:0", "uid:65534"} <= rows
    assert "client=uid:65534" in rig.log


def test_a_class_can_be_lowered_and_not_raised(rig: Rig) -> None:
    with Client(rig.daemon.socket) as admin:

        def admitted() -> dict[str, int]:
            return {class_.name: class_.admitted for class_ in admin.status().classes}

        before = admitted()
        ask(rig, chat(), **{"X-Onegate-Class": "batch"})
        ask(rig, chat(), **{"X-Onegate-Class": "loop", "User-Agent": "x"})
        ask(rig, chat(), **{"X-Onegate-Class": "royal"})
        ask(
            rig,
            chat(),
            **{"User-Agent": "ollama-python/0.6.3 (x)", "X-Onegate-Class": "interactive"},
        )
        after = admitted()
    grown = {name: after[name] - before[name] for name in after}
    assert grown == {"interactive": 1, "loop": 2, "batch": 1}
    assert "X-Onegate-Class:" in rig.log


def test_questions_do_not_wait_behind_answers(rig: Rig) -> None:
    running = [begun(rig, chat(LONG)) for _ in range(4)]
    wait(rig, lambda status: (status.gate.in_flight, status.gate.queued) == (2, 2))
    for path in ("/api/tags", "/api/version", "/api/ps", "/", "/v1/models"):
        answer, _ = ask(rig, None, path, "GET")
        assert answer.status == 200
    with Client(rig.daemon.socket) as gate:
        assert gate.status().gate.queued == 2
    for each in running:
        each.close()


# --- beginning and end ----------------------------------------------------------------------------


def test_it_stops_when_told_and_lets_an_answer_end(tmp_path: Path, timeout_factor: float) -> None:
    with proxied(tmp_path, GATE, 30 * timeout_factor, more=PROXY) as rig:
        with contextlib.closing(connect(rig)) as connection:
            body = chat("Hi [[tokens:20]] [[step-ms:20]]")
            connection.request("POST", "/api/chat", json.dumps(body))
            answer = connection.getresponse()
            rig.process.send_signal(signal.SIGTERM)
            assert b'"done":true' in answer.read()
        assert rig.process.wait(WITHIN_S) == 0
    assert "stopped" in rig.log


def test_what_does_not_end_in_time_is_ended(tmp_path: Path, timeout_factor: float) -> None:
    more = PROXY.replace("drain_timeout_s = 2", "drain_timeout_s = 0.2")
    with proxied(tmp_path, GATE, 30 * timeout_factor, more=more) as rig:
        sock = begun(rig, chat(LONG))
        wait(rig, lambda status: status.gate.in_flight == 1)
        rig.process.send_signal(signal.SIGTERM)
        assert rig.process.wait(WITHIN_S) == 0
        sock.close()
        rig.wait_idle()


def test_a_gate_that_is_not_there_is_said_and_not_made_up(
    tmp_path: Path, timeout_factor: float
) -> None:
    with proxied(tmp_path, GATE, 30 * timeout_factor, more=PROXY) as rig:
        assert rig.daemon.stop() == 0
        answer, data = ask(rig, chat())
        assert answer.status == 503
        assert "onegate is not there" in json.loads(data)["error"]
        answer, _ = ask(rig, None, "/", "HEAD")
        assert answer.status == 503


def test_a_gate_that_dies_in_mid_answer_ends_none_cleanly(
    tmp_path: Path, timeout_factor: float
) -> None:
    streams = ("/api/chat", "/v1/chat/completions")
    with proxied(tmp_path, GATE, 30 * timeout_factor, more=PROXY) as rig:
        with contextlib.ExitStack() as stack:
            answers = []
            for path in streams:
                connection = stack.enter_context(contextlib.closing(connect(rig)))
                connection.request("POST", path, json.dumps(chat(LONG, stream=True)))
                answers.append(connection.getresponse())
                assert answers[-1].readline()
            rig.daemon.process.kill()
            for answer in answers:
                said = answer.read()
                error = json.loads(said.rstrip().rpartition(b"\n")[2].removeprefix(b"data: "))
                assert "onegate is not there" in str(error["error"])
                assert b'"done":true' not in said
                assert b"[DONE]" not in said
        Path(rig.daemon.socket).unlink()  # it had no time for that


def test_a_gate_that_was_started_anew_is_found_on_the_same_connection(
    tmp_path: Path, timeout_factor: float
) -> None:
    with (
        proxied(tmp_path, GATE, 30 * timeout_factor, more=PROXY) as rig,
        contextlib.closing(connect(rig)) as connection,
    ):

        def asked() -> int:
            connection.request("POST", "/api/chat", json.dumps(chat(stream=False)))
            answer = connection.getresponse()
            answer.read()
            return answer.status

        assert asked() == 200
        assert rig.daemon.stop() == 0
        assert asked() == 503
        with running_daemon(tmp_path / "gate", GATE + speaks_for_others(), 30 * timeout_factor):
            assert asked() == 200
