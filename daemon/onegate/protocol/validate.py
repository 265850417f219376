"""What types cannot say about a client's message: the fields in their relation to each other.

`validate` returns the first problem as (path, sentence); the sentence says what to do. Whether the
engine can do what is asked, and whether a class allows it, is not decided here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from onegate.protocol.content import (
    ForcedTool,
    ImagePart,
    Message,
    Params,
    ResponseFormat,
    TextPart,
    Tool,
)
from onegate.protocol.json_tree import JsonBudget, Problem
from onegate.protocol.messages import (
    ClientMessage,
    CountTokens,
    Embed,
    Generate,
    Hello,
    ReleaseEngine,
)

NO_UID = 2**32 - 1  # (uid_t)-1, the kernel's "nobody at all"


def validate(message: ClientMessage) -> Problem | None:
    """The first thing wrong with `message`, or None."""
    for problem in _names(message):
        return problem
    check = _CHECKS.get(type(message))
    if check is not None:
        for problem in check(message):
            return problem
    return None


def _names(message: ClientMessage) -> Iterator[Problem]:
    """Names are echoed in logs, metrics and terminals, so they hold nothing that acts there."""
    for field in ("model", "class_", "ticket", "rid", "app"):
        value = getattr(message, field, None)
        if isinstance(value, str):
            yield from _name(field.rstrip("_"), value)


def _name(path: str, value: str) -> Iterator[Problem]:
    if value and not value.isprintable():
        yield path, "may hold printable characters only: remove control characters and line breaks"


def _text(path: str, value: str | None) -> Iterator[Problem]:
    if value is not None and "\0" in value:
        yield path, "holds a NUL character, at which engines cut a text off: remove it"


def _hello(message: Hello) -> Iterator[Problem]:
    behalf = message.on_behalf
    if behalf is None:
        return
    for field in ("unit", "slice", "principal", "flow", "ceiling"):
        value = getattr(behalf, field)
        if value is not None:
            yield from _name(f"on_behalf.{field}", value)
    if behalf.uid == NO_UID:
        yield "on_behalf.uid", f"{NO_UID} is no user: leave uid out when it is not known"


def _generate(message: Generate) -> Iterator[Problem]:
    yield from _source(
        {
            "prompt": message.prompt,
            "messages": message.messages,
            "prompt_token_ids": message.prompt_token_ids,
        }
    )
    yield from _text("prompt", message.prompt)
    yield from _messages(message.messages or ())
    if message.prompt is None:
        if message.suffix is not None:
            yield "suffix", "completes a prompt: give prompt, or leave suffix out"
        if message.raw:
            yield "raw", "is about a prompt: give prompt, or leave raw out"
    yield from _text("suffix", message.suffix)
    yield from _tools(message)
    yield from _params(message.params)


def _count(message: CountTokens) -> Iterator[Problem]:
    yield from _source({"prompt": message.prompt, "messages": message.messages})
    yield from _text("prompt", message.prompt)
    yield from _messages(message.messages or ())
    yield from _tool_list(message.tools or ())
    if message.tools and message.messages is None:
        yield "tools", "belong to a conversation: give messages, or leave tools out"


def _embed(message: Embed) -> Iterator[Problem]:
    for i, text in enumerate(message.input):
        if not text:
            yield f"input[{i}]", "is empty: leave it out"
        yield from _text(f"input[{i}]", text)


def _release(message: ReleaseEngine) -> Iterator[Problem]:
    if message.end:
        for field in ("until_ms", "now"):
            if getattr(message, field):
                yield field, "is about releasing, and end takes it back: leave one of them out"


def _source(given: Mapping[str, str | list[Any] | None]) -> Iterator[Problem]:
    """Exactly one source of the prompt, and that one not empty."""
    present = [name for name, value in given.items() if value is not None]
    if not present:
        yield next(iter(given)), f"is missing: give one of {', '.join(given)}"
    if len(present) > 1:
        yield present[1], f"says the prompt a second time: give one of {', '.join(present)}"
    for name in present:
        if not given[name]:
            yield name, "is empty: there is nothing to answer"


def _messages(messages: Iterable[Message]) -> Iterator[Problem]:
    path, last = "", None
    for i, message in enumerate(messages):
        path, last = f"messages[{i}]", message
        yield from _message(path, message)
    if last is not None and last.tool_calls:
        yield f"{path}.tool_calls", "were not answered: add a tool message for each"


def _message(path: str, message: Message) -> Iterator[Problem]:
    content = message.content
    if isinstance(content, str):
        yield from _text(f"{path}.content", content)
    elif content is not None:
        if not content:
            yield f"{path}.content", "is empty: give text, or at least one part"
        yield from _parts(f"{path}.content", message.role, content)
    elif not (message.role == "assistant" and (message.tool_calls or message.thinking)):
        yield f"{path}.content", "is missing: only an assistant's tool calls or thinking need none"
    if message.role != "assistant":
        if message.tool_calls is not None:
            yield f"{path}.tool_calls", "belong to the assistant: set role to assistant"
        if message.thinking is not None:
            yield f"{path}.thinking", "belongs to the assistant: set role to assistant"
    if message.role == "tool":
        if not message.tool_call_id and message.name is None:
            yield f"{path}.tool_call_id", "is missing: say which call, or which tool, this answers"
    elif message.tool_call_id is not None:
        yield f"{path}.tool_call_id", "answers a tool call: set role to tool, or leave it out"
    yield from _text(f"{path}.thinking", message.thinking)
    yield from _name(f"{path}.name", message.name or "")
    for i, call in enumerate(message.tool_calls or ()):
        yield from _name(f"{path}.tool_calls[{i}].function.name", call.function.name)
        yield from _text(f"{path}.tool_calls[{i}].function.arguments", call.function.arguments)


def _parts(path: str, role: str, parts: list[TextPart | ImagePart]) -> Iterator[Problem]:
    for i, part in enumerate(parts):
        if isinstance(part, TextPart):
            yield from _text(f"{path}[{i}].text", part.text)
        elif role not in ("user", "tool"):
            yield f"{path}[{i}]", "is an image: put it into a message of role user or tool"
        elif not part.data:
            yield f"{path}[{i}].data", "is empty: send the bytes of the image file"


def _tools(message: Generate) -> Iterator[Problem]:
    tools, choice = message.tools or (), message.tool_choice
    if message.messages is None and tools:
        yield "tools", "belong to a conversation: give messages, or leave tools out"
    yield from _tool_list(tools)
    if choice not in (None, "none", "auto") and not tools:
        yield "tool_choice", "chooses among tools: give tools, or leave it out"
    if isinstance(choice, ForcedTool) and choice.function.name not in {
        tool.function.name for tool in tools
    }:
        yield "tool_choice.function.name", "is not among tools: name one of them"


def _tool_list(tools: Iterable[Tool]) -> Iterator[Problem]:
    budget = JsonBudget()
    seen: set[str] = set()
    for i, tool in enumerate(tools):
        path, function = f"tools[{i}].function", tool.function
        yield from _name(f"{path}.name", function.name)
        if function.name in seen:
            yield f"{path}.name", "is the name of two tools: names must differ"
        seen.add(function.name)
        yield from _text(f"{path}.description", function.description)
        if function.parameters is not None:
            yield from budget.check(f"{path}.parameters", function.parameters)


def _params(params: Params) -> Iterator[Problem]:
    if (
        params.min_tokens is not UNSET
        and params.max_tokens is not UNSET
        and params.min_tokens > params.max_tokens
    ):
        yield "params.min_tokens", "is above max_tokens: lower it, or raise max_tokens"
    for field in _FLOATS:
        value = getattr(params, field)
        if value is not UNSET and not math.isfinite(value):
            yield f"params.{field}", "is no finite number: give one, or leave it out"
    for i, stop in enumerate(params.stop or ()):
        yield from _text(f"params.stop[{i}]", stop)
    if params.top_logprobs is not UNSET and params.logprobs is not True:
        yield "params.top_logprobs", "needs logprobs: set it to true"
    if params.response_format is not UNSET:
        yield from _response_format("params.response_format", params.response_format)


_FLOATS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
)


def _response_format(path: str, wanted: ResponseFormat) -> Iterator[Problem]:
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            yield f"{path}.json_schema", "is missing: give the schema, or type json_object"
        else:
            yield from _name(f"{path}.json_schema.name", wanted.json_schema.name or "")
            yield from JsonBudget().check(f"{path}.json_schema.schema", wanted.json_schema.schema)
    elif wanted.json_schema is not None:
        yield f"{path}.json_schema", "is given, but type says otherwise: set type to json_schema"


_CHECKS: Mapping[type[ClientMessage], Callable[[Any], Iterator[Problem]]] = MappingProxyType(
    {
        Hello: _hello,
        Generate: _generate,
        CountTokens: _count,
        Embed: _embed,
        ReleaseEngine: _release,
    }
)
