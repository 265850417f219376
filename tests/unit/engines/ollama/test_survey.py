"""What is read out of Ollama's descriptions."""

import msgspec
import pytest

from onegate.engines.ollama.survey import stops, trained_tok


def test_the_models_own_stop_strings():
    text = (
        'num_ctx                        4096\nstop                           "<|im_start|>"\n'
        'stop   "a\\"b\\n"\ntemperature  0.7\nstop "\\u00e9"'
    )
    assert stops(text) == ("<|im_start|>", 'a"b\n', "é")


@pytest.mark.parametrize("text", ["", "stop", 'stop "', 'stop ""', 'stop "\\xzz"', 'stopper "x"'])
def test_what_is_no_stop_string(text):
    assert stops(text) == ()


@pytest.mark.parametrize(
    ("info", "tok"),
    [
        ({"general.architecture": b'"llama"', "llama.context_length": b"8192"}, 8192),
        ({}, None),
        ({"x.context_length": b'"many"'}, None),
        ({"x.context_length": b"0"}, None),
        ({"x.context_length": b"1e99"}, None),
    ],
)
def test_the_context_that_it_was_trained_for(info, tok):
    assert trained_tok({key: msgspec.Raw(value) for key, value in info.items()}) == tok


def test_there_is_an_end_of_stop_strings():
    assert stops("".join(f'stop "{i}"\n' for i in range(200))) == tuple(map(str, range(64)))
    assert stops("x" * (64 << 10) + '\nstop "far"') == ()
