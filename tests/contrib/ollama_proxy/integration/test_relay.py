"""Management over real connections: client, relay, a stand-in for Ollama."""

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from tests.contrib.ollama_proxy.stand_in import MIB, StandIn, served, standing_in

from onegate.tasks import Tasks
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.management import Management
from onegate_ollama_proxy.members import Members
from onegate_ollama_proxy.refused import Refused
from onegate_ollama_proxy.upstream import Upstream

WITHIN_S = 20.0


class Somebody:
    """A client whose user is not known."""

    uid = None
    name = "unknown"


class Front:
    """The management routes on a port of their own, and a client of them."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def ask(self, method: str, path: str, **given):
        """(status, headers, body)"""
        async with self.session.request(method, self.url + path, **given) as answer:
            return answer.status, answer.headers, await answer.read()


@asynccontextmanager
async def front(
    url: str, *, everybody: bool = True, body_timeout_s: float = WITHIN_S
) -> AsyncIterator[Front]:
    upstream = Upstream(url)
    boundary = Boundary(upstream=upstream, allow_remote=False)
    members = Members("nobody", everybody=everybody)
    management = Management(
        upstream, boundary=boundary, members=members, at_once=16, body_timeout_s=body_timeout_s
    )

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        for route in management.routes():
            is_prefix = route.path.endswith("/") and route.path != "/"
            fits = request.path.startswith(route.path) if is_prefix else request.path == route.path
            if route.method == request.method and fits:
                try:
                    return await route.answer(request, Somebody())
                except Refused as error:
                    return web.Response(status=error.no.status, text=error.no.sentence)
        return web.Response(status=404)

    try:
        async with (
            served(answer) as port,
            aiohttp.ClientSession() as session,
            asyncio.timeout(WITHIN_S),
        ):
            yield Front(session, f"http://127.0.0.1:{port}")
    finally:
        await management.aclose()
        await upstream.aclose()


@pytest.fixture
async def ollama() -> AsyncIterator[StandIn]:
    async with standing_in() as stand_in:
        yield stand_in


async def until(true) -> None:
    while not true():  # noqa: ASYNC110  it happens in the server
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/", b"Ollama is running"),
        ("HEAD", "/", b""),
        ("GET", "/api/version", b'{"version": "0.33.0"}'),
        ("HEAD", "/api/version", b""),
    ],
)
async def test_probes_are_answered_as_ollama_does(ollama, method, path, body):
    async with front(ollama.url) as there:
        status, headers, said = await there.ask(method, path)
        assert (status, said) == (200, body)
        assert "Age" not in headers


async def test_probes_are_answered_from_before_where_ollama_is_stuck(ollama, monkeypatch):
    monkeypatch.setattr("onegate_ollama_proxy.probes._WITHIN_S", 0.1)
    async with front(ollama.url) as there:
        _, _, before = await there.ask("GET", "/api/tags")
        ollama.stuck = True
        status, headers, after = await there.ask("GET", "/api/tags")
        assert (status, after) == (200, before)
        assert int(headers["Age"]) >= 0
        assert (await there.ask("GET", "/api/version"))[0] == 504


@pytest.mark.parametrize("path", ["/", "/api/tags"])
async def test_an_ollama_that_is_not_there_is_not_made_up(path):
    async with standing_in() as stand_in, front(stand_in.url) as there:
        assert (await there.ask("GET", path))[0] == 200
    async with front(stand_in.url) as there:
        assert (await there.ask("HEAD", path))[0] == 503
        status, _, said = await there.ask("GET", path)
        assert status == 503
        assert b"is Ollama running there?" in said


async def test_a_pull_shows_its_progress_as_it_goes(ollama):
    ollama.pause_s = 0.05
    async with (
        front(ollama.url) as there,
        there.session.post(there.url + "/api/pull", json={"model": "x"}) as answer,
    ):
        assert answer.headers["Content-Type"] == "application/x-ndjson"
        first = await answer.content.readline()
        assert json.loads(first) == {"status": "pulling manifest"}
        rest = [json.loads(line) async for line in answer.content]
    assert rest[-1] == {"status": "success"}
    assert json.loads(ollama.asked("/api/pull")[0].body) == {"model": "x"}


async def test_ollamas_own_error_in_a_stream_is_passed_on(ollama):
    ollama.fault = "error"
    async with front(ollama.url) as there:
        _, _, said = await there.ask("POST", "/api/pull", json={"model": "x"})
    assert json.loads(said.splitlines()[-1])["error"].startswith("pull model manifest")


async def test_a_stream_that_is_lost_between_two_lines_ends_with_an_error_line(ollama):
    ollama.fault = "cut"
    async with front(ollama.url) as there:
        _, _, said = await there.ask("POST", "/api/pull", json={"model": "x"})
    assert "mid-answer" in json.loads(said.splitlines()[-1])["error"]


async def test_a_stream_that_is_lost_in_a_line_is_cut(ollama):
    ollama.fault = "half-line"
    async with front(ollama.url) as there:
        with pytest.raises(aiohttp.ClientError):
            await there.ask("POST", "/api/pull", json={"model": "x"})


async def test_who_hangs_up_ends_the_pull(ollama):
    ollama.steps, ollama.pause_s = 10_000, 0.01
    async with front(ollama.url) as there:
        answer = await there.session.post(there.url + "/api/pull", json={"model": "x"})
        await answer.content.readline()
        answer.close()
        await until(lambda: ollama.asked("/api/pull")[0].left)


async def test_nothing_of_the_client_goes_on_but_what_has_to(ollama):
    headers = {
        "Authorization": "Bearer secret",
        "Cookie": "a=b",
        "Origin": "http://localhost:3000",
        "Referer": "http://localhost:3000/",
        "X-Forwarded-For": "1.2.3.4",
        "X-Onegate-Class": "batch",
        "Connection": "X-Hop",
        "X-Hop": "1",
        "TE": "trailers",
        "User-Agent": "GitHubCopilotChat/1",
        "Host": "evil.example",
    }
    async with front(ollama.url) as there:
        await there.ask("POST", "/api/copy", json={"source": "a"}, headers=headers)
    (seen,) = ollama.asked("/api/copy")
    assert seen.headers["User-Agent"] == "GitHubCopilotChat/1"
    assert seen.headers["Host"] == f"127.0.0.1:{ollama.port}"
    assert seen.headers["Connection"] == "close"
    allowed = {"Host", "Connection", "Accept", "Accept-Encoding", "User-Agent"}
    assert set(seen.headers) <= allowed | {"Content-Type", "Content-Length"}


async def test_a_packed_body_arrives_unpacked(ollama):
    body = gzip.compress(b'{"source":"a","destination":"b"}')
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with front(ollama.url) as there:
        assert (await there.ask("POST", "/api/copy", data=body, headers=headers))[0] == 200
    (seen,) = ollama.asked("/api/copy")
    assert seen.body == b'{"source":"a","destination":"b"}'
    assert "Content-Encoding" not in seen.headers


@pytest.mark.parametrize("path", ["/api/copy", "/api/show"])
async def test_a_body_that_cannot_be_unpacked_is_the_clients_fault(ollama, path):
    headers = {"Content-Encoding": "gzip"}
    async with front(ollama.url) as there:
        status, _, said = await there.ask("POST", path, data=b"no gzip", headers=headers)
    assert status == 400
    assert b"the body cannot be read" in said


@pytest.mark.parametrize("path", ["/api/pull", "/api/show"])
async def test_a_body_that_stops_in_the_middle_holds_no_place(ollama, path):
    async def half() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with front(ollama.url, body_timeout_s=0.1) as there:
        status, _, said = await there.ask("POST", path, data=half())
    assert status == 408
    assert b"has not come within" in said
    assert not any(seen.whole for seen in ollama.asked(path))


async def test_a_body_packed_otherwise_is_refused(ollama):
    async with front(ollama.url) as there:
        headers = {"Content-Encoding": "snappy"}
        assert (await there.ask("POST", "/api/copy", data=b"x", headers=headers))[0] == 501
    assert ollama.seen == []


async def test_a_blob_goes_through_as_it_is(ollama):
    data = bytes(range(256)) * 4096 * 16
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    async with front(ollama.url) as there:
        assert (await there.ask("HEAD", f"/api/blobs/{digest}"))[0] == 404
        assert (await there.ask("POST", f"/api/blobs/{digest}", data=io.BytesIO(data)))[0] == 201
        assert (await there.ask("HEAD", f"/api/blobs/{digest}"))[0] == 200
        wrong = f"sha256:{'0' * 64}"
        assert (await there.ask("POST", f"/api/blobs/{wrong}", data=io.BytesIO(data)))[0] == 400
    assert ollama.blobs == {digest: 16 * MIB}


async def test_a_blob_is_taken_no_faster_than_ollama_takes_it(ollama):
    ollama.pause_s = 60.0  # after the first piece
    sent = 0

    async def pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(256):
            yield b"x" * MIB
            sent += 1

    async with front(ollama.url) as there:
        path = f"/api/blobs/sha256:{'0' * 64}"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await there.ask("POST", path, data=pieces())
        # What lies in the buffers of two hops; without back pressure it is all of it.
        assert 0 < sent < 64


async def test_a_large_answer_is_read_no_faster_than_the_client_reads_it(ollama):
    ollama.big = 128 * MIB
    async with front(ollama.url) as there:
        answer = await there.session.post(
            there.url + "/api/show", json={"model": "tiny"}, read_bufsize=1024
        )
        assert answer.status == 200
        await asyncio.sleep(0.5)
        assert not ollama.seen[-1].said, "it is not read to its end while nobody reads it here"
        answer.close()
        await until(lambda: ollama.seen[-1].left)


async def test_changes_are_refused_before_anything_is_sent(ollama):
    async with front(ollama.url, everybody=False) as there:
        assert (await there.ask("POST", "/api/pull", json={"model": "x"}))[0] == 403
    assert ollama.seen == []


async def test_after_a_change_nobody_is_told_what_was_so_before(ollama, monkeypatch):
    monkeypatch.setattr("onegate_ollama_proxy.probes._WITHIN_S", 0.1)
    async with front(ollama.url) as there:
        assert (await there.ask("GET", "/api/tags"))[0] == 200
        await there.ask("POST", "/api/copy", json={"source": "a", "destination": "b"})
        ollama.stuck = True
        assert (await there.ask("GET", "/api/tags"))[0] == 504


async def test_an_answer_that_is_no_200_is_passed_on(ollama):
    async with front(ollama.url) as there:
        status, headers, said = await there.ask("POST", "/api/show", json={"model": "gone"})
    assert status == 404
    assert json.loads(said) == {"error": "model 'gone' not found"}
    assert headers["Content-Type"].startswith("application/json")


async def test_so_many_changes_at_a_time_and_no_more_and_nobody_else_waits(ollama, monkeypatch):
    monkeypatch.setattr("onegate_ollama_proxy.management._CHANGES_AT_ONCE", 2)
    monkeypatch.setattr("onegate_ollama_proxy.management._CHANGES_EACH", 3)
    ollama.steps, ollama.pause_s = 10_000, 0.01
    async with front(ollama.url) as there:
        tasks = Tasks(lambda name, error: None)
        for i in range(3):
            tasks.spawn(there.ask("POST", "/api/pull", json={}), name=f"pull {i}")
        await until(lambda: len(ollama.asked("/api/pull")) == 2)
        status = 0
        while status != 429:
            # One that waits in the third's place leaves it again.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    status, _, said = await there.ask("POST", "/api/pull", json={})
        assert b"you have 3 requests" in said
        assert (await there.ask("GET", "/api/tags"))[0] == 200
        assert (await there.ask("POST", "/api/show", json={"model": "tiny"}))[0] == 200
        assert len(ollama.asked("/api/pull")) == 2
        await tasks.aclose()
