import json
import threading

import pytest

from onegate.engines.host.trtllm import stats
from onegate.engines.host.trtllm.messages import Iteration
from onegate.engines.host.trtllm.stats import StatsPoller, iteration_of

ENTRY = {
    "iterLatencyMS": 12.5,
    "numQueuedRequests": 99,
    "cpuMemUsage": 0,
    "kvCacheStats": {"maxNumBlocks": 100, "usedNumBlocks": 7, "tokensPerBlock": 32},
    "inflightBatchingStats": {"numCtxTokens": 64, "numGenRequests": 3, "numScheduledRequests": 4},
}
READ = Iteration(
    latency_ms=12.5,
    prompt_tok=64,
    answers=3,
    scheduled=4,
    blocks=100,
    blocks_used=7,
    block_tok=32,
)


@pytest.mark.parametrize("entry", [ENTRY, json.dumps(ENTRY)])
def test_an_entry_is_a_table_or_its_json(entry):
    assert iteration_of(entry) == READ


@pytest.mark.parametrize(
    "entry",
    [
        None,
        7,
        "",
        "{",
        "[" * 100_000,
        [],
        {},
        {"kvCacheStats": None, "inflightBatchingStats": "x"},
        {"iterLatencyMS": "1"},
        {"iterLatencyMS": float("nan")},
        {"iterLatencyMS": float("inf")},
        {"iterLatencyMS": -1},
        {"iterLatencyMS": True},
        {"kvCacheStats": {"maxNumBlocks": None}},
    ],
    ids=lambda entry: str(entry)[:30],
)
def test_what_is_no_figure_is_none(entry):
    assert iteration_of(entry) == Iteration()


def test_21_one_thread_asks():
    threads, came = set(), threading.Event()
    heard = []

    def get_stats(timeout):
        threads.add(threading.current_thread().name)
        return [ENTRY, ENTRY] if len(heard) < 2 else []

    def hear(steps):
        heard.append(steps)
        if len(heard) == 2:
            came.set()

    poller = StatsPoller(get_stats, hear)
    assert came.wait(30)
    poller.end(30)
    assert threads == {"trtllm statistics"}
    assert heard == [[READ, READ]] * 2


def test_22_an_idle_engine_says_nothing(capsys):
    asked = threading.Event()
    heard = []

    def get_stats(timeout):
        asked.set()
        return []

    poller = StatsPoller(get_stats, heard.append)
    assert asked.wait(30)
    poller.end(30)
    assert heard == []
    assert capsys.readouterr().err == ""


def test_22_one_that_fails_is_asked_again_and_both_are_said_once(capsys, monkeypatch):
    monkeypatch.setattr(stats, "_AGAIN_S", 0.001)
    asked, came = [], threading.Event()

    def get_stats(timeout):
        asked.append(timeout)
        if len(asked) < 4:
            raise RuntimeError("no statistics")
        return [ENTRY]

    poller = StatsPoller(get_stats, lambda steps: came.set())
    assert came.wait(30)
    poller.end(30)
    said = capsys.readouterr().err
    assert said.count("no statistics, it is asked again: RuntimeError") == 1
    assert said.count("gives statistics again") == 1


def test_22_waits_between_questions_grow_and_have_an_end():
    waits = []

    class Over:
        def wait(self, timeout_s):
            waits.append(timeout_s)
            return len(waits) == 12

        def is_set(self):
            return False

    def get_stats(timeout):
        raise TimeoutError

    poller = StatsPoller.__new__(StatsPoller)
    poller._get_stats, poller._hear, poller._over = get_stats, print, Over()
    poller._run()
    assert waits == [0.05, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]
