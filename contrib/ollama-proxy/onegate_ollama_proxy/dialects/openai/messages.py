"""Messages and tools of these routes in the wire's words."""

import base64
import binascii
import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from onegate.protocol.content import (
    ForcedTool,
    FunctionCall,
    FunctionSpec,
    ImagePart,
    Message,
    NamedFunction,
    TextPart,
    Tool,
    ToolCall,
    ToolChoice,
)
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.boundary import is_search
from onegate_ollama_proxy.fields import convert, unsupported

_DATA_URL = re.compile(r"data:(?:image/([a-z0-9.+-]{1,64}))?;base64,", re.IGNORECASE)
_MEDIA = {"jpg": "jpeg", "": "png"}
_MAX_NAME = 256


class _Call(msgspec.Struct):
    function: FunctionCall
    id: Annotated[str, Meta(max_length=_MAX_NAME)] = ""
    type: Literal["function"] = "function"


class _Turn(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    name: Annotated[str, Meta(max_length=_MAX_NAME)] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: Annotated[str, Meta(max_length=_MAX_NAME)] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    audio: Any = None
    function_call: Any = None


class _ImageUrl(msgspec.Struct):
    url: str


class _Named(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]


class _Choice(msgspec.Struct):
    type: str
    function: _Named | None = None


class _Function(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


def messages_of(said: list[Any]) -> tuple[tuple[Message, ...], list[str]]:
    """A conversation, and notices of what was left out. Raises BadAsk with the path."""
    if not said:
        raise BadAsk("[] is too short - 'messages'", path="messages")
    notices: list[str] = []
    turns = tuple(_turn(turn, f"messages[{i}]", notices) for i, turn in enumerate(said))
    return turns, list(dict.fromkeys(notices))


def _turn(said: Any, at: str, notices: list[str]) -> Message:
    turn: _Turn = convert(said, _Turn, at)
    if turn.audio is not None:
        raise unsupported(f"{at}.audio", "nothing here hears or speaks: send text")
    if turn.function_call is not None or turn.role == "function":
        raise unsupported(f"{at}.role", "functions are the older form of tools: use tool_calls")
    if turn.role not in ("system", "developer", "user", "assistant", "tool"):
        raise BadAsk(f"{at}.role is wrong: there is no role {turn.role[:40]!r}", path=f"{at}.role")
    content = _content(turn, at)
    calls = [
        ToolCall(
            id=call.id,
            function=FunctionCall(
                name=call.function.name, arguments=call.function.arguments or "{}"
            ),
        )
        for call in turn.tool_calls or ()
    ]
    thinking = turn.reasoning or turn.reasoning_content or None
    if turn.name is not None and turn.role != "tool":
        notices.append("names of speakers are not known to models here and were left out")
    return Message(
        role=turn.role,  # type: ignore[arg-type]  # one of the five, as was just seen
        content=content if content is not None or calls or thinking else "",
        name=turn.name or None if turn.role == "tool" else None,
        thinking=thinking if turn.role == "assistant" else None,
        tool_calls=calls or None,
        tool_call_id=turn.tool_call_id if turn.role == "tool" else None,
    )


def _content(turn: _Turn, at: str) -> str | list[TextPart | ImagePart] | None:
    if isinstance(turn.content, list):
        return [_part(part, f"{at}.content[{i}]") for i, part in enumerate(turn.content)] or ""
    return turn.content if turn.content is not None else turn.refusal


def _part(part: dict[str, Any], at: str) -> TextPart | ImagePart:
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return TextPart(text=convert(part.get("text"), str, f"{at}.text"))
        case "refusal":
            return TextPart(text=convert(part.get("refusal"), str, f"{at}.refusal"))
        case "image_url":
            said: str | _ImageUrl = convert(
                part.get("image_url"), str | _ImageUrl, f"{at}.image_url"
            )
            url = said if isinstance(said, str) else said.url
            return image_of(url, f"{at}.image_url")
        case str(kind):
            raise unsupported(f"{at}.type", f"content of type {kind[:40]!r} is not read here")
        case _:
            raise BadAsk(f"{at}.type is wrong: a part says what it is", path=f"{at}.type")


def image_of(url: str, at: str) -> ImagePart:
    """An image out of a `data:` URL. Raises BadAsk."""
    found = _DATA_URL.match(url)
    if found is None:
        raise BadAsk(
            f"{at} is wrong: images are not fetched here, send them as data:image/png;base64,...",
            path=at,
        )
    subtype = (found[1] or "").lower()
    try:
        data = base64.b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadAsk(f"{at} is wrong: it is no base64", path=at) from error
    return ImagePart(data=data, media_type=f"image/{_MEDIA.get(subtype, subtype)}")


def tools_of(said: list[Any]) -> tuple[Tool, ...]:
    """Functions that the model may call. Raises BadAsk with the path."""
    return tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(said))


def _tool(said: Any, at: str) -> Tool:
    fields: dict[str, Any] = convert(said, dict[str, Any], at)
    kind: str = convert(fields.get("type", "function"), str, f"{at}.type")
    if is_search(kind):
        raise BadAsk(
            "a search would leave the machine: leave the tool out",
            path=f"{at}.type",
            reason=Reason.BOUNDARY_REFUSED,
        )
    if kind != "function":
        raise unsupported(f"{at}.type", f"a tool of type {kind[:40]!r} is not known here")
    spec: _Function = convert(fields.get("function"), _Function, f"{at}.function")
    return Tool(
        function=FunctionSpec(
            name=spec.name,
            description=spec.description,
            parameters=spec.parameters,
            strict=spec.strict,
        )
    )


def choice_of(said: str | dict[str, Any]) -> ToolChoice:
    """Whether a tool must be called. Raises BadAsk."""
    match said:
        case "auto" | "none" | "required":
            return said
        case str():
            raise BadAsk("tool_choice is wrong: auto, none or required", path="tool_choice")
    choice: _Choice = convert(said, _Choice, "tool_choice")
    if choice.type != "function" or choice.function is None:
        raise unsupported("tool_choice", f"a choice of type {choice.type[:40]!r} is not known here")
    return ForcedTool(function=NamedFunction(name=choice.function.name))
