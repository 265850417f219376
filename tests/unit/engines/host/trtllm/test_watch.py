import pytest

from onegate.engines.host.trtllm.watch import CANARY_EVERY_S, PROOF_S, Watch

S = 1_000_000_000


@pytest.fixture
def watch():
    return Watch(30.0, 0)


def test_an_idle_engine_is_asked_now_and_then(watch):
    assert not watch.wants_canary(int(CANARY_EVERY_S) * S)
    assert watch.wants_canary(int(CANARY_EVERY_S) * S + 1)
    assert watch.verdict(10**6 * S) is None


def test_nobody_is_asked_behind_others(watch):
    watch.entered(0)
    watch.doubt("x", 0)
    assert not watch.wants_canary(100 * S)
    watch.left()
    assert watch.wants_canary(100 * S)


def test_a_doubt_is_dispelled_by_progress(watch):
    watch.doubt("process 7 has ended", 5 * S)
    watch.doubt("another", 6 * S)
    late = (5 + int(PROOF_S)) * S + 1
    assert watch.verdict(late - 1) is None
    assert watch.verdict(late) == "process 7 has ended, and no token has come for 10 s since"
    watch.progress(late)
    assert watch.verdict(late + 100 * S) is None


def test_no_progress_with_requests_inside_is_a_stall(watch):
    watch.entered(100 * S)
    watch.entered(120 * S)
    assert watch.verdict(130 * S) is None
    assert watch.verdict(130 * S + 1) == "no token and no step for 30 s with 2 requests inside"
    watch.progress(130 * S)
    assert watch.verdict(160 * S) is None
    watch.left()
    watch.left()
    assert watch.verdict(300 * S) is None


def test_the_silence_before_a_request_is_not_its_own(watch):
    watch.entered(1000 * S)
    assert watch.verdict(1001 * S) is None
