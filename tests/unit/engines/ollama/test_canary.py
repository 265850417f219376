"""Does a token show that a seat is free?"""

import asyncio
import json

import pytest
from tests.unit.engines.ollama.conftest import failed

from onegate.config import OllamaModel
from onegate.engines.base import EngineMalformed
from onegate.engines.http.link import HttpStatus
from onegate.engines.ollama.canary import has_free_seat
from onegate.engines.ollama.model import Facts, Known

TOKEN = json.dumps({"response": "a", "done": False}).encode() + b"\n"
DONE = b'\n{"response":"","done":true,"done_reason":"length"}\n'


def known(max_seqs=1, capabilities=("completion",)):
    found = Known(OllamaModel(model="m", max_seqs=max_seqs))
    found.facts = Facts(digest="d", capabilities=frozenset(capabilities))
    return found


def free(link, model, others=0, within_s=5.0):
    return has_free_seat(link, model, None, others=others, within_s=within_s)


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_token_is_enough_for_one_seat(link):
    link.streams = [[TOKEN[:5], TOKEN[5:], DONE]]
    assert await free(link, known())
    ((path, body),) = link.asked
    assert path == "/api/generate"
    assert body["options"] == {"num_ctx": 4096, "num_predict": 1, "temperature": 0}
    assert body["prompt"]


async def test_an_end_without_text_is_a_token_too(link):
    link.streams = [[DONE]]
    assert await free(link, known())


async def test_no_token_in_time_is_none(link):
    link.streams = [[asyncio.Event()]]
    assert not await free(link, known(), within_s=0.0)


async def test_an_answer_is_read_to_its_end(link):
    """One that is left at its last token can cost Ollama the seat."""
    end, rest = asyncio.Event(), asyncio.Event()
    link.streams = [[TOKEN, end, DONE, rest]]
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(free(link, known()))
        for event in (end, rest):
            await settled()
            assert not asking.done()
            event.set()
    assert asking.result()


async def test_what_has_proven_it_and_does_not_end_has_proven_it(link):
    link.streams = [[TOKEN, asyncio.Event()]]
    assert await free(link, known(), within_s=0.05)


async def test_beside_others_as_many_are_asked_as_there_are_seats_left(link):
    together = asyncio.Event()
    link.streams = [[TOKEN, together, DONE], [TOKEN, together, DONE]]
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(free(link, known(max_seqs=3), others=1))
        await settled()
        together.set()
    assert asking.result()
    assert len(link.asked) == 2
    assert all(body["options"]["num_predict"] > 1 for _, body in link.asked)


async def test_one_after_the_other_is_not_at_the_same_time(link):
    turn = asyncio.Event()
    link.streams = [[TOKEN * 32, DONE], [turn, TOKEN * 32, DONE]]
    async with asyncio.TaskGroup() as tasks:
        asking = tasks.create_task(free(link, known(max_seqs=2)))
        await settled()
        turn.set()
    assert not asking.result()


async def test_one_that_may_have_ended_meanwhile_does_not_count(link):
    late = asyncio.Event()
    link.streams = [[TOKEN * 20, asyncio.Event()], [late, TOKEN, asyncio.Event()]]
    asking = free(link, known(max_seqs=2), within_s=0.05)
    late.set()
    assert not await asking


async def test_errors_are_raised(link):
    link.streams = [failed(503, "busy")]
    with pytest.raises(HttpStatus):
        await free(link, known())
    link.streams = [[b'{"error":"runner died"}\n']]
    with pytest.raises(EngineMalformed, match="runner died"):
        await free(link, known())


async def test_a_model_that_embeds_is_asked_for_a_vector(link):
    link.documents["/api/embed"] = {"embeddings": [[1.0]]}
    assert await free(link, known(capabilities=("embedding",)))
    assert link.paths() == ["/api/embed"]
