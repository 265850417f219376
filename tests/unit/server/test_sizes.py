"""What a prompt measures: bytes that are sure, bytes that may be, tokens learned, memory."""

from typing import Any

import pytest

from onegate.engines.base import EngineCapacity, Reservation
from onegate.protocol import messages as m
from onegate.protocol.content import (
    FunctionCall,
    FunctionSpec,
    ImagePart,
    JsonSchema,
    Message,
    Params,
    ResponseFormat,
    TextPart,
    Tool,
    ToolCall,
)
from onegate.server.sizes import (
    REQUEST_BYTES,
    START_BYTES_PER_TOK,
    PromptSizes,
    held_bytes,
    least_tok,
    most_tok,
    template_bytes,
    text_bytes,
)

IMAGE = ImagePart(data=b"x" * 100_000, media_type="image/png")


def capacity(**fields: Any) -> EngineCapacity:
    return EngineCapacity(max_seqs=1, max_context_tok=100, reservation=Reservation.GROW, **fields)


def test_text_counts_in_bytes() -> None:
    assert text_bytes("über", None) == 5
    parts = [TextPart(text="ab"), ImagePart(data=b"1234", media_type="image/png")]
    messages = [Message(role="user", content="abc"), Message(role="user", content=parts)]
    assert text_bytes(None, messages) == 5
    assert text_bytes(None, [Message(role="assistant", thinking="long")]) == 0
    assert text_bytes(None, None) == 0


def test_what_a_template_may_leave_out_is_not_sure() -> None:
    call = ToolCall(id="1", function=FunctionCall(name="add", arguments="{}"))
    messages = [Message(role="assistant", thinking="hm", tool_calls=[call])]
    assert template_bytes(messages, None) == 2 + 3 + 2
    tool = Tool(function=FunctionSpec(name="add", description="d" * 100, parameters={"x": "y"}))
    assert template_bytes(None, [tool]) > 100
    assert template_bytes(None, None) == 0


def test_the_first_guess_is_the_starting_ratio() -> None:
    sizes = PromptSizes()
    assert sizes.estimate("tiny", 3000, 1) == 3000 / START_BYTES_PER_TOK + 16
    assert sizes.estimate("tiny", 0, 0) == 1


def test_a_ratio_is_learned_for_its_model_alone() -> None:
    sizes = PromptSizes()
    other = sizes.estimate("other", 6000, 1)
    sizes.learn("tiny", 6000, 1, 1016)
    assert sizes.estimate("tiny", 6000, 1) == 1016
    assert sizes.estimate("other", 6000, 1) == other
    sizes.learn("tiny", 6000, 1, 2016)
    assert 1016 < sizes.estimate("tiny", 6000, 1) < 2016


@pytest.mark.parametrize(("n_bytes", "prompt_tok"), [(63, 40), (6000, 20), (6000, 0)])
def test_what_is_mostly_template_teaches_nothing(n_bytes: int, prompt_tok: int) -> None:
    sizes = PromptSizes()
    before = sizes.estimate("tiny", 3000, 1)
    sizes.learn("tiny", n_bytes, 1, prompt_tok)
    assert sizes.estimate("tiny", 3000, 1) == before


@pytest.mark.parametrize(("prompt_tok", "ratio"), [(10**9, 1), (24, 16)])
def test_no_count_makes_a_ratio_absurd(prompt_tok: int, ratio: int) -> None:
    sizes = PromptSizes()
    sizes.learn("tiny", 10_000, 1, prompt_tok)
    assert sizes.estimate("tiny", 16_000, 0) == 16_000 / ratio


def test_bounds_that_are_proven() -> None:
    assert least_tok(capacity(max_bytes_per_tok=10), 101) == 11
    assert least_tok(capacity(max_bytes_per_tok=10), 0) == 1
    assert least_tok(capacity(), 10_000) == 1
    assert most_tok(100, 2) == 100 + 3 * 32


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("prompt", "x" * 100_000),
        ("suffix", "x" * 100_000),
        ("prompt_token_ids", list(range(3000))),
        ("messages", [Message(role="assistant", content="", thinking="x" * 100_000)]),
        (
            "messages",
            [
                Message(
                    role="user", content=[ImagePart(data=b"x" * 100_000, media_type="image/png")]
                )
            ],
        ),
        ("tools", [Tool(function=FunctionSpec(name="f", parameters={"k": ["x" * 100_000]}))]),
        ("tools", [Tool(function=FunctionSpec(name="f", parameters={"x" * 100_000: 1}))]),
        ("params", Params(stop=["x" * 1000] * 100)),
        (
            "params",
            Params(
                response_format=ResponseFormat(
                    type="json_schema", json_schema=JsonSchema(schema={"enum": ["x" * 100_000]})
                )
            ),
        ),
    ],
)
def test_everything_in_a_message_is_memory(field: str, value: Any) -> None:
    assert REQUEST_BYTES < held_bytes(m.Generate(id=1)) < REQUEST_BYTES + 2000
    assert 100_000 <= held_bytes(m.Generate(id=1, **{field: value})) < 220_000


def test_depth_is_no_danger() -> None:
    nested: Any = []
    for _ in range(5000):
        nested = [nested]
    tool = Tool(function=FunctionSpec(name="f", parameters={"k": nested}))
    assert held_bytes(m.Generate(id=1, tools=[tool])) > REQUEST_BYTES + 5000 * 56
