"""What a request asks for against what an engine can do, before anything is submitted."""

import msgspec
from msgspec import UNSET

from onegate.engines.base import EngineRequest
from onegate.engines.host.engine import Refusal
from onegate.protocol.content import ImagePart, Message, Params, TextPart


def check_params(params: Params, honoured: frozenset[str]) -> None:
    """Refuse the first parameter that is set and not honoured. Raises Refusal, `invalid`."""
    for name in msgspec.structs.asdict(params):
        if getattr(params, name) is not UNSET and name not in honoured:
            raise Refusal("invalid", f"this engine does not honour {name}", path=f"params.{name}")


def check_min_tokens(params: Params, max_tokens: int) -> None:
    """Refuse a minimum that the maximum does not allow. Raises Refusal, `invalid`."""
    if params.min_tokens is not UNSET and params.min_tokens > max_tokens:
        raise Refusal(
            "invalid",
            f"min_tokens {params.min_tokens} is more than the {max_tokens} there may be",
            path="params.min_tokens",
        )


def check_plain_text(request: EngineRequest) -> None:
    """Refuse what goes beyond text in and text out. Raises Refusal, `unsupported`."""
    asked = {
        "suffix": request.suffix is not None,
        "tools": bool(request.tools),
        "tool_choice": request.tool_choice not in (None, "none"),
        "think": request.think not in (None, False),
    }
    for path, is_asked in asked.items():
        if is_asked:
            raise Refusal("unsupported", f"this engine does not offer {path}", path=path)


def plain_turns(messages: list[Message]) -> list[tuple[str, str]]:
    """Role and text of each turn. Raises Refusal for what a plain text template cannot show."""
    if not messages:
        raise Refusal("invalid", "there must be at least one message", path="messages")
    return [_turn(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _turn(message: Message, path: str) -> tuple[str, str]:
    if message.role == "tool":
        raise Refusal("unsupported", "this engine does not offer tools", path=f"{path}.role")
    for name in ("name", "thinking", "tool_calls", "tool_call_id"):
        if getattr(message, name):
            raise Refusal(
                "unsupported", f"this engine does not offer {name}", path=f"{path}.{name}"
            )
    # The newer name of the same turn; templates know the older one.
    role = "system" if message.role == "developer" else message.role
    if message.content is None:
        raise Refusal("invalid", "a message needs content", path=f"{path}.content")
    if isinstance(message.content, str):
        return role, message.content
    return role, "".join(_text(part, f"{path}.content") for part in message.content)


def _text(part: TextPart | ImagePart, path: str) -> str:
    if isinstance(part, ImagePart):
        raise Refusal("unsupported", "this engine does not offer images", path=path)
    return part.text
