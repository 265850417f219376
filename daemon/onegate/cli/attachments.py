"""Files that go with a question: images, tools, a schema."""

from pathlib import Path
from typing import Any

import msgspec

from onegate.cli.exits import UsageError
from onegate.client.errors import invalid

# More than any daemon takes in one message by default, and little enough to be read by mistake.
_MOST_BYTES = 64 * 1024 * 1024
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def question_with(text: str, images: list[Path]) -> str | list[dict[str, Any]]:
    """The content of a message: text alone, or the images before it as parts."""
    if not images:
        return text
    return [*map(_image, images), {"type": "text", "text": text}]


def _image(path: Path) -> dict[str, Any]:
    data = _bytes_of(path, "--image")
    kind = next((kind for head, kind in _IMAGES.items() if data.startswith(head)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if kind is None:
        raise invalid(f"{path} is no PNG, JPEG, GIF or WebP image")
    return {"type": "image", "data": data, "media_type": kind}


def tools_of(path: Path) -> list[dict[str, Any]]:
    """Tools in the form that the OpenAI API has for them: a list, or one of them."""
    found = _document(path, "--tools")
    tools = [found] if isinstance(found, dict) else found
    if not isinstance(tools, list) or not tools or not all(isinstance(t, dict) for t in tools):
        raise invalid(f"{path} holds no tools: it must be a list of objects, each with a function")
    return tools


def schema_of(path: Path) -> dict[str, Any]:
    """A JSON schema."""
    schema = _document(path, "--schema")
    if not isinstance(schema, dict):
        raise invalid(f"{path} holds no schema: it must be an object")
    return schema


def _document(path: Path, option: str) -> Any:
    try:
        return msgspec.json.decode(_bytes_of(path, option))
    except RecursionError as error:
        raise invalid(f"{path} is nested too deeply") from error
    except msgspec.DecodeError as error:
        raise invalid(f"{path} holds no JSON: {error}") from error


def _bytes_of(path: Path, option: str) -> bytes:
    """Raises UsageError for what cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{option}: {path} cannot be read: {error.strerror}") from error
    if not data:
        raise UsageError(f"{option}: {path} is empty")
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{option}: {path} is larger than {_MOST_BYTES >> 20} MiB")
    return data
