import pytest

from onegate.engines.base import EngineRequest
from onegate.engines.host.sequence import Sequence
from onegate.engines.host.trtllm.advice import StepAdvice
from onegate.engines.host.trtllm.inside import Handle, Inside
from onegate.engines.host.trtllm.messages import (
    Failed,
    Finished,
    Gone,
    Iteration,
    Iterations,
    Tokens,
)
from onegate.protocol.content import FinishReason, Params

STEP = Iteration(
    latency_ms=4.0, prompt_tok=0, answers=1, scheduled=1, blocks=9, blocks_used=3, block_tok=32
)


class Session:
    def __init__(self):
        self.aborted = []

    def abort(self, id):
        self.aborted.append(id)


@pytest.fixture
def session():
    return Session()


@pytest.fixture
def inside(session):
    def decode(batch):
        return [bytes(ids).decode("utf-8", "replace") for ids in batch]

    advice = StepAdvice(target_ms=None, max_step_tok=128, max_seqs=4)
    return Inside(session, decode, "m", advice, tells_cached=True)


@pytest.fixture
def enter(inside):
    def enter(id=1, *, prompt_tok=4, **params):
        request = EngineRequest(
            id=id, model="m", max_tokens=100, prompt="x", params=Params(**params)
        )
        inside.add(Sequence(request, inside.handle(id), prompt=[0] * prompt_tok))

    return enter


def test_12_13_tokens_become_text_one_by_one(inside, enter):
    enter()
    report = inside.step([Tokens(1, list("hñ".encode()))])
    assert [o.chunk.text for o in report.outputs] == ["h", "", "ñ"]
    assert [o.chunk.token_ids for o in report.outputs] == [[104], [195], [177]]
    assert report.stepped
    assert inside.step([]).outputs == []


def test_14_an_end_of_itself(inside, enter):
    enter()
    report = inside.step([Tokens(1, [104]), Finished(1, "length", 32)])
    (ended,) = report.ended
    assert ended.finish_reason is FinishReason.LENGTH
    assert (ended.usage.prompt_tok, ended.usage.output_tok, ended.cached_tok) == (4, 1, 32)
    assert report.freed == [1]
    assert inside.ids() == []


def test_what_others_may_have_put_into_the_cache_is_not_told(inside, enter):
    inside._tells_cached = False
    enter()
    (ended,) = inside.step([Finished(1, "length", 32)]).ended
    assert ended.cached_tok is None


def test_14_an_end_that_is_none(inside, enter):
    enter()
    report = inside.step([Finished(1, "cancelled", None)])
    assert report.ended[0].error == "the engine gave the request up: cancelled"
    assert report.ended[0].cached_tok is None


def test_15_a_failure_is_told_and_frees(inside, enter):
    enter()
    report = inside.step([Tokens(1, [104]), Failed(1, "no ink")])
    assert report.ended[0].error == "no ink"
    assert report.freed == [1]
    assert inside.step([Failed(1, "no ink")]).ended == []


@pytest.mark.parametrize("last", [Finished(1, "cancelled", None), Gone(1), Failed(1, "x")])
def test_17_18_an_abort_frees_and_ends_nothing(inside, enter, session, last):
    enter()
    inside.abort(1)
    inside.abort(1)
    assert session.aborted == [1]
    assert inside.step([Tokens(1, [104])]).freed == []
    report = inside.step([last])
    assert report.freed == [1]
    assert report.ended == []
    assert inside.step([Gone(1)]).freed == []


def test_an_end_that_was_faster_than_an_abort(inside, enter):
    enter()
    inside.abort(1)
    report = inside.step([Finished(1, "stop", None)])
    assert report.ended[0].finish_reason is FinishReason.STOP
    assert report.freed == [1]


@pytest.mark.parametrize(
    "last", [Finished(1, "cancelled", None), Finished(1, "length", None), Gone(1)]
)
def test_a_stop_string_ends_it_here_and_then_there(inside, enter, session, last):
    enter(stop=["lo"])
    report = inside.step([Tokens(1, list(b"hello you"))])
    assert "".join(o.chunk.text for o in report.outputs) == "hel"
    assert report.ended[0].finish_reason is FinishReason.STOP
    assert report.ended[0].usage.output_tok == 5
    assert report.freed == []
    assert session.aborted == [1]
    late = inside.step([Tokens(1, [104])])
    assert (late.outputs, late.ended, late.freed) == ([], [], [])
    end = inside.step([last])
    assert (end.outputs, end.ended, end.freed) == ([], [], [1])
    assert session.aborted == [1]


def test_what_was_not_taken_is_forgotten(inside):
    assert isinstance(inside.handle(7), Handle)
    inside.forget(7)
    assert inside.step([Tokens(7, [1]), Finished(7, "stop", None)]).outputs == []


def test_prompts_are_read_in_the_order_of_their_arrival(inside, enter):
    enter(1, prompt_tok=100)
    enter(2, prompt_tok=100)

    def reads(tok):
        report = inside.step([Iterations([Iteration(prompt_tok=tok)])])
        return [(p.id, p.prefilled_tok) for p in report.prefilled]

    assert reads(64) == [(1, 64)]
    assert reads(64) == [(1, 99), (2, 29)]
    inside.step([Tokens(1, [104])])
    assert reads(10) == [(2, 39)]
    assert reads(None) == []
    report = inside.step([Tokens(2, [104]), Iterations([Iteration(prompt_tok=64)])])
    assert report.prefilled == []


def test_nothing_is_told_of_a_prompt_whose_answer_has_begun_or_is_not_wanted(inside, enter):
    for id in (1, 2, 3):
        enter(id, prompt_tok=100)
    inside.step([Tokens(1, [104])])
    inside.abort(2)
    report = inside.step([Iterations([Iteration(prompt_tok=220)])])
    assert [(p.id, p.prefilled_tok) for p in report.prefilled] == [(3, 22)]


def test_22_figures_are_the_engines_or_none(inside, enter):
    enter(1)
    enter(2)
    first = inside.step([]).snapshot
    assert (first.seats_used, first.kv_tok_used, first.waiting) == (2, None, None)
    assert (first.step_ms_p50, first.tok_per_s) == (None, None)
    inside._snapshot_ns = 0
    known = inside.step([Tokens(1, [104, 105]), Iterations([STEP, STEP])]).snapshot
    assert (known.kv_tok_used, known.waiting, known.steps) == (96, 1, 2)
    assert known.step_ms_p50 == 4.0
    inside._snapshot_ns = inside._last_ns = 0
    assert inside.step([]).snapshot.kv_tok_used is None  # too old to be of now
    last = inside.step([Finished(1, "stop", None), Finished(2, "stop", None)]).snapshot
    assert (last.seats_used, last.kv_tok_used, last.waiting) == (0, 0, 0)
    assert inside.step([]).snapshot is None


def test_tokens_are_counted_over_the_time_of_the_steps(inside, enter):
    enter(1)
    inside.step([Tokens(1, [104] * 8)])
    inside.step([Iterations([STEP, STEP])])
    inside._snapshot_ns = 0
    assert inside.step([]).snapshot.tok_per_s == pytest.approx(1000.0)
    assert inside.step([Iterations([STEP])]).stepped
    assert not inside.step([]).stepped


def test_nothing_is_kept_of_requests_that_have_gone(inside, enter):
    """Ended, failed, given up, stopped by a string: whatever the library says of them later."""
    for id in range(1, 101, 4):
        for each in range(id, id + 4):
            enter(each, stop=["a"])
        inside.step([Tokens(id, list(b"a")), Finished(id + 1, "length", 32)])
        inside.abort(id + 2)
        # It had ended of itself before it heard that it was to stop.
        inside.step([Gone(id + 2), Failed(id + 3, "x"), Finished(id, "length", 32)])
        inside.step([Tokens(id, [1]), Finished(id + 2, "cancelled", None), Gone(id + 3)])
    assert inside.ids() == []
    assert inside._handles == {}
    assert inside._cached == {}
