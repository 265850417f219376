"""The table of the OpenAI routes is what happens."""

import json

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk, Fate
from onegate_ollama_proxy.dialects.openai.parameters import PARAMETERS
from onegate_ollama_proxy.dialects.openai.request import (
    parse_chat,
    parse_completion,
    parse_embeddings,
)

HI = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def chat(**given):
    return parse_chat(json.dumps({"model": "m", "messages": HI} | given).encode()).ask


def completion(**given):
    return parse_completion(json.dumps({"model": "m", "prompt": "Hi"} | given).encode()).ask


def embeddings(**given):
    return parse_embeddings(json.dumps({"model": "m", "input": "Hi"} | given).encode()).ask


def refused(parse, **given) -> BadAsk:
    with pytest.raises(BadAsk) as error:
        parse(**given)
    return error.value


# A value of each parameter that shows its fate, on the route that has it.
EXAMPLES = {
    "model": (chat, "m"),
    "messages": (chat, HI),
    "prompt": (completion, "Hi"),
    "input": (embeddings, "Hi"),
    "stream": (chat, True),
    "stream_options": (chat, {"include_usage": True}),
    "max_tokens": (chat, 5),
    "max_completion_tokens": (chat, 5),
    "temperature": (chat, 0.5),
    "top_p": (chat, 0.5),
    "top_k": (chat, 5),
    "min_p": (chat, 0.5),
    "seed": (chat, 5),
    "stop": (chat, "x"),
    "presence_penalty": (chat, 0.5),
    "frequency_penalty": (chat, 0.5),
    "repetition_penalty": (chat, 1.5),
    "response_format": (chat, {"type": "json_object"}),
    "tools": (chat, [TOOL]),
    "tool_choice": (lambda **given: chat(tools=[TOOL], **given), "required"),
    "reasoning_effort": (chat, "low"),
    "reasoning": (chat, {"effort": "low"}),
    "logprobs": (completion, 2),
    "top_logprobs": (lambda **given: chat(logprobs=True, **given), 2),
    "suffix": (completion, "x"),
    "dimensions": (embeddings, 5),
    "encoding_format": (embeddings, "base64"),
    "n": (chat, 2),
    "best_of": (completion, 2),
    "echo": (completion, True),
    "logit_bias": (chat, {"5": 1}),
    "functions": (chat, [{"name": "f"}]),
    "function_call": (chat, "auto"),
    "modalities": (chat, ["text", "audio"]),
    "audio": (chat, {"voice": "x"}),
    "web_search_options": (chat, {}),
}
# These choose the form of the answer, which is the writer's; or there is no request without them.
NOT_IN_THE_ASK = {
    "stream_options",
    "encoding_format",
    "model",
    "messages",
    "prompt",
    "input",
}


@pytest.mark.parametrize("row", PARAMETERS, ids=lambda row: row.name)
def test_the_table_says_what_happens(row):
    parse, value = EXAMPLES.get(row.name, (chat, "x"))
    if row.fate is Fate.REFUSED:
        assert refused(parse, **{row.name: value}).reason is Reason.UNSUPPORTED
    elif row.fate is Fate.HARMLESS:
        assert parse(**{row.name: value}).notices == (f"{row.name} is accepted and left out",)
    else:
        ask = parse(**{row.name: value})
        assert ask.notices == ()
        assert (ask == parse()) == (row.name in NOT_IN_THE_ASK)
