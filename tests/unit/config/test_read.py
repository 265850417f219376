"""Tables into structs: every problem, none of them fatal to the others."""

import datetime

import pytest

from onegate.config.classes import SHIPPED_CLASSES, ClassConfig
from onegate.config.engine import EngineConfig
from onegate.config.gate import GateConfig
from onegate.config.read import Reader, nearest, show


def test_given_keys_win_over_defaults() -> None:
    reader = Reader()
    gate = reader.table(GateConfig, {"max_in_flight": 7, "frame_timeout_s": 3}, "gate")
    assert reader.problems == []
    assert gate is not None
    assert (gate.max_in_flight, gate.frame_timeout_s, gate.sessions_total) == (7, 3.0, 1024)


def test_given_keys_win_over_a_base() -> None:
    reader = Reader()
    batch = SHIPPED_CLASSES[2]
    changed = reader.table(ClassConfig, {"max_queued_tok": 5}, "class.batch", batch)
    assert changed is not None
    assert (changed.max_queued_tok, changed.safety_timeout_s) == (5, 7200.0)


def test_all_problems_come_at_once() -> None:
    reader = Reader()
    table = {"max_in_flight": 0, "sessions_totl": 3, "frame_timeout_s": "x", "look_ahead": 2}
    gate = reader.table(GateConfig, table, "gate")
    assert {p.path for p in reader.problems} == {
        "gate.max_in_flight",
        "gate.sessions_totl",
        "gate.frame_timeout_s",
    }
    assert reader.bad == {p.path for p in reader.problems}
    assert gate is not None
    assert (gate.max_in_flight, gate.look_ahead) == (64, 2)


def test_a_problem_says_what_is_allowed_and_what_was_found() -> None:
    reader = Reader()
    reader.table(EngineConfig, {"kind": "olama", "max_seqs": -3, "prefix_cache": 1}, "engine")
    by_path = {p.path: p.message for p in reader.problems}
    assert by_path["engine.kind"].startswith('expected one of "openvino", "tensorrt-llm"')
    assert by_path["engine.kind"].endswith('got "olama"')
    assert by_path["engine.max_seqs"].endswith("sequences, got -3")
    assert by_path["engine.prefix_cache"] == "expected true or false, got 1"


def test_an_unknown_key_names_the_nearest() -> None:
    reader = Reader()
    reader.table(GateConfig, {"max_inflight": 3}, "gate")
    assert '(did you mean "max_in_flight"?)' in reader.problems[0].message


def test_the_word_none_is_no_value_where_that_is_allowed() -> None:
    reader = Reader()
    engine = reader.table(EngineConfig, {"threads": "none"}, "engine")
    assert engine is not None
    assert engine.threads is None
    reader.table(EngineConfig, {"max_seqs": "none"}, "engine")
    assert [p.path for p in reader.problems] == ["engine.max_seqs"]


def test_a_required_key_without_a_value_leaves_no_struct() -> None:
    reader = Reader()
    assert reader.table(ClassConfig, {"name": "night"}, "class.night") is None
    assert [str(p) for p in reader.problems] == [
        "class.night.rank: missing; expected an integer from 0 to 1,000"
    ]


def test_a_required_key_with_a_bad_value_leaves_no_struct() -> None:
    reader = Reader()
    assert reader.table(ClassConfig, {"name": "night", "rank": "x"}, "class.night") is None
    assert len(reader.problems) == 1


@pytest.mark.parametrize("value", [3, "x", [], [{}]])
def test_what_is_no_table_is_said_to_be_none(value: object) -> None:
    reader = Reader()
    reader.table(GateConfig, value, "gate")
    assert reader.problems[0].message.startswith("expected a table, got ")


def test_arrays_of_tables_are_read_entry_by_entry() -> None:
    reader = Reader()
    pools = [{"model": "a"}, {"model": 3}, {"model": "c", "x": 1}]
    engine = reader.table(EngineConfig, {"scripted": {"pools": pools}}, "engine")
    assert {p.path for p in reader.problems} == {
        "engine.scripted.pools[1].model",
        "engine.scripted.pools[2].x",
    }
    assert engine is not None
    reader = Reader()
    engine = reader.table(EngineConfig, {"scripted": {"pools": pools[:1]}}, "engine")
    assert engine is not None
    assert [pool.model for pool in engine.scripted.pools] == ["a"]


def test_arrays_are_bounded() -> None:
    reader = Reader()
    assert reader.array([{}] * 65, "x") == []
    assert reader.problems[0].message == "at most 64 entries, got 65"
    assert reader.array({}, "x") == []
    assert "expected [[x]] entries" in reader.problems[1].message


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (True, "true"),
        ({}, "a table"),
        ([1], "an array"),
        ("a\nb\x1b", '"a\\nb\\x1b"'),
        ("é\u202e", '"\\xe9\\u202e"'),
        ("x" * 1_000_000, '"' + "x" * 56 + "..."),
        (float("nan"), "nan"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_values_are_shown_short_and_harmless(value: object, shown: str) -> None:
    assert show(value) == shown


def test_a_number_too_long_to_print_is_not_printed() -> None:
    assert show(1 << 20_000) == "an integer far out of range"


def test_nearest_says_nothing_where_nothing_is_near() -> None:
    assert nearest("zzz", ["alpha"]) == ""
