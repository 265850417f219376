"""What is asked, made to fit; and what of it is said."""

from typing import Any

import pytest
from msgspec import UNSET

from onegate.client.errors import RequestError, error_of
from onegate.protocol.content import (
    FunctionCall,
    FunctionSpec,
    ImagePart,
    Message,
    Params,
    TextPart,
    Tool,
    ToolCall,
)
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.messages import ClassLimits, Failed, ModelInfo
from onegate_ollama_proxy.ask import BadAsk, EmbedAsk, TextAsk
from onegate_ollama_proxy.fit import (
    fit_limits,
    options_of,
    served_model,
    shorter,
    shorter_texts,
)

TINY = ModelInfo(model="tiny", state="ready", max_context_tok=1000)
LIMITS = ClassLimits(max_tokens_default=50, max_tokens_max=400)


def said(role: Any, text: str) -> Message:
    return Message(role=role, content=text)


def ask(**fields: Any) -> TextAsk:
    return TextAsk(
        **({"model": "tiny", "stream": True, "messages": (said("user", "Hi"),)} | fields)
    )


def too_large(used: int | None, limit: int | None = 1000, reason: Reason = Reason.TOO_LARGE) -> Any:
    message = Failed(
        reason=reason, message="m", retryable=False, phase=Phase.ARRIVAL, used=used, limit=limit
    )
    error = error_of(message, started=False)
    assert isinstance(error, RequestError)
    return error


def test_the_gates_name_is_found() -> None:
    assert served_model("TINY", [TINY], {}) is TINY
    assert served_model("gpt", [TINY], {"gpt": "tiny"}) is TINY


def test_a_model_that_there_is_not() -> None:
    with pytest.raises(BadAsk) as error:
        served_model("hu\x1bge", [TINY], {"gpt": "tiny"})
    assert error.value.reason is Reason.WRONG_MODEL
    assert str(error.value) == "model 'hu?ge' not found; there are: tiny, gpt"


@pytest.mark.parametrize("max_tokens", [UNSET, 1, 400])
def test_what_is_within_the_maximum_stays(max_tokens: Any) -> None:
    before = ask(params=Params(max_tokens=max_tokens))
    assert fit_limits(before, TINY, "loop", LIMITS) is before


def test_above_the_maximum_it_is_lowered_and_said() -> None:
    after = fit_limits(ask(params=Params(max_tokens=401, seed=1)), TINY, "loop", LIMITS)
    assert after.params == Params(max_tokens=400, seed=1)
    assert "400 tokens, which is class loop's maximum" in after.notices[0]


def test_a_larger_context_than_there_is() -> None:
    fit_limits(ask(context_tok=1000), TINY, "loop", LIMITS)
    with pytest.raises(BadAsk) as error:
        fit_limits(ask(context_tok=1001), TINY, "loop", LIMITS)
    assert (error.value.reason, error.value.path) == (Reason.UNSUPPORTED, "options.num_ctx")
    unknown = ModelInfo(model="tiny", state="cold")
    fit_limits(ask(context_tok=10**6), unknown, "loop", LIMITS)


# --- too large ------------------------------------------------------------------------------------


def test_first_the_answer_is_bounded_by_what_the_context_leaves() -> None:
    before = ask(params=Params(max_tokens=900), truncate=False)
    after = shorter(before, too_large(used=1100), truncate=True)
    assert after is not None
    assert after.params.max_tokens == 800
    assert "800 tokens" in after.notices[-1]
    assert after.messages == before.messages


def test_a_bound_that_does_not_change_is_not_tried_again() -> None:
    before = ask(params=Params(max_tokens=10), truncate=False)
    after = shorter(before, too_large(used=1000, limit=1000), truncate=True)
    assert after is not None
    assert after.params.max_tokens == 9


LONG = tuple(said("user" if i % 2 == 0 else "assistant", "x" * 1000) for i in range(10))


def test_then_the_oldest_messages_go() -> None:
    before = ask(messages=(said("system", "be kind"), *LONG, said("user", "Hi")), truncate=True)
    after = shorter(before, too_large(used=2000), truncate=True)
    assert after is not None
    assert after.messages is not None
    assert after.messages[0] == said("system", "be kind")
    assert after.messages[-1] == said("user", "Hi")
    assert after.messages[1:-1] == LONG[-4:]
    assert after.notices[-1] == "6 of 12 messages did not fit"


def test_an_answer_to_a_call_that_is_gone_goes_with_it() -> None:
    call = ToolCall(id="1", function=FunctionCall(name="f", arguments="x" * 1000))
    turns = (
        Message(role="assistant", content="", tool_calls=[call]),
        Message(role="tool", content="y", name="f"),
        said("user", "Hi"),
    )
    after = shorter(ask(messages=turns, truncate=True), too_large(used=1100), truncate=True)
    assert after is not None
    assert after.messages == turns[2:]


@pytest.mark.parametrize(
    ("fields", "truncate"),
    [
        ({"truncate": False}, True),  # the client wants none of it
        ({"truncate": True}, False),  # nor does the class
        ({"truncate": True, "messages": None, "prompt": "x"}, True),
        ({"truncate": True, "messages": (said("user", "x" * 9000),)}, True),
        ({"truncate": True, "messages": (said("system", "x" * 9000), said("user", "x"))}, True),
    ],
)
def test_what_stays_refused(fields: dict[str, Any], truncate: bool) -> None:
    before = ask(**({"messages": (*LONG, said("user", "Hi"))} | fields))
    assert shorter(before, too_large(used=2000), truncate=truncate) is None


@pytest.mark.parametrize(
    "error",
    [too_large(None), too_large(5, None), too_large(5000, reason=Reason.TOKENS_FULL)],
)
def test_without_figures_nothing_is_tried(error: RequestError) -> None:
    before = ask(messages=(*LONG, said("user", "Hi")), truncate=True, params=Params(max_tokens=9))
    assert shorter(before, error, truncate=True) is None


def test_images_and_calls_have_a_size() -> None:
    image = ImagePart(data=b"\0" * 100_000, media_type="image/png")
    turns = (
        Message(role="user", content=[TextPart(text="x" * 100), image]),
        *(said("user", "y" * 1000) for _ in range(4)),
        said("user", "Hi"),
    )
    after = shorter(ask(messages=turns, truncate=True), too_large(used=1300), truncate=True)
    assert after is not None
    # Going by its bytes the image alone would have been all there is.
    assert after.messages == turns[1:]


# --- texts to embed -------------------------------------------------------------------------------


def test_texts_are_cut_at_their_ends() -> None:
    before = EmbedAsk(model="tiny", inputs=("a" * 3000, "b" * 10), truncate=True)
    after = shorter_texts(before, too_large(used=2000))
    assert after is not None
    assert after.inputs == ("a" * 1350, "b" * 10)
    assert "1350 characters" in after.notices[-1]


@pytest.mark.parametrize(
    ("truncate", "error"),
    [
        (False, too_large(used=2000)),
        (True, too_large(used=500)),
        (True, too_large(None)),
        (True, too_large(5000, reason=Reason.INVALID)),
        (True, too_large(used=10**9)),
    ],
)
def test_texts_that_stay(truncate: bool, error: RequestError) -> None:
    before = EmbedAsk(model="tiny", inputs=("a" * 3000,), truncate=truncate)
    assert shorter_texts(before, error) is None


# --- in the client library's words ----------------------------------------------------------------


def test_what_is_not_said_is_not_passed_on() -> None:
    found = options_of(ask(), model="tiny", class_="loop")
    assert found == {"model": "tiny", "class_": "loop", "messages": [said("user", "Hi")]}


def test_everything_is_passed_on() -> None:
    tool = Tool(function=FunctionSpec(name="f"))
    params = Params(max_tokens=5, temperature=0.0, stop=["x"], logprobs=True)
    found = options_of(
        ask(tools=(tool,), tool_choice="auto", think=False, params=params),
        model="tiny",
        class_="loop",
    )
    assert found["tools"] == [tool]
    assert found["tool_choice"] == "auto"
    assert found["think"] is False
    assert (found["max_tokens"], found["temperature"], found["logprobs"]) == (5, 0.0, True)
    assert found["stop"] == ["x"]
    raw = options_of(
        ask(messages=None, prompt="x", raw=True, suffix="y"), model="tiny", class_="loop"
    )
    assert (raw["raw"], raw["suffix"], "messages" in raw) == (True, "y", False)
