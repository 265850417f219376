"""/v1/responses and /v1/messages: proxy, gate, and a stand-in in Ollama's place."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from tests.contrib.ollama_proxy.rig import Rig, proxied
from tests.contrib.ollama_proxy.stand_in import StandIn, in_a_thread

from onegate import AsyncClient, Client
from onegate.clock import wall_ms

WITHIN_S = 30.0
# One seat, so that who holds it is seen by who waits.
GATE = """
[engine]
kind = "scripted"
[[engine.scripted.pools]]
model = "tiny"
max_seqs = 1
context_tok = 4096
[[class]]
name = "interactive"
max_tokens_default = 64
max_tokens_max = 128
safety_timeout_s = 2
behaviour_live = "none"
behaviour_starts_per_min = "none"
[[class]]
name = "loop"
behaviour_live = "none"
behaviour_starts_per_min = "none"
"""
KINDS = {
    "/v1/responses": {"model": "tiny", "input": "Hi", "stream": True},
    "/v1/messages": {
        "model": "tiny",
        "max_tokens": 16,
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
    },
}
BOUNDS = {"/v1/responses": "max_output_tokens", "/v1/messages": "max_tokens"}


@pytest.fixture(scope="module")
def stand_in() -> Iterator[StandIn]:
    with in_a_thread() as running:
        yield running


@pytest.fixture(scope="module")
def rig(stand_in, tmp_path_factory, timeout_factor) -> Iterator[Rig]:
    directory = tmp_path_factory.mktemp("leased")
    with proxied(directory, GATE, 60 * timeout_factor, upstream=stand_in.url) as found:
        yield found


@pytest.fixture(scope="module")
def padded(stand_in, tmp_path_factory, timeout_factor) -> Iterator[Rig]:
    """One whose clients hang up where nothing comes; `batch` is refused early instead."""
    directory = tmp_path_factory.mktemp("padded")
    gate = GATE.replace("safety_timeout_s = 2", "safety_timeout_s = 20")
    more = "[class.interactive]\npad_after_s = 0.2\n"
    with proxied(directory, gate, 60 * timeout_factor, upstream=stand_in.url, more=more) as found:
        yield found


@pytest.fixture(autouse=True)
def well_behaved(stand_in):
    stand_in.fault, stand_in.pause_s = "", 0.0
    stand_in.seen.clear()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as made, asyncio.timeout(WITHIN_S):
        yield made


async def ask(session, rig, path, **given):
    async with session.post(rig.url + path, json=KINDS[path] | given) as answer:
        return answer.status, answer.headers, (await answer.read()).decode()


@pytest.mark.parametrize("path", KINDS)
async def test_a_stream_is_carried_and_what_it_used_is_told(rig, stand_in, session, path):
    with Client(rig.daemon.socket) as gate:
        before = gate.usage().rows
    status, headers, said = await ask(session, rig, path)
    assert status == 200
    assert headers["Content-Type"].startswith("text/event-stream")
    assert "error" not in said
    await asyncio.to_thread(rig.wait_idle)
    with Client(rig.daemon.socket) as gate:
        after = gate.usage().rows
    assert sum(r.output_tok for r in after) - sum(r.output_tok for r in before) == 2
    assert sum(r.prompt_tok for r in after) - sum(r.prompt_tok for r in before) == 7


@pytest.mark.parametrize("path", KINDS)
async def test_a_document_is_carried(rig, session, path):
    status, headers, said = await ask(session, rig, path, stream=False)
    assert status == 200
    assert headers["Content-Type"].startswith("application/json")
    assert "Hello there" in said


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize(("asked", "sent"), [(None, 64), (100, 100), (5000, 128)])
async def test_the_answer_is_bounded_by_the_class(rig, stand_in, session, path, asked, sent):
    await ask(session, rig, path, **{BOUNDS[path]: asked})
    assert json.loads(stand_in.asked(path)[-1].body)[BOUNDS[path]] == sent


@pytest.mark.parametrize("path", KINDS)
async def test_a_stream_that_just_stops_ends_with_an_error(rig, stand_in, session, path):
    stand_in.fault = "no-end"
    _, _, said = await ask(session, rig, path)
    last = json.loads(said.strip().rpartition("data: ")[2])
    assert "before its end" in last["error"]["message"]


async def test_what_was_refused_is_passed_on_and_costs_nothing(rig, stand_in, session):
    stand_in.fault = "refused"
    status, _, said = await ask(session, rig, "/v1/responses")
    assert status == 400
    assert json.loads(said)["error"]["message"] == "bad input"
    await asyncio.to_thread(rig.wait_idle)


@pytest.mark.parametrize("path", KINDS)
async def test_it_waits_its_turn_and_others_wait_for_it(rig, stand_in, session, path):
    stand_in.fault = "hang"
    first = await session.post(rig.url + path, json=KINDS[path])
    await first.content.readline()
    async with AsyncClient(rig.daemon.socket) as gate:
        status = await gate.status()
        assert (status.gate.in_flight, status.pools[0].seats_used) == (1, 1)
    first.close()
    await asyncio.to_thread(rig.wait_idle)
    while not stand_in.asked(path)[0].left:  # noqa: ASYNC110  it happens in the stand-in
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("path", KINDS)
async def test_who_leaves_before_the_first_byte_has_left(rig, stand_in, session, path):
    stand_in.fault = "silent"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await ask(session, rig, path)
    await asyncio.to_thread(rig.wait_idle)
    while not stand_in.asked(path)[0].left:  # noqa: ASYNC110  it happens in the stand-in
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("path", KINDS)
async def test_one_that_takes_longer_than_any_honest_answer_is_ended(rig, stand_in, session, path):
    stand_in.fault = "hang"
    status, _, said = await ask(session, rig, path)
    assert status == 200
    last = json.loads(said.strip().rpartition("data: ")[2])
    assert last["error"]["message"]
    stand_in.fault = "silent"
    status, _, said = await ask(session, rig, path)
    assert status == 504
    assert json.loads(said)["error"]["message"]
    await asyncio.to_thread(rig.wait_idle)


async def test_what_is_closed_is_refused_in_the_words_of_its_api(rig, session):
    with Client(rig.daemon.socket) as admin:
        admin.pause("batch", until=wall_ms() / 1000 + 600)
    headers = {"X-Onegate-Class": "batch"}
    for path, kind in (("/v1/responses", "server_error"), ("/v1/messages", "overloaded_error")):
        async with session.post(rig.url + path, json=KINDS[path], headers=headers) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert (await answer.json())["error"]["type"] == kind
    with Client(rig.daemon.socket) as admin:
        admin.unpause("batch")


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"model": "nothing"}, 404),
        ({"model": "gpt-oss:cloud"}, 403),
        ({"tools": [{"type": "web_search"}]}, 403),
        ({"MODEL": "gpt-oss:cloud"}, 400),
        ({"model": 5}, 400),
    ],
)
async def test_what_is_not_carried(rig, stand_in, session, path, given, status):
    found, _, said = await ask(session, rig, path, **given)
    assert found == status
    assert json.loads(said)["error"]["message"]
    assert stand_in.asked(path) == []


@asynccontextmanager
async def seat_taken(rig) -> AsyncIterator[AsyncClient]:
    """Whoever asks in here waits."""
    async with AsyncClient(rig.daemon.socket) as gate:
        prompt = "a story [[tokens:2000]] [[step-ms:100]]"
        async with gate.stream(prompt, max_tokens=100) as running:
            async for _ in running:
                yield gate
                break


async def failed(answer: aiohttp.ClientResponse, stream: bool) -> str:
    """All of an answer that failed. A whole one has no end, so that nobody takes it for one."""
    said = b""
    try:
        async for piece in answer.content.iter_any():
            said += piece
    except aiohttp.ClientPayloadError:
        assert not stream
    else:
        assert stream
    finally:
        answer.close()
    return said.decode()


def told(said: str, stream: bool) -> str:
    """The sentence of an error at the end of an answer."""
    document = said.rpartition("data: ")[2] if stream else said
    return json.loads(document)["error"]["message"]


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_wait_for_the_turn_is_padded(padded, session, path, stream):
    body = KINDS[path] | {"stream": stream}
    async with seat_taken(padded) as gate:
        # Its headers are there, and it still waits.
        answer = await session.post(padded.url + path, json=body)
        assert (await gate.status()).gate.queued == 1
    said = (await answer.read()).decode()
    assert answer.status == 200
    assert said.startswith(": waiting\n\n" if stream else " ")
    assert answer.content_type == ("text/event-stream" if stream else "application/json")
    if stream:
        assert said.rstrip().rpartition("data: ")[2].startswith('{"type": "')
        assert "error" not in said
    else:
        assert json.loads(said)["id"]
    await asyncio.to_thread(padded.wait_idle)


@pytest.mark.parametrize("path", KINDS)
async def test_a_silent_ollama_is_padded_too_and_leaving_ends_it(padded, stand_in, session, path):
    stand_in.fault = "silent"
    async with session.post(padded.url + path, json=KINDS[path]) as answer:
        assert answer.status == 200
        assert await answer.content.readline() == b": waiting\n"
        answer.close()
    await asyncio.to_thread(padded.wait_idle)
    while not stand_in.asked(path)[0].left:  # noqa: ASYNC110  it happens in the stand-in
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("path", KINDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_what_fails_behind_padding_is_said_in_the_answer(
    padded, stand_in, session, path, stream
):
    body = KINDS[path] | {"stream": stream}
    async with seat_taken(padded):
        stand_in.fault = "refused"
        refused = await session.post(padded.url + path, json=body)
    said = await failed(refused, stream)
    assert (refused.status, told(said, stream)) == (200, "bad input")
    async with seat_taken(padded):
        ended = await session.post(padded.url + path, json=body)
        with Client(padded.daemon.socket) as admin:
            (waiting,) = (one for one in admin.requests() if one.state == "queued")
            admin.cancel_any(waiting.rid)
    said = await failed(ended, stream)
    assert ended.status == 200
    assert told(said, stream)
    assert len(stand_in.asked(path)) == 1
    await asyncio.to_thread(padded.wait_idle)


async def test_what_is_not_to_wait_is_not_padded(padded, session):
    async with seat_taken(padded):
        headers = {"X-Onegate-Class": "batch"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await session.post(
                    padded.url + "/v1/messages", json=KINDS["/v1/messages"], headers=headers
                )
    await asyncio.to_thread(padded.wait_idle)


async def test_without_an_ollama_it_says_so(tmp_path, timeout_factor, session):
    with proxied(tmp_path, GATE, 60 * timeout_factor) as alone:
        status, _, said = await ask(session, alone, "/v1/responses")
        assert status == 400
        assert "no Ollama" in json.loads(said)["error"]["message"]
