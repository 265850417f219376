from onegate.engines.host.trtllm.advice import StepAdvice
from onegate.engines.host.trtllm.messages import Iteration


def said(advice, *, full_ms, without_ms, full_tok=100, n=40):
    lines = []
    for _ in range(n):
        lines.append(advice.line(Iteration(latency_ms=full_ms, prompt_tok=full_tok, answers=3)))
        lines.append(advice.line(Iteration(latency_ms=without_ms, prompt_tok=0, answers=3)))
    return [line for line in lines if line is not None]


def make(target_ms=50.0):
    return StepAdvice(target_ms=target_ms, max_step_tok=128, max_seqs=4)


def test_steps_that_are_too_long_are_told_once_with_the_number():
    (line,) = said(make(), full_ms=110.0, without_ms=10.0)
    # 1 ms a prompt token, 40 ms for them, and a token for each of 4 seats.
    assert line.endswith("set engine.max_step_tok to 44")
    assert "take 110 ms, itl_target_ms wants 50" in line


def test_steps_that_are_in_time_are_not():
    assert said(make(), full_ms=40.0, without_ms=10.0) == []


def test_where_answers_alone_take_longer_fewer_tokens_do_not_help():
    (line,) = said(make(), full_ms=110.0, without_ms=60.0)
    assert line.endswith("fewer max_seqs may help")


def test_nothing_is_said_without_figures_enough_of_them_or_a_target():
    assert said(make(None), full_ms=110.0, without_ms=10.0) == []
    assert said(make(), full_ms=110.0, without_ms=10.0, n=20) == []
    assert said(make(), full_ms=110.0, without_ms=10.0, full_tok=60) == []
    assert said(make(), full_ms=None, without_ms=None) == []


def test_what_is_remembered_does_not_grow():
    """An engine that always reads prompts never has the steps to compare with."""
    advice = make()
    for _ in range(1000):
        advice.line(Iteration(latency_ms=110.0, prompt_tok=100, answers=3))
    assert len(advice._full) <= 32
