"""What a version can do."""

import pytest

from onegate.engines.ollama.version import parse_version


@pytest.mark.parametrize(
    ("text", "number", "logprobs", "status"),
    [
        ("0.9.3", (0, 9, 3), False, False),
        ("0.5.4-ipexllm-20250407", (0, 5, 4), False, False),
        ("0.12.10", (0, 12, 10), False, False),
        ("0.12.11", (0, 12, 11), True, False),
        ("0.16.2", (0, 16, 2), True, True),
        ("v0.33.0-rc2", (0, 33, 0), True, True),
        ("1.0.0", (1, 0, 0), True, True),
        ("0.0.0", (0, 0, 0), True, True),
        ("", None, False, False),
        ("newest", None, False, False),
        ("0.12", None, False, False),
        ("0.12.11.5", None, False, False),
        ("0.12.9999999999", None, False, False),
    ],
)
def test_what_it_has(text, number, logprobs, status):
    version = parse_version(text)
    assert version.text == text
    assert version.number == number
    assert (version.logprobs, version.status) == (logprobs, status)
    # By reading, both came before 0.12.11 was out; what came with it first is not known here.
    assert version.whole_prompts == logprobs
