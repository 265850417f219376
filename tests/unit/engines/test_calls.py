import asyncio

import pytest

from onegate.engines.base import (
    EmbedResult,
    EngineBroke,
    EngineMalformed,
    EngineRefused,
    EngineUnavailable,
    TokenCount,
)
from onegate.engines.calls import Calls
from onegate.engines.host.wire import (
    CallDone,
    CallFailed,
    CountCall,
    CountResult,
    EmbedCall,
    EmbedResultMsg,
    LoadCall,
    UnloadCall,
)
from onegate.protocol.content import Usage


@pytest.fixture
def sent():
    return []


@pytest.fixture
def calls(sent):
    return Calls(sent.append)


async def asked(calls, question, answer):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(calls.ask(question))
        await asyncio.sleep(0)
        calls.answered(answer)
    return task.result()


async def test_each_question_gets_its_answer(calls, sent):
    assert [calls.next(), calls.next()] == [1, 2]
    count = CountCall(call=1, model="m", prompt="x")
    result = await asked(calls, count, CountResult(call=1, n_tok=5, exact=True))
    assert result == TokenCount(n_tok=5, exact=True)
    assert sent == [count]
    usage = Usage(prompt_tok=1, output_tok=0)
    answer = EmbedResultMsg(call=2, vectors=[[0.5]], usage=usage)
    result = await asked(calls, EmbedCall(call=2, model="m", input=["x"]), answer)
    assert result == EmbedResult(vectors=[[0.5]], usage=usage)
    assert await asked(calls, LoadCall(call=3, model="m"), CallDone(call=3)) is None
    assert len(calls) == 0


@pytest.mark.parametrize(
    "answer", [CallDone(call=1), CallFailed(call=1, code="invalid", message="no")]
)
async def test_an_answer_that_nobody_waits_for(calls, sent, answer):
    question = UnloadCall(call=calls.next(), model="m")
    calls.tell(question)
    assert sent == [question]
    calls.answered(answer)
    assert len(calls) == 0
    calls.tell(UnloadCall(call=calls.next(), model="m"))
    calls.lose(EngineBroke("gone"))
    assert len(calls) == 0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid", EngineRefused),
        ("unsupported", EngineRefused),
        ("unavailable", EngineUnavailable),
        ("broke", EngineBroke),
    ],
)
async def test_a_failure_is_an_error_of_its_kind(calls, code, kind):
    with pytest.raises(ExceptionGroup) as group:
        await asked(
            calls,
            LoadCall(call=1, model="m"),
            CallFailed(call=1, code=code, message="because"),
        )
    (error,) = group.value.exceptions
    assert type(error) is kind
    assert str(error) == "because"


async def test_answers_that_make_no_sense(calls):
    with pytest.raises(EngineMalformed):
        calls.answered(CallDone(call=9))
    for answer in (
        CallDone(call=1),
        EmbedResultMsg(call=1, vectors=[], usage=Usage(prompt_tok=0, output_tok=0)),
        CallFailed(call=1, code="other", message="x"),
    ):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(calls.ask(CountCall(call=1, model="m", prompt="x")))
            await asyncio.sleep(0)
            with pytest.raises(EngineMalformed):
                calls.answered(answer)
            task.cancel()


async def test_an_answer_to_nobody_is_taken(calls):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await calls.ask(LoadCall(call=1, model="m"))
    assert len(calls) == 1
    calls.answered(CallDone(call=1))
    assert len(calls) == 0


async def test_a_loss_ends_every_question(calls):
    async with asyncio.TaskGroup() as group:

        async def ask(call):
            with pytest.raises(EngineBroke, match="gone"):
                await calls.ask(LoadCall(call=call, model="m"))

        for call in (1, 2):
            group.create_task(ask(call))
        await asyncio.sleep(0)
        calls.lose(EngineBroke("gone"))
    assert len(calls) == 0
