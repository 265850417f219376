"""Files that a person names."""

import os
from pathlib import Path

import pytest

from onegate.bench.files import Unreadable, read_regular, read_text


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfabc")
    assert read_regular(str(tmp_path / "a"), 6) == b"\xef\xbb\xbfabc"
    assert read_text(str(tmp_path / "a"), 6) == "abc"
    with pytest.raises(Unreadable, match="is longer than 5 bytes"):
        read_regular(str(tmp_path / "a"), 5)


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff")
    for path, words in (
        (tmp_path / "pipe", "no regular file"),
        ("/dev/zero", "no regular file"),
        (tmp_path, "cannot be read: Is a directory"),
        (tmp_path / "none", "cannot be read: No such file"),
        ("a\0b", "zero byte"),
    ):
        with pytest.raises(Unreadable, match=words):
            read_regular(str(path), 100)
    with pytest.raises(Unreadable, match="is not UTF-8"):
        read_text(str(tmp_path / "bytes"), 100)
