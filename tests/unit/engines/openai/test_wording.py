import msgspec
import pytest

from onegate.engines.base import (
    EngineCapacity,
    EngineRefused,
    EngineRequest,
    EngineTooLarge,
    Feature,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.engines.openai.flavours import LLAMA, NONE, VLLM
from onegate.engines.openai.wording import call_of
from onegate.protocol.content import (
    ForcedTool,
    FunctionCall,
    JsonSchema,
    Message,
    NamedFunction,
    Params,
    ResponseFormat,
    ToolCall,
)

ALL = frozenset(Feature) - {Feature.SUFFIX, Feature.RESUME_EXACT}


def ask(flavour=VLLM, features=ALL, priority=False, **given):
    pool = PoolInfo(
        model="m",
        state=PoolState.READY,
        capacity=EngineCapacity(max_seqs=1, max_context_tok=100, reservation=Reservation.GROW),
        features=features,
        params=frozenset(flavour.params),
    )
    request = EngineRequest(**{"id": 1, "model": "m", "max_tokens": 5} | given)
    call = call_of(request, pool, flavour, priority=priority)
    return call.path, msgspec.json.decode(call.body)


def test_a_prompt_is_a_message_and_a_raw_one_is_not():
    path, body = ask(prompt="hi")
    assert path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert ask(prompt="hi", raw=True)[1]["prompt"] == "hi"
    path, body = ask(prompt_tok_ids=[1, 2])
    assert (path, body["prompt"]) == ("/v1/completions", [1, 2])


def test_parameters_under_the_servers_names():
    params = Params(top_k=4, repeat_penalty=1.5, ignore_eos=True)
    assert ask(prompt="x", params=params)[1]["repetition_penalty"] == 1.5
    assert ask(LLAMA, prompt="x", params=params)[1]["repeat_penalty"] == 1.5
    with pytest.raises(EngineRefused) as refused:
        ask(NONE, prompt="x", params=params)
    assert refused.value.path == "params.ignore_eos"
    assert ask(prompt="x", params=Params(max_tokens=99))[1]["max_tokens"] == 5


def test_formats():
    schema = JsonSchema(schema={"type": "object"}, strict=True)
    wanted = ResponseFormat(type="json_schema", json_schema=schema)
    body = ask(prompt="x", params=Params(response_format=wanted))[1]
    assert body["response_format"]["json_schema"] == {
        "name": "answer",
        "schema": {"type": "object"},
        "strict": True,
    }
    text = Params(response_format=ResponseFormat(type="text"))
    assert "response_format" not in ask(prompt="x", params=text)[1]
    with pytest.raises(EngineRefused):
        ask(prompt="x", raw=True, params=Params(response_format=wanted))


def test_priority_and_salt_only_where_they_are_taken():
    assert ask(prompt="x", rank=2, priority=True, cache_salt="me")[1]["priority"] == 2
    assert ask(prompt="x", cache_salt="me")[1]["cache_salt"] == "me"
    body = ask(LLAMA, prompt="x", rank=2, priority=True, cache_salt="me")[1]
    assert not {"priority", "cache_salt"} & body.keys()


def test_a_conversation_with_tools():
    call = ToolCall(id="c", function=FunctionCall(name="f", arguments="{}"))
    messages = [
        Message(role="assistant", tool_calls=[call], thinking="hm"),
        Message(role="tool", tool_call_id="c", content="5", name="f"),
    ]
    choice = ForcedTool(function=NamedFunction(name="f"))
    body = ask(messages=messages, tool_choice=choice)[1]
    first, second = body["messages"]
    assert first["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert first["reasoning_content"] == "hm"
    assert second == {"role": "tool", "content": "5", "name": "f", "tool_call_id": "c"}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "f"}}


def test_thinking():
    assert ask(prompt="x", think="low")[1]["reasoning_effort"] == "low"
    assert ask(prompt="x", think=False)[1]["chat_template_kwargs"] == {"enable_thinking": False}
    with pytest.raises(EngineRefused):
        ask(prompt="x", think="max")


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("messages", {"messages": []}),
        ("messages[0].content", {"messages": [Message(role="user")]}),
        ("prompt_token_ids", {"prompt_tok_ids": []}),
        ("params.min_tokens", {"prompt": "x", "params": Params(min_tokens=6)}),
        ("suffix", {"prompt": "x", "suffix": "y"}),
        ("resume_token_ids", {"prompt": "x", "resume_tok_ids": [1]}),
    ],
)
def test_what_is_refused(path, given):
    with pytest.raises(EngineRefused) as refused:
        ask(**given)
    assert refused.value.path == path


def test_ids_are_counted_before_they_are_sent():
    with pytest.raises(EngineTooLarge):
        ask(prompt_tok_ids=[1] * 96)
    assert ask(prompt_tok_ids=[1] * 96, fit_max_tokens=True)
