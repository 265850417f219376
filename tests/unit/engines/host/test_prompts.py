import pytest

from onegate.engines.host.engine import Refusal
from onegate.engines.host.prompts import PromptReader
from onegate.protocol.content import Message


@pytest.fixture
def reader(pipeline):
    return PromptReader(pipeline, max_context_tok=1000)


def refusal(call, *arguments):
    with pytest.raises(Refusal) as refused:
        call(*arguments)
    return refused.value


def test_a_prompt_is_one_user_turn(reader, make_request):
    by_prompt = reader.ids(make_request("hi"))
    by_messages = reader.ids(make_request(messages=[Message(role="user", content="hi")]))
    assert by_prompt == by_messages
    assert len(by_prompt[0]) == reader.count("hi", None)[0]


def test_a_raw_prompt_has_no_template_and_counts_as_it_is(reader, make_request, pipeline):
    ids, _ = reader.ids(make_request("<|start|>hi", raw=True))
    assert ids == pipeline.encode("<|start|>hi", add_special=True)
    assert reader.count("<|start|>hi", None, raw=True) == (len(ids), True)
    assert len(ids) < reader.count("<|start|>hi", None)[0]


def test_ids_are_taken_as_they_are(reader, make_request):
    assert reader.ids(make_request(prompt_tok_ids=[1, 258], resume_tok_ids=[2])) == ([1, 258], [2])


@pytest.mark.parametrize("ids", [[259], [-1], [1, 2**40]])
def test_ids_outside_the_vocabulary(reader, make_request, ids):
    error = refusal(reader.ids, make_request(prompt_tok_ids=ids))
    assert (error.code, error.path) == ("invalid", "prompt_token_ids")
    error = refusal(reader.ids, make_request("x", resume_tok_ids=ids))
    assert (error.code, error.path) == ("invalid", "resume_tok_ids")


def test_no_tokens_is_no_prompt(pipeline, make_request):
    error = refusal(PromptReader(pipeline, 100).ids, make_request(prompt_tok_ids=[]))
    assert (error.code, error.path) == ("invalid", "prompt_token_ids")


def test_both_numbers(reader, make_request):
    ids = [1] * 990
    assert reader.ids(make_request(prompt_tok_ids=ids, max_tokens=10))
    error = refusal(reader.ids, make_request(prompt_tok_ids=ids, max_tokens=11))
    assert (error.code, error.need_tok, error.limit_tok) == ("too_large", 1001, 1000)
    error = refusal(reader.ids, make_request(prompt_tok_ids=ids, resume_tok_ids=[1], max_tokens=10))
    assert error.need_tok == 1001


def test_one_token_must_fit_where_nobody_named_a_bound(reader, make_request):
    assert reader.ids(make_request(prompt_tok_ids=[1] * 999, max_tokens=5000, fit_max_tokens=True))
    error = refusal(
        reader.ids, make_request(prompt_tok_ids=[1] * 1000, max_tokens=5000, fit_max_tokens=True)
    )
    assert error.need_tok == 1001


def test_a_text_that_cannot_fit_is_not_tokenised(make_pipeline, make_request):
    pipeline = make_pipeline()
    reader = PromptReader(pipeline, 1000)
    pipeline.encode = None  # would raise
    error = refusal(reader.ids, make_request("x" * 7000, max_tokens=5))
    assert (error.need_tok, error.limit_tok) == (1005, 1000)


def test_without_a_longest_token_everything_is_tokenised(make_pipeline, make_request):
    pipeline = make_pipeline(max_bytes_per_tok=None, encode_max_tok=10**6)
    error = refusal(PromptReader(pipeline, 1000).ids, make_request("x" * 7000, max_tokens=5))
    assert error.need_tok > 7000


def test_a_count_at_the_tokenizers_limit_is_not_exact(make_pipeline):
    pipeline = make_pipeline(encode_max_tok=100)
    reader = PromptReader(pipeline, 1000)
    assert reader.count("x" * 50, None)[1] is True
    assert reader.count("x" * 500, None) == (100, False)


def test_a_very_long_text_is_estimated_from_its_beginning(make_pipeline):
    pipeline = make_pipeline(encode_max_tok=10**9)
    lengths = []
    real = pipeline.encode

    def encode(text, *, add_special):
        lengths.append(len(text))
        return [0] * len(text) if len(text) > 1000 else real(text, add_special=add_special)

    pipeline.encode = encode
    n_tok, exact = PromptReader(pipeline, 1000).count("x" * (3 << 20), None)
    assert not exact
    assert abs(n_tok - (3 << 20)) < 1000
    assert max(lengths) < 1.1 * (1 << 20)
