"""The table on disk: what was written is read, whatever lies around it."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from onegate.server import usage_file
from onegate.server.usage import Row
from onegate.server.usage_file import NAME, UsageFile


def row(uid: int = 1, tok: int = 1, **more: Any) -> Row:
    return Row(day="2024-10-04", principal=f"uid:{uid}", class_="loop", output_tok=tok, **more)


def read(file: UsageFile) -> tuple[list[Row], int]:
    found: list[Row] = []
    passed_over = file.read(found.append).passed_over
    return found, passed_over


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "state" / "onegate"


@pytest.fixture
def file(place: Path) -> Any:
    place.mkdir(parents=True)
    return UsageFile(place)


def test_nothing_is_there_yet(file: UsageFile) -> None:
    assert read(file) == ([], 0)
    with pytest.raises(FileNotFoundError):
        file.append([row()])


def test_what_was_written_is_read_in_that_order(file: UsageFile) -> None:
    file.replace([row(1), row(2)])
    file.append([row(1, 5), row(3)])
    assert file.n_lines == 4
    again = UsageFile(file.path.parent)
    assert read(again) == ([row(1), row(2), row(1, 5), row(3)], 0)
    assert again.n_lines == 4


def test_a_replacement_is_all_there_is(file: UsageFile, place: Path) -> None:
    file.replace([row(i) for i in range(10)])
    file.replace([row(7)])
    assert read(file)[0] == [row(7)]
    assert sorted(p.name for p in place.iterdir()) == [NAME]


def test_many_rows_are_written_in_pieces(file: UsageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_file, "_CHUNK_BYTES", 200)
    rows = [row(i) for i in range(50)]
    file.replace(rows)
    assert read(file) == (rows, 0)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_last_line_that_is_cut_short_is_passed_over(file: UsageFile, cut: int) -> None:
    file.replace([row(1), row(2)])
    data = file.path.read_bytes()
    file.path.write_bytes(data[:-cut])
    assert read(file) == ([row(1)], 1)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"00000000 {}\n",
        b"no checksum\n",
        b"\xff\xfe\x00\n",
        b"x" * 20_000 + b"\n",
        b'ffffffff {"day":"2024-10-04","principal":"p","class":"c"}\n',
    ],
)
def test_a_damaged_line_costs_only_itself(file: UsageFile, line: bytes) -> None:
    file.replace([row(1)])
    after = file.path.read_bytes()
    file.path.write_bytes(after + line + after)
    found, passed_over = read(file)
    assert found == [row(1), row(1)]
    assert passed_over >= 1


@pytest.mark.parametrize("position", range(0, 60, 7))
def test_a_flipped_bit_is_noticed(file: UsageFile, position: int) -> None:
    file.replace([row(1)])
    data = bytearray(file.path.read_bytes())
    data[position] ^= 4
    file.path.write_bytes(data)
    assert read(file) == ([], 1)


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b'{"day":"today","principal":"p","class":"c"}',
        b'{"day":"2024-10-04","principal":"","class":"c"}',
        b'{"day":"2024-10-04","principal":"p","class":"c","finished":-1}',
        b'{"day":"2024-10-04","principal":"p"}',
    ],
)
def test_a_whole_line_that_is_no_row_is_passed_over(file: UsageFile, text: bytes) -> None:
    import zlib

    file.replace([])
    file.path.write_bytes(b"%08x %s\n" % (zlib.crc32(text), text))
    assert read(file) == ([], 1)


# --- when the disk does not do as it is told ------------------------------------------------------


def test_a_replacement_that_fails_changes_nothing(
    file: UsageFile, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.replace([row(1)])

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        file.replace([row(2)])
    assert read(file)[0] == [row(1)]
    assert sorted(p.name for p in place.iterdir()) == [NAME]


def test_a_short_write_is_gone_on_with(file: UsageFile, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    file.replace([row(1)])
    file.append([row(2)])
    assert read(file) == ([row(1), row(2)], 0)


def test_a_file_that_was_taken_away_is_not_written_into_the_void(file: UsageFile) -> None:
    file.replace([row(1)])
    file.path.unlink()
    with pytest.raises(FileNotFoundError):
        file.append([row(2)])
    file.replace([row(1), row(2)])
    assert len(read(file)[0]) == 2


@pytest.mark.parametrize("kind", ["directory", "pipe", "link", "huge", "long"])
def test_what_is_no_table_is_left_alone(
    file: UsageFile, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    match kind:
        case "directory":
            file.path.mkdir()
        case "pipe":
            os.mkfifo(file.path)
        case "link":
            (tmp_path / "elsewhere").write_text("")
            file.path.symlink_to(tmp_path / "elsewhere")
        case "huge":
            monkeypatch.setattr(usage_file, "MAX_FILE_BYTES", 10)
            file.path.write_bytes(b"x" * 11)
        case "long":
            monkeypatch.setattr(usage_file, "MAX_LINES", 3)
            file.path.write_bytes(b"\n" * 4)
    before = os.lstat(file.path)
    assert file.read(lambda row: None).problem
    assert os.path.samestat(os.lstat(file.path), before)
