"""Standard streams, as a caller may leave them."""

import errno
import os
import sys
from pathlib import Path

import pytest

from onegate.cli.streams import Output, OutputError, not_utf8, prepare, silence
from onegate.cli.terminal import say


@pytest.mark.parametrize("text", ["written", "x" * 100_000])
def test_a_full_device_is_an_output_error(text: str) -> None:
    with open("/dev/full", "wb") as full:
        output = Output(full, encoding="utf-8")
        with pytest.raises(OutputError, match="cannot write: No space left on device") as caught:
            print(text, file=output, flush=True)
        assert not caught.value.reader_left
        silence(output)
        output.close()


def test_a_reader_that_left_is_told_from_the_rest() -> None:
    assert OutputError(BrokenPipeError(errno.EPIPE, "Broken pipe")).reader_left


def test_closed_streams_are_made_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    prepare()
    opened = sys.stdin, sys.stdout, sys.stderr
    assert sys.stdin.read() == ""
    sys.stderr.write("nobody reads this")
    sys.stderr.flush()
    with pytest.raises(OutputError, match="cannot write"):
        say("something")
    silence(sys.stdout)
    for stream in opened:
        assert os.get_inheritable(stream.fileno())
        stream.close()


def test_input_that_is_not_utf8_can_be_read_and_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        path = tmp_path / name
        path.write_bytes(b"a\xff")
        monkeypatch.setattr(sys, name, open(path, mode, encoding="ascii"))
    prepare()
    opened = sys.stdin, sys.stdout, sys.stderr
    text = sys.stdin.read()
    say("ä")
    for stream in opened:
        stream.close()
    assert not_utf8(text)
    assert not not_utf8("ä 日本 👩")
    assert (tmp_path / "stdout").read_bytes() == b"?\n"
