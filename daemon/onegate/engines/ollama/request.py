"""From a request to what is posted: in Ollama's words, or refused before anything is sent."""

import base64
from typing import Any

import msgspec
from msgspec import UNSET

from onegate.engines.base import EngineRefused, EngineRequest, Feature, PoolInfo
from onegate.engines.http.dialect import Call
from onegate.engines.http.documents import encode
from onegate.engines.ollama.model import Known
from onegate.protocol.content import ImagePart, Message, TextPart, Tool

CHAT = "/api/chat"
GENERATE = "/api/generate"
EMBED = "/api/embed"

# Parameters by Ollama's names of them.
_OPTIONS = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repeat_penalty": "repeat_penalty",
}


def pinned(known: Known, keep_alive_s: float | None) -> dict[str, Any]:
    """What goes out with every request for a model, always the same: another context, another
    batch or another `shift` would make Ollama load it anew.

    A prompt is never cut to fit and an answer never shifted out of the context: both would be
    silent. Servers that are too old for one of the fields skip it.
    """
    options: dict[str, Any] = {"num_ctx": known.context_tok}
    if known.config.num_batch is not None:
        options["num_batch"] = known.config.num_batch
    body: dict[str, Any] = {
        "model": known.name,
        "truncate": False,
        "shift": False,
        "options": options,
    }
    if keep_alive_s is not None:
        body["keep_alive"] = f"{round(keep_alive_s * 1000)}ms"
    return body


def call_of(
    request: EngineRequest, pool: PoolInfo, known: Known, keep_alive_s: float | None
) -> Call:
    """What is posted for a request. Raises EngineRefused with the field that is at fault.

    A prompt goes through /api/chat as the one turn that it is: /api/generate would send all its
    token ids back in the last line.
    """
    _check(request, pool, known)
    body = pinned(known, keep_alive_s)
    body["stream"] = True
    body["options"] |= _options(request, known)
    _add_format(request, body)
    if request.params.logprobs is True:
        body["logprobs"] = True
        if request.params.top_logprobs is not UNSET:
            body["top_logprobs"] = request.params.top_logprobs
    # Without a word of ours a thinking model thinks.
    if Feature.THINKING in pool.features and request.think is not None:
        body["think"] = request.think
    if request.raw or request.suffix is not None:
        body["prompt"] = request.prompt
        if request.suffix is None:
            body["raw"] = True
        else:
            body["suffix"] = request.suffix
        return Call(GENERATE, encode(body))
    if request.tools and request.tool_choice != "none":
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.messages is None:
        body["messages"] = [{"role": "user", "content": request.prompt}]
    else:
        body["messages"] = _messages(request.messages, pool)
    return Call(CHAT, encode(body))


def _check(request: EngineRequest, pool: PoolInfo, known: Known) -> None:
    if not known.generates:
        raise _unsupported("model", f"{known.name} only embeds")
    for name in msgspec.structs.asdict(request.params):
        if getattr(request.params, name) is not UNSET and name not in pool.params:
            raise EngineRefused(
                f"this Ollama does not honour {name}", path=f"params.{name}", unsupported=True
            )
    if request.prompt_tok_ids is not None:
        raise _unsupported("prompt_token_ids", "Ollama takes text and no token ids")
    if request.resume_tok_ids:
        raise _unsupported("resume_tok_ids", "Ollama cannot go on from token ids")
    _check_features(request, pool)
    if request.prompt == "" and (request.raw or request.suffix is not None):
        raise EngineRefused("the prompt is empty", path="prompt")
    if request.messages == []:
        raise EngineRefused("there must be at least one message", path="messages")


def _check_features(request: EngineRequest, pool: PoolInfo) -> None:
    if request.suffix is not None:
        if Feature.SUFFIX not in pool.features:
            raise _unsupported("suffix", f"{pool.model} does not insert")
        if request.prompt is None or request.raw:
            raise EngineRefused("a suffix goes with a prompt that is not raw", path="suffix")
    if request.tools and Feature.TOOLS not in pool.features:
        raise _unsupported("tools", f"{pool.model} has no tools")
    if request.tool_choice not in (None, "none", "auto"):
        raise _unsupported("tool_choice", "Ollama cannot force a tool")
    if request.think and Feature.THINKING not in pool.features:
        raise _unsupported("think", f"{pool.model} does not think")


def _options(request: EngineRequest, known: Known) -> dict[str, Any]:
    params = request.params
    options: dict[str, Any] = {"num_predict": request.max_tokens}
    for name, option in _OPTIONS.items():
        if (value := getattr(params, name)) is not UNSET:
            options[option] = value
    if params.stop is not UNSET and params.stop:
        own = () if known.facts is None or request.raw else known.facts.stops
        options["stop"] = list(dict.fromkeys((*params.stop, *own)))
    return options


def _add_format(request: EngineRequest, body: dict[str, Any]) -> None:
    wanted = request.params.response_format
    if wanted is UNSET or wanted.type == "text":
        return
    if wanted.json_schema is None:
        body["format"] = "json"
    else:
        body["format"] = wanted.json_schema.schema


def _messages(messages: list[Message], pool: PoolInfo) -> list[dict[str, Any]]:
    # Ollama knows a tool's answer by the tool's name, where others know it by the call's id.
    called: dict[str, str] = {}
    turns = []
    for i, message in enumerate(messages):
        turns.append(_turn(message, f"messages[{i}]", pool, called))
        for call in message.tool_calls or ():
            called[call.id] = call.function.name
    return turns


def _turn(message: Message, at: str, pool: PoolInfo, called: dict[str, str]) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    if role == "tool" and Feature.TOOLS not in pool.features:
        raise _unsupported(f"{at}.role", f"{pool.model} has no tools")
    if message.name is not None and role != "tool":
        raise _unsupported(f"{at}.name", "Ollama knows no names of speakers")
    turn: dict[str, Any] = {"role": role, "content": _text(message, at)}
    if images := _images(message, at, pool):
        turn["images"] = images
    if message.thinking is not None:
        if Feature.THINKING not in pool.features:
            raise _unsupported(f"{at}.thinking", f"{pool.model} does not think")
        turn["thinking"] = message.thinking
    if message.tool_calls:
        if Feature.TOOLS not in pool.features:
            raise _unsupported(f"{at}.tool_calls", f"{pool.model} has no tools")
        turn["tool_calls"] = [
            {"function": {"name": call.function.name, "arguments": _arguments(call, where)}}
            for j, call in enumerate(message.tool_calls)
            for where in [f"{at}.tool_calls[{j}].function.arguments"]
        ]
    if role == "tool":
        name = message.name or called.get(message.tool_call_id or "")
        if name is not None:
            turn["tool_name"] = name
    return turn


def _text(message: Message, at: str) -> str:
    if message.content is None:
        if message.tool_calls:
            return ""
        raise EngineRefused("a message needs content", path=f"{at}.content")
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text for part in message.content if isinstance(part, TextPart))


def _images(message: Message, at: str, pool: PoolInfo) -> list[str]:
    if isinstance(message.content, str) or message.content is None:
        return []
    images = [part for part in message.content if isinstance(part, ImagePart)]
    # A model without eyes would be asked without the image, and nobody told.
    if images and Feature.IMAGES not in pool.features:
        raise _unsupported(f"{at}.content", f"{pool.model} sees no images")
    return [base64.b64encode(image.data).decode("ascii") for image in images]


def _arguments(call: Any, at: str) -> msgspec.Raw:
    text = call.function.arguments or "{}"
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineRefused("the arguments of a call are one JSON object", path=at) from error
    # As they came: what is nested just deeply enough to be read is too deep to be written anew.
    return msgspec.Raw(text.encode())


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.function.name}
    if tool.function.description is not None:
        function["description"] = tool.function.description
    function["parameters"] = tool.function.parameters or {"type": "object", "properties": {}}
    return {"type": "function", "function": function}


def _unsupported(path: str, why: str) -> EngineRefused:
    return EngineRefused(f"{why}: leave it out", path=path, unsupported=True)
