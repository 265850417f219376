import pytest

from onegate.engines.stall import LOADING_SILENCE_S, StallRule

S = 1_000_000_000


@pytest.fixture
def rule():
    return StallRule(floor_s=10.0, now_ns=0)


def stalled(rule, now_s, *, loading=False):
    return rule.stalled(int(now_s * S), loading=loading) is not None


def heard(rule, now_s, steps=0):
    rule.heard(int(now_s * S), steps)


def test_work_without_steps_is_a_stall_whatever_the_heart_does(rule):
    rule.entered(1, 0)
    for second in range(1, 11):
        heard(rule, second)
        assert not stalled(rule, second)
    heard(rule, 11)
    assert "1 requests inside" in rule.stalled(11 * S, loading=False)


def test_steps_are_progress(rule):
    rule.entered(1, 0)
    for second in range(1, 100):
        heard(rule, second, steps=second // 8)
        assert not stalled(rule, second)


def test_a_count_that_does_not_move_is_none(rule):
    rule.entered(1, 0)
    heard(rule, 1, steps=5)
    heard(rule, 11, steps=5)
    assert not stalled(rule, 11)
    heard(rule, 11.5, steps=5)
    assert stalled(rule, 11.5)


def test_an_idle_engine_makes_no_progress_and_is_well(rule):
    for second in range(1, 1000):
        heard(rule, second)
    assert not stalled(rule, 1000)
    # Time spent idle does not count against the first request.
    rule.entered(1, 1000 * S)
    heard(rule, 1005)
    assert not stalled(rule, 1009)


def test_who_left_is_not_waited_for(rule):
    rule.entered(1, 0)
    rule.left(1)
    heard(rule, 50)
    assert not stalled(rule, 51)


def test_silence_is_a_stall_even_without_work(rule):
    heard(rule, 1)
    assert not stalled(rule, 11)
    assert "sign of life" in rule.stalled(12 * S, loading=False)


def test_a_load_may_be_silent_for_long(rule):
    assert not stalled(rule, LOADING_SILENCE_S, loading=True)
    assert stalled(rule, LOADING_SILENCE_S + 1, loading=True)


def test_long_prompts_get_four_times_their_predicted_time(rule):
    assert rule.limit_ns() == 10 * S
    rule.entered(1, 0)
    rule.accepted(1, 1000, 0)
    assert rule.limit_ns() == 10 * S  # no rate is known yet
    rule.first_token(1, 1 * S)  # a thousand tokens a second
    rule.first_token(1, 50 * S)  # a later token teaches nothing
    rule.entered(2, 1 * S)
    rule.accepted(2, 20_000, 1 * S)
    assert rule.limit_ns() == pytest.approx(80 * S)
    rule.entered(3, 1 * S)
    rule.accepted(3, 5_000, 1 * S)
    assert rule.limit_ns() == pytest.approx(100 * S)
    heard(rule, 95)
    assert not stalled(rule, 100)
    heard(rule, 102)
    assert stalled(rule, 102)
    rule.left(2)
    assert rule.limit_ns() == pytest.approx(20 * S)


def test_a_prompt_of_no_known_length_teaches_nothing(rule):
    rule.entered(1, 0)
    rule.accepted(1, 0, 0)
    rule.first_token(1, 5 * S)
    rule.accepted(2, 10**6, 5 * S)
    assert rule.limit_ns() == 10 * S
