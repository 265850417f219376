"""The lines of the log."""

import io
from pathlib import Path

from onegate_ollama_proxy.log import Level, Log


def test_a_line_for_people_and_one_for_the_journal() -> None:
    stream = io.StringIO()
    Log(stream).line(Level.INFO, "request", status=200, class_="loop", reason=None)
    assert stream.getvalue().endswith("Z INFO request status=200 class=loop\n")
    stream = io.StringIO()
    Log(stream, journal=True).line(Level.ERROR, "bug", task="x")
    assert stream.getvalue() == "<3>bug task=x\n"


def test_no_value_ends_the_line_or_drives_a_terminal() -> None:
    stream = io.StringIO()
    Log(stream, journal=True).line(Level.INFO, "request", path='/a b\n\x1b[2J"', long="x" * 500)
    said = stream.getvalue()
    assert said.count("\n") == 1
    assert '"/a b\\n\\x1b[2J\\""' in said
    assert "x" * 197 + "..." in said


def test_lines_that_are_lost_are_counted() -> None:
    class Broken(io.StringIO):
        broken = True

        def write(self, text: str) -> int:
            if self.broken:
                raise OSError(32, "gone")
            return super().write(text)

    stream = Broken()
    log = Log(stream)
    log.line(Level.INFO, "a")
    log.line(Level.INFO, "b")
    assert log.lost == 2
    stream.broken = False
    log.line(Level.INFO, "c")
    assert "c lost_lines=2" in stream.getvalue()
    assert log.lost == 0


def test_a_stream_that_leads_to_the_journal(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stream:
        found = (tmp_path / "out").stat()
        log = Log.for_stream(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        log.line(Level.INFO, "a")
    assert (tmp_path / "out").read_text() == "<6>a\n"


def test_a_pipe_that_nobody_reads_stops_nothing() -> None:
    import os

    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(write, True)
    with open(write, "w", closefd=True) as stream:
        log = Log.for_stream(stream, {})
        log.line(Level.INFO, "a")
        assert log.lost == 1
    os.close(read)
