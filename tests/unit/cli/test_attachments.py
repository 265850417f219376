"""Files that go with a question."""

import json
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.attachments import question_with, schema_of, tools_of
from onegate.cli.exits import UsageError
from onegate.client.errors import InvalidRequest

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WEBP = b"RIFF\x10\0\0\0WEBPVP8 "
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(data: Any, name: str = "file") -> Path:
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        return path

    return write


def test_without_images_a_question_is_its_text() -> None:
    assert question_with("why?", []) == "why?"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0x", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a;", "image/gif"),
        (WEBP, "image/webp"),
    ],
)
def test_an_image_is_known_by_its_first_bytes(write: Any, data: bytes, kind: str) -> None:
    image, text = question_with("what is it?", [write(data, "named.txt")])
    assert image == {"type": "image", "data": data, "media_type": kind}
    assert text == {"type": "text", "text": "what is it?"}


def test_several_images_come_in_their_order(write: Any) -> None:
    content = question_with("which?", [write(PNG, "a"), write(WEBP, "b")])
    assert [part["type"] for part in content] == ["image", "image", "text"]
    assert [part.get("data") for part in content[:2]] == [PNG, WEBP]


@pytest.mark.parametrize("data", [b"<svg/>", b"RIFF\x10\0\0\0WAVE", b"%PDF-1.7", b"\xff\xd8"])
def test_what_is_no_image_is_said(write: Any, data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="no PNG, JPEG, GIF or WebP"):
        question_with("what?", [write(data)])


def test_one_tool_or_a_list_of_them(write: Any) -> None:
    assert tools_of(write([TOOL, TOOL])) == [TOOL, TOOL]
    assert tools_of(write(TOOL)) == [TOOL]


@pytest.mark.parametrize("document", [[], "f", 3, ["f"], [TOOL, None], None])
def test_what_is_no_list_of_tools_is_said(write: Any, document: Any) -> None:
    with pytest.raises(InvalidRequest, match="holds no tools"):
        tools_of(write(document))


def test_a_schema_keeps_the_order_of_its_properties(write: Any) -> None:
    schema = schema_of(write(b'{"properties": {"z": {}, "a": {}}}'))
    assert list(schema["properties"]) == ["z", "a"]
    for document in ([], True, "x"):
        with pytest.raises(InvalidRequest, match="holds no schema"):
            schema_of(write(document))


@pytest.mark.parametrize("data", [b"{", b"\xff", b'{"a": NaN}', b'"\\ud800"', b"[" * 100_000])
def test_what_is_no_json_is_said(write: Any, data: bytes) -> None:
    for read in (tools_of, schema_of):
        with pytest.raises(InvalidRequest, match=r"holds no JSON|nested too deeply"):
            read(write(data))


def test_what_cannot_be_read_is_a_matter_of_the_command_line(tmp_path: Path, write: Any) -> None:
    for path, says in (
        (tmp_path / "nothing", "No such file"),
        (tmp_path, "Is a directory"),
        (write(b""), "is empty"),
        (Path("/dev/zero"), "is larger than 64 MiB"),
    ):
        with pytest.raises(UsageError, match=f"--schema: .*{says}"):
            schema_of(path)
