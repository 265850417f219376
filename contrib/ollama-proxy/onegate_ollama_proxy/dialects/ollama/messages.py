"""Messages and images of Ollama's routes in the wire's words."""

import base64
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from onegate.protocol.content import FunctionCall, ImagePart, Message, TextPart, ToolCall
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.fields import convert

_MAX_NAME = 256
_Name = Annotated[str, Meta(max_length=_MAX_NAME)]
_ROLES = ("system", "user", "assistant", "tool")
# How the files of each kind begin.
_KINDS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


class _Function(msgspec.Struct):
    name: Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]
    arguments: dict[str, Any] | None = None


class _Call(msgspec.Struct):
    function: _Function
    id: _Name = ""


class _Turn(msgspec.Struct):
    role: str
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[_Call] | None = None
    tool_name: _Name | None = None
    tool_call_id: _Name | None = None
    name: _Name | None = None  # of the tool, in the words of older clients


def messages_of(said: list[Any]) -> tuple[Message, ...]:
    """A conversation. Raises BadAsk with the path."""
    turns: list[Message] = []
    unanswered: list[str] = []
    for i, one in enumerate(said):
        at = f"messages[{i}]"
        turn: _Turn = convert(one, _Turn, at)
        if turn.role not in _ROLES:
            raise BadAsk(
                f"{at}.role is wrong: one of {', '.join(_ROLES)}, not {turn.role[:40]!a}",
                path=f"{at}.role",
            )
        if turn.role == "assistant":
            unanswered = [call.function.name for call in turn.tool_calls or ()]
        turns.append(_message(turn, at, unanswered))
    return tuple(turns)


def _message(turn: _Turn, at: str, unanswered: list[str]) -> Message:
    calls = [
        ToolCall(
            id=call.id,
            function=FunctionCall(
                name=call.function.name,
                arguments=msgspec.json.encode(call.function.arguments or {}).decode(),
            ),
        )
        for call in turn.tool_calls or ()
    ]
    is_tool = turn.role == "tool"
    return Message(
        role=turn.role,  # type: ignore[arg-type]  # one of the four, as was just seen
        content=_content(turn, at),
        thinking=turn.thinking or None if turn.role == "assistant" else None,
        tool_calls=calls or None,
        tool_call_id=turn.tool_call_id or None if is_tool else None,
        name=_tool_name(turn, unanswered) if is_tool else None,
    )


def _tool_name(turn: _Turn, unanswered: list[str]) -> str | None:
    """Which tool answers: as it is said, else the next of those that were called."""
    said = turn.tool_name or turn.name
    if said:
        if said in unanswered:
            unanswered.remove(said)
        return said
    if unanswered:
        return unanswered.pop(0)
    return None if turn.tool_call_id else "tool"


def _content(turn: _Turn, at: str) -> str | list[TextPart | ImagePart]:
    if not turn.images:
        return turn.content or ""
    return with_images(turn.content or "", turn.images, f"{at}.images")


def with_images(text: str, images: list[str], path: str) -> list[TextPart | ImagePart]:
    """A text and the images that go with it. Raises BadAsk."""
    parts: list[TextPart | ImagePart] = [
        _image(one, f"{path}[{i}]") for i, one in enumerate(images)
    ]
    return [TextPart(text=text), *parts] if text else parts


def _image(said: str, path: str) -> ImagePart:
    try:
        data = base64.b64decode(said, validate=True)
    except (binascii.Error, ValueError):
        raise BadAsk(f"{path} is wrong: it is no base64", path=path) from None
    for start, kind in _KINDS.items():
        if data.startswith(start):
            return ImagePart(data=data, media_type=kind)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ImagePart(data=data, media_type="image/webp")
    raise BadAsk(f"{path} is wrong: it is no PNG, JPEG, GIF, BMP or WebP", path=path)
