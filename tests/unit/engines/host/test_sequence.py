from onegate.engines.host.sequence import Sequence
from onegate.protocol.content import FinishReason, Params, TokenLogprob


def sequence(make_request, **given):
    return Sequence(make_request("x", **given), handle=None, prompt=[0] * 7)


def test_resumed_tokens_are_computed_but_not_the_prompts(make_request, pipeline):
    one = sequence(make_request, resume_tok_ids=[97, 98])
    assert one.prompt_tok == 7
    assert one.computed_tok == 9


def test_what_is_computed_is_what_was_read_and_all_output_but_the_last(make_request):
    one = sequence(make_request, resume_tok_ids=[97, 98])
    assert one.computed_ids == []
    one.prefilled_tok = 8
    assert one.computed_ids == [0] * 7 + [97]
    one.chunk(99, "c", None)
    assert one.computed_ids == [0] * 7 + [97, 98]
    one.chunk(100, "d", None)
    assert one.computed_ids == [0] * 7 + [97, 98, 99]


def test_the_end_by_the_library_by_a_stop_string_and_by_neither(make_request):
    one = sequence(make_request, params=Params(stop=["b"]))
    one.chunk(97, "a", None)
    assert one.ended("length").finish_reason is FinishReason.LENGTH
    assert one.ended("stop").finish_reason is FinishReason.STOP
    assert one.ended("ignored").error
    assert one.chunk(98, "b", None).text == ""
    assert one.stopped
    ended = one.ended(None)
    assert ended.finish_reason is FinishReason.STOP
    assert (ended.usage.prompt_tok, ended.usage.output_tok) == (7, 2)


def test_a_chunk_carries_its_token(make_request):
    logprob = TokenLogprob(token="a", logprob=-1.0)
    chunk = sequence(make_request).chunk(97, "a", logprob)
    assert (chunk.n_tok, chunk.token_ids, chunk.text, chunk.logprobs) == (1, [97], "a", [logprob])


def test_the_rest_is_what_was_held_back(make_request, pipeline):
    one = sequence(make_request, params=Params(stop=["abc"]))
    assert one.chunk(97, "ab", None).text == ""
    assert one.rest(pipeline.decode) == "ab"


def test_a_resumed_run_shows_what_was_not_seen(make_request, pipeline):
    one = sequence(make_request, resume_tok_ids=list(b"hello"), resume_shown_chars=3)
    one.prime(list(b"hello"), pipeline.decode)
    assert one.chunk(33, "!", None).text == "lo!"
