"""Recorded traces: both formats, every mistake, and time that is stretched."""

import os
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev

import pytest

from onegate.bench import traces
from onegate.bench.traces import Row, Trace, TraceError, read_trace, stretch

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:05.9799600,110,0
"""
MOONCAKE = """\
{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]}

{"timestamp": 1500, "input_length": 7, "output_length": 3, "hash_ids": []}
"""


def read(tmp_path: Path, text: str | bytes) -> Trace:
    file = tmp_path / "trace"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(str(file))


def test_azure_in_the_order_of_time(tmp_path: Path) -> None:
    found = read(tmp_path, AZURE)
    assert [(r.prompt_tok, r.output_tok) for r in found.rows] == [(4808, 10), (3180, 8), (110, 1)]
    assert [r.at_s for r in found.rows] == pytest.approx([0, 0.052, 2.0], abs=1e-5)
    assert found.rate_per_s == pytest.approx(1.0)
    assert read(tmp_path, "\ufeff" + AZURE) == found


def test_blank_lines_are_none(tmp_path: Path) -> None:
    assert read(tmp_path, AZURE + "\n\n") == read(tmp_path, AZURE)


def test_a_pipe_is_told_what_to_do(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TraceError, match="no regular file: write what it has to one first"):
        read_trace(str(tmp_path / "pipe"))


def test_mooncake_in_milliseconds(tmp_path: Path) -> None:
    assert read(tmp_path, MOONCAKE).rows == [Row(0.0, 6758, 500), Row(1.5, 7, 3)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "fewer than two"),
        (AZURE.splitlines()[0] + "\n", "fewer than two"),
        (MOONCAKE.splitlines()[0], "fewer than two"),
        ("TIMESTAMP,Other\n1,2\n", "line 1: the columns of an Azure trace are TIMESTAMP"),
        (AZURE + "yesterday,1,2\n", "line 5: not a time"),
        (AZURE + "2023-11-16,1\n", "line 5: not a time"),
        (AZURE + "2023-11-16 18:17:03,-1,2\n", "line 5: lengths are"),
        (AZURE + f"2023-11-16 18:17:03,{'9' * 5000},2\n", "line 5: not a time"),
        (AZURE + f"{'9' * 200_000},1,2\n", "line 5: not CSV: field larger"),
        (MOONCAKE + "{}\n", "line 4: not a Mooncake request"),
        (MOONCAKE + '{"timestamp": NaN}\n', "line 4: not a Mooncake request"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read(tmp_path, text)


def test_mistakes_are_listed_up_to_a_bound(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        read(tmp_path, "{}\n" * 1000)
    lines = str(caught.value).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "and perhaps more"


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(str(tmp_path / "none"))
    monkeypatch.setattr(traces, "MAX_TRACE_BYTES", 5)
    with pytest.raises(TraceError, match="longer than 5"):
        read(tmp_path, AZURE)


BUNCHED = Trace([Row(s, int(s), 1) for s in (0.0, 1.0, 2.0, 10.0)])


def test_time_is_stretched_to_the_rate_and_goes_round() -> None:
    # Three gaps in 10 s as recorded; three times as slow.
    found = stretch(BUNCHED, rate_per_s=0.1, begin_s=-5.0, end_s=40.0, skip=0.0)
    assert [row.at_s for row in found] == pytest.approx([-5, -2, 1, 25, 35, 38])
    assert [row.prompt_tok for row in found] == [0, 1, 2, 10, 0, 1]


def test_it_may_begin_anywhere() -> None:
    found = stretch(BUNCHED, rate_per_s=0.3, begin_s=0.0, end_s=12.0, skip=0.5)
    assert [row.prompt_tok for row in found] == [2, 10, 0]
    assert found[0].at_s == 0


def test_requests_that_all_came_at_once_end_too() -> None:
    once = Trace([Row(0.0, 1, 1)] * 3)
    assert len(stretch(once, rate_per_s=1.0, begin_s=0.0, end_s=10.0, skip=0.0)) < 50


@pytest.mark.parametrize(
    ("name", "requests", "rate_per_s", "cv"),
    [
        ("azure2023/AzureLLMInferenceTrace_conv.csv", 19_366, 5.5, 1.09),
        ("azure2023/AzureLLMInferenceTrace_code.csv", 8_819, 2.6, 13.2),
        ("mooncake/conversation_trace.jsonl", 12_031, 3.4, 3.0),
    ],
)
def test_the_real_ones(name: str, requests: int, rate_per_s: float, cv: float) -> None:
    folder = os.environ.get("ONEGATE_TRACES")
    if not folder:
        pytest.skip("absent traces: ONEGATE_TRACES=DIR names their folder")
    found = read_trace(f"{folder}/{name}")
    assert len(found.rows) == requests
    assert found.rate_per_s == pytest.approx(rate_per_s, rel=0.05)
    gaps = [b.at_s - a.at_s for a, b in pairwise(found.rows)]
    assert stdev(gaps) / mean(gaps) == pytest.approx(cv, rel=0.05)
