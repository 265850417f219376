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


async def test_beside_others_as_many_are_asked_as_there_are_seats_left(link):
    link.streams = [[TOKEN, asyncio.Event()], [TOKEN, asyncio.Event()]]
    assert await free(link, known(max_seqs=3), others=1)
    assert len(link.asked) == 2
    assert all(body["options"]["num_predict"] > 1 for _, body in link.asked)


async def test_one_after_the_other_is_not_at_the_same_time(link):
    link.streams = [[TOKEN * 64, DONE], [asyncio.Event()]]
    assert not await free(link, known(max_seqs=2))


async def test_one_that_may_have_ended_meanwhile_does_not_count(link):
    late = asyncio.Event()
    link.streams = [[TOKEN * 40, asyncio.Event()], [late, TOKEN, asyncio.Event()]]
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
