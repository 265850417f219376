"""From Python keywords to a `Generate`: the one place that knows both spellings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from onegate.client.errors import invalid
from onegate.protocol import content as c
from onegate.protocol import messages as m

T = TypeVar("T")

MAX_S = 2**40 // 1000  # the wire has milliseconds, up to 2^40

# What `progress` is called with.
Progress = m.Queued | m.Started | m.Paused | m.Resumed

# Retry behaviour: never; only what a restart of the daemon refused, once it is back; or also what
# a daemon that died had begun, and every refusal that came with a time, after that time.
Retry = Literal["never", "restart", "honour"]


class RequestOptions(TypedDict, total=False):
    """Keywords of `generate` and `stream`.

    Beside one of the positional prompt, `messages` or `prompt_token_ids`. Sampling parameters are
    those of the OpenAI API where it has one; unset means the engine's default. A parameter that
    the engine cannot honour is refused.

    messages          as in the OpenAI API; an image is a part {"type": "image", "data": bytes,
                      "media_type": "image/png"} of the content, never an address to fetch
    tools             that the model may call, as in the OpenAI API; calls are in the reply's
                      `tool_calls`, and what they gave goes back in messages of role "tool"
    tool_choice       "auto", "none", "required", or one of them by name
    think             whether to think first, or "low", "medium", "high", "max"
    model             name of one of the daemon's models; default: the client's, else the only one
    class_            the class to ask for, at or below your ceiling
    ttft_timeout      seconds until the first token, waiting included
    timeout           seconds for everything, retries included
    schema            JSON Schema that the answer must satisfy; `response_format` with the type
                      "json_object" has it be any JSON object
    ticket            the promise of an earlier refusal
    progress          called with Queued, Started, Paused and Resumed as they arrive
    """

    messages: Sequence[Mapping[str, Any] | c.Message]
    prompt_token_ids: Sequence[int]
    model: str
    tools: Sequence[Mapping[str, Any] | c.Tool]
    tool_choice: str | Mapping[str, Any] | c.ForcedTool
    think: c.Think
    suffix: str
    raw: bool
    class_: str
    ttft_timeout: float
    timeout: float
    ticket: str
    schema: Mapping[str, Any]
    response_format: Mapping[str, Any] | c.ResponseFormat
    progress: Callable[[Progress], None]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: Sequence[str]
    presence_penalty: float
    frequency_penalty: float
    repeat_penalty: float
    logprobs: bool
    top_logprobs: int


_PARAMS = frozenset(c.Params.__struct_fields__) - {"response_format"}
_FIELDS = frozenset(
    ("messages", "prompt_token_ids", "model", "tools", "tool_choice", "think", "suffix", "raw")
) | {"ticket"}
_OWN = frozenset(("class_", "ttft_timeout", "timeout", "schema", "response_format", "progress"))


def generate_message(prompt: str | None, options: RequestOptions, *, stream: bool) -> m.Generate:
    """The message, with id 0 and without timeouts: both belong to one attempt of it.

    Raises TypeError for a keyword that does not exist, InvalidRequest for a bad value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in _PARAMS and name not in _FIELDS and name not in _OWN:
            raise TypeError(f"unknown keyword {name!r}")
    params = {name: given[name] for name in _PARAMS & given.keys()}
    if "schema" in given:
        if "response_format" in given:
            raise invalid("schema and response_format say the same thing: give one", "schema")
        params["response_format"] = {
            "type": "json_schema",
            "json_schema": {"schema": given["schema"]},
        }
    elif "response_format" in given:
        params["response_format"] = given["response_format"]
    fields: dict[str, object] = {name: given[name] for name in _FIELDS & given.keys()}
    fields |= {"id": 0, "stream": stream, "params": params, "progress": "progress" in given}
    if prompt is not None:
        fields["prompt"] = prompt
    if "class_" in given:
        fields["class"] = given["class_"]
    if len({"prompt", "messages", "prompt_token_ids"} & fields.keys()) != 1:
        raise invalid("give exactly one of a prompt, messages and prompt_token_ids")
    return convert(fields, m.Generate)


def embed_message(
    texts: Sequence[str], *, model: str | None, class_: str | None, timeout: float | None
) -> m.Embed:
    """The message, with id 0. Raises InvalidRequest."""
    fields: dict[str, object] = {"id": 0, "input": list(texts)}
    fields |= {
        name: value
        for name, value in (("model", model), ("class", class_), ("timeout_ms", ms_of(timeout)))
        if value is not None
    }
    return convert(fields, m.Embed)


def count_message(
    prompt: str | None, messages: object, model: str | None, tools: object = None
) -> m.CountTokens:
    """The message, with id 0. Raises InvalidRequest."""
    if (prompt is None) == (messages is None):
        raise invalid("give exactly one of a prompt and messages")
    fields: dict[str, object] = {"id": 0, "prompt": prompt, "messages": messages, "model": model}
    fields["tools"] = tools
    return convert({k: v for k, v in fields.items() if v is not None}, m.CountTokens)


def convert(fields: Mapping[str, object], kind: type[T]) -> T:
    """`fields` as a message; raises InvalidRequest with the path of what is wrong."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$.")
        raise invalid(message, path.rstrip("`") or None) from None


def ms_of(seconds: float | None, name: str = "timeout") -> int | None:
    """Whole milliseconds, at least one. Raises InvalidRequest for what is no positive time."""
    if seconds is None:
        return None
    if not 0 < seconds <= MAX_S:
        raise invalid(
            f"{name} must be a positive number of seconds up to {MAX_S}, got {seconds}", name
        )
    return max(1, round(seconds * 1000))
