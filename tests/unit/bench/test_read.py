"""Scenario files: those that are shipped, and every mistake at once."""

from pathlib import Path

import pytest

from onegate.bench.read import check_scenario, load_scenario, shipped, shipped_text
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
    assert {"chat", "chat+loop+batch", "overload", "burst", "ghosts", "retry"} <= set(shipped())
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
    (tmp_path / "long.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(ConfigError, match="longer than"):
        load_scenario(str(tmp_path / "long.toml"))


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
