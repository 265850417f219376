"""Programs that know Ollama and OpenAI, and nothing of a gate.

python programs.py URL MODEL [NAME...]

Runs in an environment that has the published client libraries and nothing of this project. Each
case prints `ok   NAME` or `FAIL NAME` with what went wrong. The engine has one seat, so that a case
that leaves a request running hangs the next one. Cases whose name has a + need an engine that does
as its prompt says (`[[tool:add]]`); those with a * an Ollama's place that can be pulled from.
"""

import asyncio
import sys
import traceback
from collections.abc import Callable

import anthropic
import ollama
import openai
from langchain_ollama import ChatOllama, OllamaEmbeddings

URL, MODEL = sys.argv[1], sys.argv[2]
HI = [{"role": "user", "content": "Say hello. [[tokens:4]]"}]
LONG = [{"role": "user", "content": "Tell me a long story. [[forever]]"}]
CALL = [{"role": "user", "content": "What is 1 and 1? [[tool:add]] [[tokens:2]]"}]
BROKEN = [{"role": "user", "content": "Break. [[error-mid:2]]"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "adds",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}

CASES: dict[str, Callable[[], object]] = {}


def case(marks: str = "") -> Callable[[Callable[[], object]], Callable[[], object]]:
    def keep(function: Callable[[], object]) -> Callable[[], object]:
        CASES[function.__name__ + marks] = function
        return function

    return keep


def raised(kind: type[Exception], function: Callable[[], object]):
    """The error of that kind that `function` raises."""
    try:
        function()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


# --- ollama ---------------------------------------------------------------------------------------

client = ollama.Client(host=URL)


@case()
def ollama_list():
    assert MODEL in {entry.model.removesuffix(":latest") for entry in client.list().models}


@case()
def ollama_show():
    assert client.show(MODEL).details is not None


@case()
def ollama_ps():
    client.ps()


@case()
def ollama_chat():
    reply = client.chat(MODEL, messages=HI, options={"num_predict": 8, "temperature": 0})
    assert reply.message.role == "assistant"
    assert reply.message.content
    assert reply.done
    assert reply.done_reason in ("stop", "length")
    assert reply.eval_count
    assert reply.prompt_eval_count
    assert reply.total_duration > 0


@case()
def ollama_chat_stream():
    parts = list(client.chat(MODEL, messages=HI, stream=True, options={"num_predict": 8}))
    assert len(parts) > 1
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert "".join(part.message.content or "" for part in parts)
    assert parts[-1].total_duration > 0


@case()
def ollama_generate():
    reply = client.generate(MODEL, "Say hello. [[tokens:4]]", options={"num_predict": 8})
    assert reply.response
    again = client.generate(
        MODEL, "And again. [[tokens:4]]", context=reply.context, options={"num_predict": 8}
    )
    assert again.response


@case()
def ollama_generate_stream():
    parts = list(client.generate(MODEL, HI[0]["content"], stream=True, options={"num_predict": 8}))
    assert parts[-1].done
    assert "".join(part.response for part in parts)


@case()
def ollama_load_only():
    reply = client.generate(MODEL, "")
    assert (reply.done_reason, reply.response) == ("load", "")
    assert client.chat(MODEL, messages=[]).done_reason == "load"


@case()
def ollama_harmless_settings():
    options = {"num_predict": 4, "num_thread": 2, "mirostat": 0, "frobnicate": 1}
    assert client.chat(MODEL, messages=HI, options=options, keep_alive="5m").done


@case("+")
def ollama_tools():
    reply = client.chat(MODEL, messages=CALL, tools=[TOOL])
    (call,) = reply.message.tool_calls
    assert call.function.name == "add"
    assert call.function.arguments == {"a": 1}
    parts = list(client.chat(MODEL, messages=CALL, tools=[TOOL], stream=True))
    (call,) = [call for part in parts for call in part.message.tool_calls or ()]
    assert call.function.arguments == {"a": 1}


@case("+")
def ollama_embeddings():
    assert len(client.embed(MODEL, ["a", "b"]).embeddings) == 2
    assert len(client.embed(MODEL, "a").embeddings) == 1
    assert client.embeddings(MODEL, "a").embedding


@case("*")
def ollama_pull_progress():
    steps = list(client.pull("new", stream=True))
    assert steps[-1].status == "success"
    assert {step.completed for step in steps if step.completed} > {1 << 20}
    assert client.pull("new").status == "success"


@case()
def ollama_wrong_model():
    error = raised(ollama.ResponseError, lambda: client.chat("nothing", messages=HI))
    assert error.status_code == 404
    assert "not found" in error.error
    assert MODEL in error.error, "it says which there are"


@case()
def ollama_cloud_model():
    error = raised(ollama.ResponseError, lambda: client.chat("gpt-oss:20b-cloud", messages=HI))
    assert error.status_code == 403
    assert "ollama.com" in error.error


@case()
def ollama_says_no_in_words():
    """The class is closed for now; the sentence says so, and when to come back."""
    batch = ollama.Client(host=URL, headers={"X-Onegate-Class": "batch"})
    error = raised(ollama.ResponseError, lambda: batch.chat(MODEL, messages=HI))
    assert error.status_code == 503
    assert "paused" in error.error
    assert "come back in" in error.error


@case("+")
def ollama_broken_stream():
    error = raised(
        ollama.ResponseError, lambda: list(client.chat(MODEL, messages=BROKEN, stream=True))
    )
    assert error.error


@case("+")
def ollama_abort():
    """With one seat nothing else would be answered if the request went on."""
    stream = client.chat(MODEL, messages=LONG, stream=True, options={"num_predict": 4000})
    next(stream)
    stream.close()
    assert client.chat(MODEL, messages=HI, options={"num_predict": 4}).done


@case()
def ollama_async():
    async def main():
        asked = ollama.AsyncClient(host=URL)
        stream = await asked.chat(MODEL, messages=HI, stream=True, options={"num_predict": 8})
        parts = [part async for part in stream]
        assert parts[-1].done

    asyncio.run(main())


# --- openai ---------------------------------------------------------------------------------------

oai = openai.OpenAI(base_url=f"{URL}/v1", api_key="nobody reads it", max_retries=0)


@case()
def openai_models():
    assert MODEL in {model.id.removesuffix(":latest") for model in oai.models.list()}


@case()
def openai_chat():
    reply = oai.chat.completions.create(model=MODEL, messages=HI, max_tokens=8)
    (choice,) = reply.choices
    assert choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


@case()
def openai_stream():
    stream = oai.chat.completions.create(
        model=MODEL, messages=HI, stream=True, stream_options={"include_usage": True}, max_tokens=8
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] in ("stop", "length")
    assert chunks[-1].usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1


@case()
def openai_completions():
    prompt = HI[0]["content"]
    assert oai.completions.create(model=MODEL, prompt=prompt, max_tokens=8).choices[0].text
    chunks = list(oai.completions.create(model=MODEL, prompt=prompt, max_tokens=8, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks)


@case("+")
def openai_tools():
    reply = oai.chat.completions.create(model=MODEL, messages=CALL, tools=[TOOL])
    assert reply.choices[0].finish_reason == "tool_calls"
    (call,) = reply.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("add", '{"a": 1}')
    answer = {"role": "tool", "tool_call_id": call.id, "content": "2"}
    turns = [*CALL, reply.choices[0].message, answer, *HI]
    assert oai.chat.completions.create(model=MODEL, messages=turns, max_tokens=8).choices


@case("+")
def openai_stream_of_tools():
    with oai.chat.completions.stream(model=MODEL, messages=CALL, tools=[TOOL]) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    assert call.function.arguments == '{"a": 1}'


@case("+")
def openai_embeddings():
    """The library asks for base64 unless it is told otherwise."""
    packed = oai.embeddings.create(model=MODEL, input=["a", "b"])
    plain = oai.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float")
    assert [one.embedding for one in packed.data] == [one.embedding for one in plain.data]


@case()
def openai_wrong_model():
    error = raised(
        openai.NotFoundError,
        lambda: oai.chat.completions.create(model="nothing", messages=HI),
    )
    assert error.code == "model_not_found"
    assert "not found" in error.message


@case()
def openai_what_changes_the_meaning():
    error = raised(
        openai.APIStatusError,
        lambda: oai.with_options(max_retries=2).chat.completions.create(
            model=MODEL, messages=HI, n=2
        ),
    )
    assert (error.param, error.code) == ("n", "unsupported_parameter")
    assert error.response.headers["x-should-retry"] == "false"


@case()
def openai_says_no_in_words():
    error = raised(
        openai.InternalServerError,
        lambda: oai.chat.completions.create(
            model=MODEL, messages=HI, extra_headers={"X-Onegate-Class": "batch"}
        ),
    )
    assert (error.status_code, error.code) == (503, "paused")
    assert int(error.response.headers["retry-after-ms"]) > 0
    assert "come back in" in error.message


@case("+")
def openai_broken_stream():
    stream = oai.chat.completions.create(model=MODEL, messages=BROKEN, stream=True)
    error = raised(openai.APIError, lambda: list(stream))
    assert error.message


@case("+")
def openai_abort():
    stream = oai.chat.completions.create(model=MODEL, messages=LONG, stream=True, max_tokens=4000)
    next(iter(stream))
    stream.close()
    assert oai.chat.completions.create(model=MODEL, messages=HI, max_tokens=4).choices


@case("+")
def openai_timeout():
    """A client that gives up while it waits for an answer in one piece has left, too."""
    slow = oai.with_options(timeout=1.0)
    raised(
        openai.APITimeoutError,
        lambda: slow.chat.completions.create(model=MODEL, messages=LONG, max_tokens=4000),
    )
    assert oai.chat.completions.create(model=MODEL, messages=HI, max_tokens=4).choices


@case("*")
def openai_responses():
    reply = oai.responses.create(model=MODEL, input="Hi")
    assert reply.output_text == "Hello there"
    events = list(oai.responses.create(model=MODEL, input="Hi", stream=True))
    assert events[-1].type == "response.completed"


# --- anthropic ------------------------------------------------------------------------------------

anthropic_client = anthropic.Anthropic(base_url=URL, api_key="nobody reads it", max_retries=0)


@case("*")
def anthropic_messages():
    reply = anthropic_client.messages.create(model=MODEL, max_tokens=16, messages=HI)
    assert reply.content[0].text == "Hello there"
    assert reply.usage.output_tokens == 2


@case("*")
def anthropic_stream():
    with anthropic_client.messages.stream(model=MODEL, max_tokens=16, messages=HI) as stream:
        assert "".join(stream.text_stream) == "Hello there"
        assert stream.get_final_message().stop_reason == "end_turn"


@case()
def anthropic_wrong_model():
    error = raised(
        (anthropic.NotFoundError, anthropic.APIStatusError),
        lambda: anthropic_client.messages.create(model="nothing:cloud", max_tokens=16, messages=HI),
    )
    assert error.body["type"] == "error"


@case("*")
def anthropic_search_is_refused():
    tool = {"type": "web_search_20250305", "name": "web_search"}
    error = raised(
        anthropic.PermissionDeniedError,
        lambda: anthropic_client.messages.create(
            model=MODEL, max_tokens=16, messages=HI, tools=[tool]
        ),
    )
    assert error.body["error"]["type"] == "permission_error"


# --- langchain-ollama -----------------------------------------------------------------------------


@case()
def langchain_chat():
    chat = ChatOllama(model=MODEL, base_url=URL, num_predict=8, validate_model_on_init=True)
    reply = chat.invoke("Say hello. [[tokens:4]]")
    assert reply.content
    assert reply.usage_metadata["output_tokens"]
    assert "".join(chunk.content for chunk in chat.stream("Say hello. [[tokens:4]]"))


@case("+")
def langchain_tools():
    chat = ChatOllama(model=MODEL, base_url=URL).bind_tools([TOOL])
    (call,) = chat.invoke(CALL[0]["content"]).tool_calls
    assert (call["name"], call["args"]) == ("add", {"a": 1})


@case("+")
def langchain_embeddings():
    assert len(OllamaEmbeddings(model=MODEL, base_url=URL).embed_documents(["a", "b"])) == 2


@case()
def langchain_wrong_model():
    chat = ChatOllama(model="nothing", base_url=URL)
    error = raised(ollama.ResponseError, lambda: chat.invoke("Hi"))
    assert "not found" in error.error


def main() -> int:
    failed = 0
    for name, function in CASES.items():
        if sys.argv[3:] and name.rstrip("+*") not in sys.argv[3:]:
            continue
        try:
            function()
        except Exception:  # whatever it is, it is this case's
            failed += 1
            said = f"FAIL {name}\n{traceback.format_exc()}\n"
        else:
            said = f"ok   {name}\n"
        sys.stdout.write(said)
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
