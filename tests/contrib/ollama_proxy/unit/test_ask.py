"""What is asked, before it is known of whom."""

import pytest

from onegate.protocol.content import Params
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk, TextAsk


def test_an_error_has_a_sentence_a_field_and_a_reason() -> None:
    error = BadAsk("leave it out", path="x")
    assert (str(error), error.path, error.reason) == ("leave it out", "x", Reason.INVALID)


def test_what_is_not_said_is_not_asked() -> None:
    ask = TextAsk(model="m", stream=True, prompt="Hi")
    assert ask.params == Params()
    assert (ask.messages, ask.tools, ask.truncate, ask.notices) == (None, (), False, ())


def test_an_ask_does_not_change() -> None:
    with pytest.raises(AttributeError):
        TextAsk(model="m", stream=True).model = "n"  # type: ignore[misc]
