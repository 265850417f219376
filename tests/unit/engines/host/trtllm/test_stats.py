import json
import threading

import pytest

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


def test_22_an_idle_engine_says_nothing_and_a_broken_one_once(capsys):
    asked = threading.Event()

    def get_stats(timeout):
        if not asked.is_set():
            asked.set()
            return []
        raise RuntimeError("no statistics")

    heard = []
    poller = StatsPoller(get_stats, heard.append)
    poller._thread.join(30)
    assert heard == []
    assert capsys.readouterr().err.count("no statistics any more: RuntimeError") == 1
    poller.end(1)
