"""Scenario files: those that are shipped, and every mistake at once."""

import os
from pathlib import Path

import pytest

from onegate.bench.read import (
    check_scenario,
    excess,
    lasting,
    load_scenario,
    shipped,
    shipped_text,
)
from onegate.config import ConfigError

SMALL = '[[class]]\nname = "chat"\n'


def problems(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        check_scenario(text)
    return {problem.path: problem.message for problem in caught.value.errors}


@pytest.mark.parametrize("name", shipped())
def test_what_is_shipped_is_valid_and_says_what_it_is(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.title != "untitled"
    assert shipped_text(name).startswith("# ")


def test_what_was_promised_is_shipped() -> None:
    assert {"chat", "chat+loop+batch", "overload", "burst", "ghosts", "retry", "flood"} <= set(
        shipped()
    )
    assert load_scenario("overload").loads == [1.0, 2.0, 3.0]
    assert {c.retry.kind for c in load_scenario("retry").classes} == {
        "honour",
        "hammer",
        "constant",
    }


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(SMALL + 'arrivals = { kind = "gamma", cv = 2, rate_per_s = 5 }\n')
    (cls,) = load_scenario(str(file)).classes
    assert (cls.arrivals.kind, cls.arrivals.cv, cls.arrivals.rate_per_s) == ("gamma", 2.0, 5.0)


def test_an_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r'did you mean "overload".*path with a /'):
        load_scenario("overlaod")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_scenario(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_scenario(str(tmp_path / "bytes.toml"))
    (tmp_path / "long.toml").write_bytes(b"#" * ((64 << 10) + 1))
    with pytest.raises(ConfigError, match="longer than 65536"):
        load_scenario(str(tmp_path / "long.toml"))
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(ConfigError, match="no regular file"):
        load_scenario(str(tmp_path / "pipe.toml"))


@pytest.mark.parametrize("text", ["a =", "a = " + "[" * 10_000, "a = " + "9" * 5000])
def test_what_is_no_toml(text: str) -> None:
    assert "not TOML" in problems(text)["file"]


def test_every_bad_value_is_listed_at_once() -> None:
    found = problems(
        """
        duration_s = -1
        loads = [0]
        colour = "red"
        [[class]]
        name = "chat"
        clients = 0
        leave = { phases = ["never"] }
        """
    )
    assert set(found) == {
        "duration_s",
        "loads",
        "colour",
        "class[0].clients",
        "class[0].leave.phases",
    }
    assert 'a list of "arrival"' in found["class[0].leave.phases"]
    assert "from 0.001" in found["duration_s"]


def test_contradictions_are_listed_at_once() -> None:
    found = problems(
        """
        isolate = ["chatt"]
        [[class]]
        name = "chat"
        arrivals = { kind = "poisson", rate_per_s = 1, share = 0.5 }
        prompt = { kind = "uniform", low_tok = 9, high_tok = 3 }
        output = { kind = "lognormal", p50_tok = 4 }
        [[class]]
        name = "chat"
        arrivals = { kind = "burst", rate_per_s = 1 }
        start_s = 1000
        [[class]]
        name = "cut"
        cut = true
        arrivals = { share = 0.5 }
        [[class]]
        name = "many"
        arrivals = { rate_per_s = 100000 }
        """
    )
    assert found == {
        "class[0].arrivals": "give one of rate_per_s and share",
        "class[0].prompt.low_tok": "9 is above high_tok, 3",
        "class[0].output.p95_tok": 'missing; kind = "lognormal" needs it',
        "class[1].name": '"chat" is the name of an earlier class',
        "class[1].arrivals.rate_per_s": "a burst has size and every_s instead",
        "class[1].start_s": "after the end of the window, 30 s",
        "class[2].cut": "what is measured by how fast it finishes cannot be cut",
        "class[3].arrivals": "more than 2000000 requests in one part of the run",
        "isolate[0]": "there is no such class; there are chat, chat, cut, many (did you mean "
        '"chat"?)',
    }


def test_contradictions_are_listed_beside_bad_values() -> None:
    found = problems(
        """
        seed = "x"
        isolate = ["chat", "chat"]
        loads = [1, 2, 1.0]
        colour = "red"
        [[class]]
        name = "chat"
        clients = 0
        arrivals = { rate_per_s = 1, share = 0.5 }
        [[class]]
        name = "Big"
        prompt = { kind = "uniform", low_tok = 9, high_tok = 3 }
        output = { kind = "uniform", low_tok = "nine" }
        [[class]]
        name = "late"
        start_s = 1000
        """
    )
    assert found.keys() == {
        *("seed", "colour", "isolate[1]", "loads[2]", "class[0].clients", "class[0].arrivals"),
        *("class[1].name", "class[1].prompt.low_tok", "class[1].output.low_tok"),
        "class[2].start_s",
    }
    assert found["loads[2]"] == "1.0 is there already"


def test_what_is_not_known_contradicts_nothing() -> None:
    found = problems(f'duration_s = "x"\nisolate = ["a"]\n{SMALL.replace("chat", "A")}start_s = 99')
    assert found.keys() == {"duration_s", "class[0].name"}
    assert problems("class = 5").keys() == {"class"}
    assert problems("class = [5]").keys() == {"class[0]"}


@pytest.mark.parametrize(
    ("keys", "path", "words"),
    [
        ("prompt = { low_tok = 5 }", "prompt.low_tok", '`low_tok` belongs to kind = "uniform"'),
        (
            'output = { kind = "uniform", low_tok = 1, high_tok = 2, tok = 5 }',
            "output.tok",
            '`tok` belongs to kind = "fixed"',
        ),
        ("arrivals = { rate_per_s = 1, cv = 2 }", "arrivals.cv", 'kind = "gamma"'),
        ("arrivals = { rate_per_s = 1, size = 2 }", "arrivals.size", 'kind = "burst"'),
        ("retry = { wait_ms = 5 }", "retry.wait_ms", 'kind = "constant" or kind = "honour"'),
        ('retry = { kind = "hammer", wait_ms = 5 }', "retry.wait_ms", "belongs to"),
        ('leave = { phases = ["arrival"], after_tok = 5 }', "leave.after_tok", 'phase = "decode"'),
    ],
)
def test_a_key_that_nothing_would_read_is_a_mistake(keys: str, path: str, words: str) -> None:
    found = problems(SMALL + keys)
    assert found.keys() == {f"class[0].{path}"}
    assert words in found[f"class[0].{path}"]


def test_a_trace_has_the_lengths_too(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    line = '{"timestamp": %d, "input_length": 5, "output_length": 6}\n'
    file.write_text(line % 0 + line % 1000)
    arrivals = f'arrivals = {{ kind = "trace", file = "{file}", rate_per_s = 1 }}\n'
    assert check_scenario(f"{SMALL}{arrivals}prompt = {{ max_tok = 9 }}")
    found = problems(f"{SMALL}{arrivals}prompt = {{ tok = 9 }}")
    assert found == {
        "class[0].prompt.tok": "the trace says how long each is; only `max_tok` cuts it"
    }


def test_classes_together_may_not_be_too_many_either() -> None:
    cls = '[[class]]\nname = "c%d"\narrivals = { rate_per_s = 40000 }\n'
    assert problems(cls % 0 + cls % 1) == {
        "class": "more than 2000000 requests in one part of the run"
    }


def test_another_duration_is_checked_like_the_first() -> None:
    scenario = check_scenario(f"{SMALL}start_s = 3\narrivals = {{ rate_per_s = 100 }}")
    assert lasting(scenario, 7.0).duration_s == 7.0
    for duration_s, path in ((2.0, "class[0].start_s"), (80_000.0, "class[0].arrivals")):
        with pytest.raises(ConfigError) as caught:
            lasting(scenario, duration_s)
        assert [p.path for p in caught.value.errors] == [path]


def test_a_rate_that_was_measured_is_checked_too() -> None:
    scenario = check_scenario(f"{SMALL}arrivals = {{ share = 1 }}")
    assert excess(scenario, {"chat": 10.0}) is None
    assert "more than 2000000 requests" in (excess(scenario, {"chat": 1e5}) or "")


def test_a_trace_is_a_scenario_of_one_class(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    line = '{"timestamp": %d, "input_length": 5, "output_length": 6}\n'
    file.write_text(line % 0 + line % 1000)
    (cls,) = load_scenario(f"trace:{file}").classes
    assert (cls.arrivals.kind, cls.arrivals.file, cls.arrivals.share) == ("trace", str(file), 0.7)


def test_a_trace_that_is_none_is_told_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("{}\n[]\n")
    with pytest.raises(ConfigError) as caught:
        load_scenario(f"trace:{file}")
    assert [p.path for p in caught.value.errors] == ["class[0].arrivals.file"] * 2
    assert "line 2" in caught.value.errors[1].message


@pytest.mark.parametrize("keys", ['kind = "trace"', 'file = "a.csv"'])
def test_a_trace_has_a_file_and_nothing_else_has(keys: str) -> None:
    found = problems(f"{SMALL}arrivals = {{ {keys}, rate_per_s = 1 }}")
    assert found == {"class[0].arrivals.file": 'kind = "trace" has one, and nothing else has'}


def test_a_scenario_has_a_class() -> None:
    assert "missing" in problems("")["class"]
    assert problems("class = []")["class"] == "a scenario has at least one [[class]]"
