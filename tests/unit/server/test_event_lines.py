"""The lines of the event log."""

import json
from pathlib import Path

import pytest

from onegate.admission.effects import Grant
from onegate.admission.events import Arrived, ClassClosed, Tick
from onegate.admission.model import GateLimits, RequestSpec
from onegate.config import Config
from onegate.server import event_lines
from onegate.server.event_lines import Began, Line, Lost, Step, WentOn, decode, encode, read
from onegate.server.translate import class_specs, gate_limits

REQUEST = RequestSpec(
    rid=3,
    pool="tiny",
    class_="loop",
    principal="uid:1",
    flow="uid:1/-",
    prompt_tok=9,
    max_tok=4,
    arrived_ns=5,
)
BEGAN = Began(gate_limits(Config()), class_specs(Config()), ())


def test_a_step_reads_as_documented() -> None:
    made = json.loads(encode(Step(11, Arrived(REQUEST), (Grant(3),))))
    assert (made["t"], made["now_ns"], made["effects"]) == ("step", 11, [{"t": "grant", "rid": 3}])
    assert made["event"]["t"] == "arrived"
    assert made["event"]["request"]["class_"] == "loop"
    closed = json.loads(encode(Step(0, ClassClosed("batch", None), ())))["event"]
    assert closed == {"t": "class_closed", "class_": "batch", "until_ns": None}


def test_the_other_lines_read_as_documented() -> None:
    began = json.loads(encode(BEGAN))
    assert set(began) == {"t", "version", "limits", "classes", "pools"}
    assert [spec["name"] for spec in began["classes"]] == ["interactive", "loop", "batch"]
    assert json.loads(encode(WentOn())) == {"t": "went_on", "version": 1}
    assert json.loads(encode(Lost(3))) == {"t": "lost", "count": 3}


def test_no_field_can_hold_a_text() -> None:
    """What a request is to the core: sizes, times, names. A new field of it belongs in this list
    once somebody has looked at it."""
    assert set(RequestSpec.__dataclass_fields__) == {
        *("rid", "pool", "class_", "principal", "flow", "prompt_tok", "max_tok", "arrived_ns"),
        *("counted", "ttft_deadline_ns", "ttft_is_own", "deadline_ns", "lease", "resume"),
        *("prompt_bytes", "ticket", "likely_tok"),
    }


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"t": "other"}',
        b'{"t": "step"}',
        b'{"t": "step", "now_ns": 1, "event": {"t": "grant", "rid": 1}, "effects": []}',
        b'{"t": "step", "now_ns": 1, "event": {"t": "seat_freed"}, "effects": []}',
        b'{"t": "step", "now_ns": 1, "event": [], "effects": []}',
        b'{"t": "step", "now_ns": 1, "event": {"t": "tick"}, "effects": [{"t": "tick"}]}',
        b'{"t": "lost", "count": "many"}',
        b'{"t": "went_on", "version": 2}',
        b'{"t": ' + b"[" * 100_000,
        b'{"t": ' + b'{"t": ' * 100_000,
    ],
)
def test_what_is_no_line(text: bytes) -> None:
    with pytest.raises(ValueError, match="line"):
        decode(text)


def stored(path: Path, *lines: Line) -> None:
    path.write_bytes(b"".join(map(encode, lines)))


def step(now_ns: int) -> Step:
    return Step(now_ns, Tick(), ())


def test_a_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    stored(tmp_path / "e.1", BEGAN, step(1))
    stored(tmp_path / "e", WentOn(), step(2))
    assert list(read(str(tmp_path / "e"))) == [BEGAN, step(1), WentOn(), step(2)]


def test_the_log_of_a_daemon_before_this_one_is_not_its_beginning(tmp_path: Path) -> None:
    stored(tmp_path / "e.1", BEGAN, step(1))
    stored(tmp_path / "e", BEGAN, step(2))
    assert list(read(str(tmp_path / "e"))) == [BEGAN, step(2)]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    stored(tmp_path / "e", BEGAN, step(1), step(2))
    path = tmp_path / "e"
    path.write_bytes(path.read_bytes()[:-1])
    assert list(read(str(path))) == [BEGAN, step(1)]


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "e"
    stored(path, BEGAN)
    path.write_bytes(path.read_bytes() + b"rubbish\n")
    with pytest.raises(ValueError, match=f"{path}:2: "):
        list(read(str(path)))


@pytest.mark.parametrize("lines", [(), (BEGAN, step(1))])
def test_a_line_without_an_end_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: tuple[Line, ...]
) -> None:
    monkeypatch.setattr(event_lines, "MAX_LINE_BYTES", 4096)
    path = tmp_path / "e"
    stored(path, *lines)
    path.write_bytes(path.read_bytes() + b"x" * 10_000)
    with pytest.raises(ValueError, match=f"{path}:{len(lines) + 1}: .*endless"):
        list(read(str(path)))


def test_limits_come_back_with_their_types() -> None:
    again = decode(encode(BEGAN))
    assert isinstance(again, Began)
    assert isinstance(again.limits, GateLimits)
    assert again == BEGAN
