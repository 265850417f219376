import pytest

from onegate.engines.host.batch import Batch
from onegate.engines.host.prefixes import Prefixes
from onegate.engines.host.sampling import sampling_of
from onegate.engines.host.sequence import Sequence
from onegate.protocol.content import FinishReason, Params


@pytest.fixture
def batch(pipeline):
    return Batch(pipeline, "m", kv_tok=800, max_step_tok=32)


@pytest.fixture
def enter(batch, pipeline, make_request):
    def enter(id, prompt_tok=5, **given):
        request = make_request("x", id=id, **given)
        sampling = sampling_of(request, max_tokens=request.max_tokens, samples_by_default=False)
        handle = pipeline.add(id, [0] * prompt_tok, sampling)
        cached_tok = batch.cached_tok(request.cache_salt, [0] * prompt_tok) or 0
        sequence = Sequence(request, handle, prompt=[0] * prompt_tok, cached_tok=cached_tok)
        if request.resume_tok_ids:
            sequence.prime(request.resume_tok_ids, pipeline.decode)
        batch.add(sequence)
        return sequence

    return enter


def said(report, id):
    return [output.chunk.text for output in report.outputs if output.id == id]


def test_one_token_of_each_a_step(batch, enter):
    enter(1)
    enter(2)
    assert [said(batch.step(), 1), said(batch.step(), 2)] == [["a"], ["b"]]


def test_the_librarys_end_frees_the_seat_in_the_same_step(batch, enter):
    enter(1, max_tokens=2)
    batch.step()
    report = batch.step()
    assert [ended.finish_reason for ended in report.ended] == [FinishReason.LENGTH]
    assert report.freed == [1]
    assert batch.ids() == []


def test_the_end_token_counts_and_says_nothing(batch, enter, pipeline):
    pipeline.says = [97, 256]
    enter(1)
    batch.step()
    report = batch.step()
    assert said(report, 1) == [""]
    assert report.ended[0].finish_reason is FinishReason.STOP
    assert report.ended[0].usage.output_tok == 2


def test_a_stop_string_ends_now_and_frees_with_the_next_step(batch, enter, pipeline):
    enter(1, params=Params(stop=["bc"]))
    texts = [said(batch.step(), 1) for _ in range(2)]
    report = batch.step()
    assert [*texts, said(report, 1)] == [["a"], [""], [""]]
    assert report.ended[0].usage.output_tok == 3
    assert report.freed == []
    assert batch.ids() == [1]
    report = batch.step()
    assert (report.freed, report.ended, report.outputs) == ([1], [], [])
    assert pipeline.handles[1].gone


def test_held_back_text_comes_with_the_end(batch, enter):
    enter(1, max_tokens=2, params=Params(stop=["abx"]))
    batch.step()
    report = batch.step()
    assert said(report, 1) == ["", "ab"]
    assert [output.chunk.n_tok for output in report.outputs] == [1, 0]
    assert report.ended[0].usage.output_tok == 2


def test_an_abort_is_carried_out_by_the_next_step(batch, enter, pipeline):
    enter(1)
    enter(2)
    batch.step()
    batch.abort(1)
    batch.abort(1)
    batch.abort(77)
    report = batch.step()
    assert report.freed == [1]
    assert report.ended == []
    assert said(report, 1) == []
    assert said(report, 2) == ["b"]
    assert batch.ids() == [2]
    assert pipeline.handles[1].gone


def test_an_abort_behind_a_stop_string_frees_once(batch, enter):
    enter(1, params=Params(stop=["a"]))
    assert batch.step().ended
    batch.abort(1)
    assert batch.step().freed == [1]
    assert batch.ids() == []


def test_prompts_share_the_step_in_the_order_of_arrival(batch, enter, pipeline):
    pipeline.says = []  # nothing is said, so prefill goes on
    enter(1, prompt_tok=40)
    enter(2, prompt_tok=40)
    moved = [[(p.id, p.prefilled_tok) for p in batch.step().prefilled] for _ in range(4)]
    assert moved == [[(1, 32)], [(1, 40), (2, 24)], [(2, 40)], []]


@pytest.fixture
def cached(pipeline):
    """With a prefix cache of a hundred blocks of eight."""
    return Batch(pipeline, "m", kv_tok=800, max_step_tok=32, prefixes=Prefixes(100, 8))


def enters(batch, pipeline, make_request, id, **given):
    """A prompt of forty tokens."""
    request = make_request("x", id=id, **given)
    sampling = sampling_of(request, max_tokens=request.max_tokens, samples_by_default=False)
    ids = [0] * 40 + (request.resume_tok_ids or [])
    handle = pipeline.add(id, ids, sampling)
    found_tok = batch.cached_tok(request.cache_salt, ids)
    sequence = Sequence(request, handle, prompt=[0] * 40, cached_tok=found_tok or 0)
    batch.add(sequence)
    return found_tok


def test_what_ended_is_cached_but_for_its_last_token(cached, pipeline, make_request):
    assert enters(cached, pipeline, make_request, 1, max_tokens=9) == 0
    assert enters(cached, pipeline, make_request, 2) == 0, "the first one still runs"
    while 1 in cached.ids():
        cached.step()
    said = list(b"abcdefghi")
    assert enters(cached, pipeline, make_request, 3, resume_tok_ids=[*said, 1]) == 48
    assert enters(cached, pipeline, make_request, 4, cache_salt="another") == 0


def test_what_is_stopped_while_it_is_read_is_cached_as_far_as_it_came(
    cached, pipeline, make_request
):
    pipeline.says = []
    enters(cached, pipeline, make_request, 1)
    cached.step()
    cached.abort(1)
    assert cached.step().freed == [1]
    assert enters(cached, pipeline, make_request, 2) == 32
    # What is cached takes no room in the step.
    assert [p.prefilled_tok for p in cached.step().prefilled] == [40]


def test_without_a_cache_nothing_is_said_of_it(batch):
    assert batch.cached_tok("", [0] * 40) is None


def test_decoders_come_before_prompts(batch, enter, pipeline):
    enter(1, prompt_tok=1)
    batch.step()
    pipeline.says = []
    enter(2, prompt_tok=40)
    assert [p.prefilled_tok for p in batch.step().prefilled] == [31]


def test_no_progress_is_told_once_output_has_begun(batch, enter):
    enter(1, prompt_tok=5)
    report = batch.step()
    assert said(report, 1) == ["a"]
    assert report.prefilled == []


def test_several_tokens_in_one_step_are_told_one_by_one(batch, enter, pipeline):
    pipeline.says = list("é!x".encode())
    enter(1)
    pipeline.handles[1].per_step = 4
    report = batch.step()
    assert said(report, 1) == ["", "é", "!", "x"]


def test_a_stop_string_inside_a_step_hides_the_rest_of_it(batch, enter, pipeline):
    enter(1, params=Params(stop=["b"]))
    pipeline.handles[1].per_step = 4
    report = batch.step()
    assert said(report, 1) == ["a", ""]
    assert report.ended[0].usage.output_tok == 2


def test_a_resumed_output_that_had_stopped_ends_without_a_word(batch, enter):
    enter(1, resume_tok_ids=list(b"the end"), params=Params(stop=["end"]))
    report = batch.step()
    assert report.outputs == []
    assert report.ended[0].finish_reason is FinishReason.STOP
    assert report.ended[0].usage.output_tok == 0
    assert batch.step().freed == [1]


def test_logprobs_only_for_who_asked(batch, enter):
    enter(1, params=Params(logprobs=True))
    enter(2)
    outputs = {output.id: output.chunk for output in batch.step().outputs}
    assert [(one.token, one.logprob) for one in outputs[1].logprobs] == [("a", -0.5)]
    assert outputs[2].logprobs is None


def test_a_request_that_the_library_gives_up_has_an_error(batch, enter, pipeline):
    enter(1)
    pipeline.handles[1].finish = "ignored"
    report = batch.step()
    assert "ignored" in report.ended[0].error
    assert report.freed == [1]


def test_the_snapshot_is_of_what_runs_and_empty_when_idle(batch, enter):
    enter(1, max_tokens=1)
    enter(2)
    first = batch.step().snapshot
    assert (first.seats_used, first.kv_tok_used) == (1, 200)
    batch.abort(2)
    last = batch.step().snapshot
    assert (last.seats_used, last.kv_tok_used, last.steps) == (0, 0, 2)
