"""A request in the words of the API."""

import base64
from typing import Any

import msgspec
from msgspec import UNSET

from onegate.engines.base import EngineRefused, EngineRequest, EngineTooLarge, Feature, PoolInfo
from onegate.engines.http.dialect import Call
from onegate.engines.openai.flavours import Flavour, ranked
from onegate.protocol.content import (
    ForcedTool,
    ImagePart,
    Message,
    Params,
    ResponseFormat,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
_EFFORTS = ("low", "medium", "high")


def call_of(request: EngineRequest, pool: PoolInfo, flavour: Flavour, *, priority: bool) -> Call:
    """What is posted. Raises EngineRefused and EngineTooLarge, before anything is sent.

    `priority`: the server was seen to take one.
    """
    _check(request, pool)
    body: dict[str, Any] = {
        "model": request.model,
        "stream": True,
        "stream_options": {"include_usage": True, **flavour.stream_options},
        **flavour.extra,
    }
    if request.prompt_tok_ids is not None or request.raw:
        path = COMPLETIONS
        body["prompt"] = request.prompt_tok_ids or request.prompt
        if flavour.params.get("logprobs") and request.params.logprobs is True:
            # The older route takes the number of alternatives where the newer one takes a yes.
            body["logprobs"] = request.params.top_logprobs or 0
    else:
        path = CHAT
        if request.messages is not None:
            body["messages"] = messages_of(request.messages)
        else:
            body["messages"] = [{"role": "user", "content": request.prompt}]
        if request.tools is not None:
            body["tools"] = tools_of(request.tools)
        if request.tool_choice is not None:
            body["tool_choice"] = _choice(request.tool_choice)
        _think(request, body)
    _params(request, flavour, body)
    if priority and (rank := ranked(flavour, request)) is not None:
        body["priority"] = rank
    if flavour.salts and request.cache_salt:
        body["cache_salt"] = request.cache_salt
    return Call(path, msgspec.json.encode(body))


def messages_of(messages: list[Message]) -> list[dict[str, Any]]:
    """A conversation, as it is sent."""
    return [_message(message) for message in messages]


def tools_of(tools: list[Tool]) -> list[dict[str, Any]]:
    """Tools, as they are sent."""
    return [{"type": "function", "function": msgspec.to_builtins(tool.function)} for tool in tools]


def _choice(choice: ToolChoice) -> Any:
    if isinstance(choice, ForcedTool):
        return {"type": "function", "function": {"name": choice.function.name}}
    return choice


def _message(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role}
    if isinstance(message.content, list):
        said["content"] = [_part(part) for part in message.content]
    else:
        said["content"] = message.content
    if message.name is not None:
        said["name"] = message.name
    if message.thinking is not None:
        said["reasoning_content"] = message.thinking
    if message.tool_calls:
        said["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        said["tool_call_id"] = message.tool_call_id
    return said


def _tool_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": msgspec.to_builtins(call.function)}


def _part(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    data = base64.b64encode(part.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}


def _params(request: EngineRequest, flavour: Flavour, body: dict[str, Any]) -> None:
    given = msgspec.structs.asdict(request.params)
    legacy = "messages" not in body
    for name, value in given.items():
        if value is UNSET:
            continue
        if name == "response_format":
            if value.type != "text":
                body[flavour.params[name]] = _format(value)
        elif not (legacy and name in ("logprobs", "top_logprobs")):
            body[flavour.params[name]] = value
    if "top_logprobs" in body:
        # Alternatives are asked for, which only this lets the server give.
        body["logprobs"] = True
    body[flavour.params["max_tokens"]] = request.max_tokens


def _format(wanted: ResponseFormat) -> dict[str, Any]:
    if wanted.json_schema is None:
        return {"type": wanted.type}
    schema = wanted.json_schema
    said: dict[str, Any] = {"name": schema.name or "answer", "schema": schema.schema}
    if schema.strict is not None:
        said["strict"] = schema.strict
    return {"type": "json_schema", "json_schema": said}


def _think(request: EngineRequest, body: dict[str, Any]) -> None:
    if isinstance(request.think, bool):
        body["chat_template_kwargs"] = {"enable_thinking": request.think}
    elif request.think is not None:
        body["chat_template_kwargs"] = {"enable_thinking": True}
        body["reasoning_effort"] = request.think


# --- what it cannot honour ----------------------------------------------------------------------


def _check(request: EngineRequest, pool: PoolInfo) -> None:
    for path, given, feature in (
        ("suffix", request.suffix is not None, Feature.SUFFIX),
        ("tools", bool(request.tools), Feature.TOOLS),
        ("tool_choice", request.tool_choice not in (None, "none", "auto"), Feature.TOOLS),
        ("think", request.think is not None, Feature.THINKING),
        ("prompt_token_ids", request.prompt_tok_ids is not None, Feature.TOKEN_IDS),
        ("resume_token_ids", request.resume_tok_ids is not None, Feature.RESUME_EXACT),
    ):
        if given and feature not in pool.features:
            raise _unsupported(path)
    if request.think not in (None, True, False, *_EFFORTS):
        raise _unsupported("think")
    if request.prompt_tok_ids is not None:
        _check_ids(request, pool)
    if request.messages is not None:
        _check_messages(request.messages, pool)
    _check_params(request.params, request, pool)


def _check_ids(request: EngineRequest, pool: PoolInfo) -> None:
    n_tok, limit_tok = len(request.prompt_tok_ids or ()), pool.capacity.max_context_tok
    if not n_tok:
        raise EngineRefused("a prompt has at least one token", path="prompt_token_ids")
    need_tok = n_tok + (1 if request.fit_max_tokens else request.max_tokens)
    if need_tok > limit_tok:
        raise EngineTooLarge(need_tok=need_tok, limit_tok=limit_tok)


def _check_messages(messages: list[Message], pool: PoolInfo) -> None:
    if not messages:
        raise EngineRefused("a conversation has at least one message", path="messages")
    for i, message in enumerate(messages):
        at = f"messages[{i}]"
        tools = bool(message.tool_calls) or message.role == "tool"
        if tools and Feature.TOOLS not in pool.features:
            raise _unsupported(f"{at}.role" if message.role == "tool" else f"{at}.tool_calls")
        if message.thinking is not None and Feature.THINKING not in pool.features:
            raise _unsupported(f"{at}.thinking")
        if message.content is None and not message.tool_calls:
            raise EngineRefused("a message has content", path=f"{at}.content")
        if isinstance(message.content, list) and Feature.IMAGES not in pool.features:
            for part in message.content:
                if isinstance(part, ImagePart):
                    raise _unsupported(f"{at}.content")


def _check_params(params: Params, request: EngineRequest, pool: PoolInfo) -> None:
    for name, value in msgspec.structs.asdict(params).items():
        if value is not UNSET and name not in pool.params:
            raise EngineRefused(
                f"the engine does not take {name}", path=f"params.{name}", unsupported=True
            )
    if isinstance(params.min_tokens, int) and params.min_tokens > request.max_tokens:
        raise EngineRefused("min_tokens is above max_tokens", path="params.min_tokens")
    legacy = request.raw or request.prompt_tok_ids is not None
    wanted = params.response_format
    if legacy and isinstance(wanted, ResponseFormat) and wanted.type != "text":
        raise _unsupported("params.response_format")


def _unsupported(path: str) -> EngineRefused:
    return EngineRefused(f"the engine does not support {path}", path=path, unsupported=True)
