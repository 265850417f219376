"""One event, one line; nothing in a value can end the line or drive a terminal."""

import io
import os
import re
from pathlib import Path

import pytest

from onegate.server.log import MAX_VALUE_CHARS, Event, Level, Log


def line(event: Event = Event.STARTING, **fields: object) -> str:
    stream = io.StringIO()
    Log(stream, journal=True, level=Level.DEBUG).event(event, **fields)  # type: ignore[arg-type]
    return stream.getvalue()


def test_a_request_end() -> None:
    stream = io.StringIO()
    Log(stream, journal=True).request_end(
        rid="r7",
        uid=1000,
        class_="batch",
        outcome="finished",
        reason=None,
        queue_ms=3,
        ttft_ms=None,
        e2e_ms=50,
        predicted_ms=40,
        prompt_tok=12,
        cached_tok=0,
        recomputed_tok=None,
        out_tok=0,
        discarded_tok=7,
    )
    assert stream.getvalue() == (
        "<6>request_end rid=r7 uid=1000 class=batch outcome=finished queue_ms=3 e2e_ms=50 "
        "predicted_ms=40 prompt_tok=12 cached_tok=0 out_tok=0 discarded_tok=7\n"
    )


def test_the_journal_gets_a_priority_and_a_person_gets_the_time() -> None:
    stream = io.StringIO()
    log = Log(stream, journal=False)
    log.event(Event.ENGINE_EXITED, exit_code=-9)
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ERROR engine_exited exit_code=-9\n"
    assert re.fullmatch(pattern, stream.getvalue())
    assert line(Event.ENGINE_EXITED, exit_code=-9) == "<3>engine_exited exit_code=-9\n"
    assert line(Event.SESSION_OPENED) == "<7>session_opened\n"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain-1.2:/@+%,_", "plain-1.2:/@+%,_"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "x" \\', '"say \\"x\\" \\\\"'),
        ("a\nb=c\r\x00", '"a\\nb=c\\r\\x00"'),
        ("\x1b[31m", '"\\x1b[31m"'),
        ("a\u2028b\u202e\ud800\x85", '"a\\u2028b\\u202e\\ud800\\x85"'),
        ("é ü", '"é ü"'),
        ("=", '"="'),
    ],
)
def test_values_are_one_word_or_quoted(value: str, written: str) -> None:
    assert line(detail=value) == f"<5>starting detail={written}\n"


def test_long_values_are_cut() -> None:
    assert line(detail="x" * 100_000) == (f"<5>starting detail={'x' * (MAX_VALUE_CHARS - 3)}...\n")


@pytest.mark.parametrize("field", ["prompt", "text", "messages", "answer"])
def test_there_is_no_field_for_text(field: str) -> None:
    with pytest.raises(TypeError, match=f"no field {field}"):
        line(**{field: "secret"})


def test_what_is_less_important_than_asked_for_is_left_out() -> None:
    stream = io.StringIO()
    log = Log(stream, journal=True, level=Level.NOTICE)
    log.event(Event.REQUEST_END)
    log.event(Event.SESSION_OPENED)
    log.event(Event.SERVING)
    assert stream.getvalue() == "<5>serving\n"


class Failing(io.StringIO):
    broken = True

    def write(self, text: str) -> int:
        if self.broken:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


def test_a_broken_stream_stops_nobody_and_is_told_of() -> None:
    stream = Failing()
    log = Log(stream, journal=True)
    log.event(Event.STARTING)
    log.event(Event.SERVING)
    assert log.lost == 2
    stream.broken = False
    log.event(Event.STOPPED)
    log.event(Event.STOPPED)
    assert stream.getvalue() == "<5>stopped lost_lines=2\n<5>stopped\n"


def test_a_closed_stream_stops_nobody() -> None:
    stream = io.StringIO()
    stream.close()
    log = Log(stream, journal=True)
    log.event(Event.STARTING)
    assert log.lost == 1


def test_the_journal_is_known_by_its_stream(tmp_path: Path) -> None:
    path = tmp_path / "err"
    with path.open("w", encoding="utf-8") as stream:
        stat = os.fstat(stream.fileno())
        Log.for_stream(stream, {"JOURNAL_STREAM": f"{stat.st_dev}:{stat.st_ino}"}).event(
            Event.SERVING
        )
        # Inherited from a service that started us, with stderr led elsewhere since.
        Log.for_stream(stream, {"JOURNAL_STREAM": "1:1"}).event(Event.SERVING)
        Log.for_stream(stream, {}).event(Event.SERVING)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "<5>serving"
    assert all(text.endswith("Z NOTICE serving") for text in lines[1:])


def test_a_pipe_that_nobody_reads_loses_lines_and_never_waits() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "w", encoding="utf-8") as stream:
        log = Log.for_stream(stream, {})
        while not log.lost:
            log.event(Event.STARTING, detail="x" * 300)
        log.event(Event.STARTING)
        lost = log.lost
        assert lost == 2
        os.set_blocking(reader.fileno(), False)
        while reader.read(1 << 16):
            pass
        log.event(Event.SERVING)
        assert f"serving lost_lines={lost}\n".encode() in reader.read()
        assert log.lost == 0
