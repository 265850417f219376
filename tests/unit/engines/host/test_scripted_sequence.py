import pytest

from onegate.engines.host.directives import read_script
from onegate.engines.host.scripted_sequence import DEFAULT_WORDS_TOK, ScriptedSequence
from onegate.protocol.content import FinishReason, Params


@pytest.fixture
def sequence(make_request):
    def make(prompt="x", room_tok=1000, **given):
        return ScriptedSequence(
            make_request(prompt, **given),
            read_script(prompt),
            prompt.encode(),
            prompt_tok=4,
            room_tok=room_tok,
        )

    return make


def whole(sequence):
    text, n_tok = "", 0
    while True:
        chunk, ended = sequence.say()
        text += chunk.text
        n_tok += chunk.n_tok
        if ended is not None:
            assert ended.usage.output_tok == n_tok
            return text, ended


@pytest.mark.parametrize(
    ("prompt", "cached"),
    [
        ("x", None),
        ("[[cached:0]]", 0),
        ("[[cached:2]]", 2),
        ("[[cached]]", 5),
        ("[[cached:99]]", 5),
    ],
)
def test_what_it_says_that_it_has_it_does_not_compute(sequence, prompt, cached):
    """Four of prompt and two of output come before its next token."""
    made = sequence(prompt, resume_tok_ids=[1, 2])
    assert made.cached_tok == cached
    assert made.prefilled_tok == (cached or 0)


def test_the_same_prompt_the_same_words(sequence):
    assert whole(sequence())[0] == whole(sequence())[0]
    assert whole(sequence("x"))[0] != whole(sequence("y"))[0]


def test_an_answer_ends_of_itself(sequence):
    text, ended = whole(sequence(max_tokens=1000))
    assert ended.usage.output_tok == DEFAULT_WORDS_TOK == len(text.split())
    assert ended.finish_reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("prompt", "given", "tok", "reason"),
    [
        ("[[tokens:5]]", {}, 5, "stop"),
        ("[[tokens:5]]", {"max_tokens": 3}, 3, "length"),
        ("[[tokens:5]]", {"max_tokens": 5}, 5, "stop"),
        ("[[tokens:5]]", {"max_tokens": 9, "params": Params(ignore_eos=True)}, 9, "length"),
        ("[[tokens:5]]", {"params": Params(min_tokens=7)}, 7, "stop"),
        ("[[say:a|b|c]]", {}, 3, "stop"),
        ("[[say:a|b|c]]", {"params": Params(min_tokens=5)}, 5, "stop"),
        ("x", {"room_tok": 2}, 2, "length"),
        ("[[tokens:0]]", {}, 1, "stop"),
    ],
)
def test_when_it_ends_and_why(sequence, prompt, given, tok, reason):
    _, ended = whole(sequence(prompt, **given))
    assert (ended.usage.output_tok, ended.finish_reason) == (tok, reason)


def test_stop_strings_are_held_back(sequence):
    text, ended = whole(sequence("[[say:ab|cd|ef]]", params=Params(stop=["bcde"])))
    assert (text, ended.finish_reason) == ("a", FinishReason.STOP)
    text, _ = whole(sequence("[[say:ab|cd|ef]]", params=Params(stop=["efg"])))
    assert text == "abcdef"


def test_an_error_after_two_tokens(sequence):
    _, ended = whole(sequence("[[error:ouch]]"))
    assert (ended.error, ended.usage.output_tok) == ("ouch", 2)
    assert whole(sequence("[[error]]"))[1].error == "scripted"


def test_a_resumed_run_says_the_rest(sequence):
    first = sequence("[[tokens:9]]")
    said = [first.say()[0] for _ in range(4)]
    rest = "".join(first.say()[0].text for _ in range(5))
    shown = "".join(chunk.text for chunk in said)
    again = sequence(
        "[[tokens:9]]",
        resume_tok_ids=[id for chunk in said for id in chunk.token_ids],
        resume_shown_chars=len(shown),
    )
    assert again.computed_tok == 8
    assert whole(again)[0] == rest
    unseen = sequence("[[tokens:9]]", resume_tok_ids=[0] * 4, resume_shown_chars=0)
    assert whole(unseen)[0] == shown + rest


def test_evicted_everything_is_computed_anew(sequence):
    one = sequence()
    one.admitted, one.prefilled_tok, one.kv_tok = True, 4, 4
    assert one.decodes
    one.say()
    one.evict()
    assert not one.decodes
    assert (one.kv_tok, one.prefilled_tok, one.computed_tok) == (0, 0, 5)
