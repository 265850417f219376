"""One answer: begun late, padded while it waits, and never ended cleanly when it failed."""

import asyncio
from typing import Any

import pytest

from onegate.protocol.errors import Reason
from onegate.tasks import Tasks
from onegate_ollama_proxy import answering as module
from onegate_ollama_proxy.answering import Answering
from onegate_ollama_proxy.refused import Refused, no

NO = no(Reason.ENGINE_FAILED, "it broke")


class Writer:
    content_type = "application/x-ndjson"
    document_type = "application/json"
    padding = b" "

    def chunk(self, chunk: Any) -> bytes:
        raise AssertionError("not asked here")

    end = whole = chunk

    def broken(self, no: Any) -> bytes:
        return b"broken: " + no.sentence.encode()


@pytest.fixture
async def tasks() -> Any:
    crashes: list[BaseException] = []
    made = Tasks(lambda name, error: crashes.append(error))
    yield made
    assert len(made) == 0
    assert crashes == []


def answering(asked: Any, tasks: Tasks, **fields: Any) -> Answering:
    fields = {"stream": True, "pad_after_s": None} | fields
    return Answering(asked.request, Writer(), tasks=tasks, **fields)


async def test_a_stream_begins_with_its_first_piece(asked: Any, tasks: Tasks) -> None:
    one = asked()
    async with answering(one, tasks) as answer:
        await answer.say(b"")
        assert (answer.begun, answer.spoken, one.written.status) == (False, False, "")
        await answer.say(b"a\n")
        assert (answer.begun, answer.spoken) == (True, True)
        response = await answer.end(b"b\n")
    assert response.status == 200
    assert one.written.headers["Content-Type"] == "application/x-ndjson"
    assert (one.written.body, one.written.ended) == (b"a\nb\n", True)


async def test_a_whole_answer_is_one_document_with_a_length(asked: Any, tasks: Tasks) -> None:
    one = asked()
    async with answering(one, tasks, stream=False) as answer:
        response = await answer.end(b"{}")
    assert response.content_length == 2
    assert response.content_type == "application/json"
    assert one.written.status == ""  # whoever called sends it


async def test_a_failure_before_anything_was_sent_is_the_callers(asked: Any, tasks: Tasks) -> None:
    async with answering(asked(), tasks) as answer:
        with pytest.raises(Refused) as error:
            await answer.fail(NO)
    assert error.value.no is NO


async def test_a_failure_after_that_is_said_in_the_answer(asked: Any, tasks: Tasks) -> None:
    one = asked()
    async with answering(one, tasks) as answer:
        await answer.say(b"a\n")
        await answer.fail(NO)
    assert (one.written.body, one.written.ended) == (b"a\nbroken: it broke", True)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_wait_is_padded(
    asked: Any, tasks: Tasks, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(module, "PAD_EVERY_S", 0.0)
    one = asked()
    async with answering(one, tasks, stream=stream, pad_after_s=0.0) as answer:
        await one.written.until_tried(3)
        # Headers and blanks are out, and nothing of the answer is.
        assert (answer.begun, answer.spoken) == (True, False)
        if stream:
            await answer.say(b"a\n")
        await answer.end(b"end")
        padded = one.written.body
        await asyncio.sleep(0.01)
    assert one.written.body == padded  # and no more from then on
    assert padded.strip() == (b"a\nend" if stream else b"end")
    kind = "application/x-ndjson" if stream else "application/json"
    assert one.written.headers["Content-Type"] == kind


async def test_a_padded_answer_fails_in_band(
    asked: Any, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked()
    async with answering(one, tasks, stream=False, pad_after_s=0.0) as answer:
        await one.written.until_tried(1)
        await answer.fail(NO)
    assert one.written.body == b" broken: it broke"
    # Nobody takes it for an answer: it has no end.
    assert one.request.transport.close.called
    assert not one.written.ended


async def test_a_padded_stream_fails_with_its_last_line(
    asked: Any, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked()
    async with answering(one, tasks, pad_after_s=0.0) as answer:
        await one.written.until_tried(1)
        await answer.fail(NO)
    assert (one.written.body, one.written.ended) == (b" broken: it broke", True)
    assert not one.request.transport.close.called


async def test_an_answer_in_time_is_not_padded(asked: Any, tasks: Tasks) -> None:
    one = asked()
    async with answering(one, tasks, pad_after_s=0.01) as answer:
        await answer.say(b"a\n")
        await asyncio.sleep(0.03)
        await answer.end(b"")
    assert one.written.body == b"a\n"


async def test_leaving_ends_the_padding(asked: Any, tasks: Tasks) -> None:
    one = asked()

    async def leave() -> None:
        async with answering(one, tasks, pad_after_s=0.0):
            await one.written.until_tried(1)
            _ = 1 / 0

    with pytest.raises(ZeroDivisionError):
        await leave()
    assert len(tasks) == 0


async def test_a_client_that_goes_while_it_is_padded(asked: Any, tasks: Tasks) -> None:
    one = asked()
    one.written.broken = True
    async with answering(one, tasks, pad_after_s=0.0):
        await one.written.until_tried(1)


async def test_who_takes_it_writes_alone(
    asked: Any, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAD_EVERY_S", 0.0)
    async with answering(asked(), tasks) as answer:
        assert await answer.take() is None
    one = asked()
    async with answering(one, tasks, pad_after_s=0.0) as answer:
        await one.written.until_tried(2)
        response = await answer.take()
        assert response is not None
        padded = one.written.body
        await asyncio.sleep(0.01)
        await response.write_eof(b"end")
    assert one.written.body == padded + b"end"


async def test_who_is_cancelled_while_the_padding_ends_leaves_no_second_writer(
    asked: Any, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = asked()
    goes_on = asyncio.Event()
    written = one.written.write

    async def slow(chunk: Any) -> None:
        await written(chunk)
        if chunk == b" ":
            await goes_on.wait()

    monkeypatch.setattr(one.written, "write", slow)
    async with answering(one, tasks, pad_after_s=0.0) as answer:
        await one.written.until_tried(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await answer.take()
        asyncio.get_running_loop().call_later(0.01, goes_on.set)
        await answer.fail(NO)
        assert len(tasks) == 0
    assert one.written.body == b" broken: it broke"
