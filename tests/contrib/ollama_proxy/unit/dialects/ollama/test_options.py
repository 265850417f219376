"""`options`, `format`, `think` and `logprobs` in the wire's words."""

import json
from typing import Any

import pytest

from onegate.protocol.content import Params
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.ollama.options import Options, rest, think_of
from onegate_ollama_proxy.dialects.ollama.parameters import OPTIONS, PARAMETERS
from onegate_ollama_proxy.fields import Fields


def fields(**body: Any) -> Fields:
    return Fields(json.dumps(body).encode())


def params(**body: Any) -> Params:
    return Options(fields(**body)).params()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, {}),
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"top_k": 40, "top_p": 0.9, "min_p": 0.1}, {"top_k": 40, "top_p": 0.9, "min_p": 0.1}),
        ({"top_k": 0}, {}),
        ({"top_k": -1}, {}),
        ({"top_p": 0}, {"top_p": 1e-6}),
        ({"seed": 0}, {"seed": 0}),
        ({"seed": -1}, {}),
        ({"repeat_penalty": 1.1}, {"repeat_penalty": 1.1}),
        (
            {"presence_penalty": -1, "frequency_penalty": 1},
            {"presence_penalty": -1.0, "frequency_penalty": 1.0},
        ),
        ({"num_predict": 5}, {"max_tokens": 5}),
        ({"num_predict": -1}, {}),
        ({"num_predict": -2}, {}),
        ({"num_predict": 2**40}, {"max_tokens": 2**32 - 1}),
        ({"stop": "x"}, {"stop": ["x"]}),
        ({"stop": ["x", ""]}, {"stop": ["x"]}),
        ({"stop": []}, {}),
        ({"temperature": None}, {}),
        ({"mirostat": 2, "strange": 1}, {}),
    ],
)
def test_sampling(options: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert params(options=options) == Params(**wanted)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"options": 5}, "options"),
        ({"options": {"temperature": "hot"}}, "options.temperature"),
        ({"options": {"temperature": 3}}, "options.temperature"),
        ({"options": {"seed": 1.5}}, "options.seed"),
        ({"options": {"stop": [1]}}, "options.stop[0]"),
        ({"options": {"stop": ["x"] * 17}}, "options.stop"),
        ({"options": {"num_ctx": "big"}}, "options.num_ctx"),
        ({"format": "xml"}, "format"),
        ({"format": 5}, "format"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": "yes"}, "logprobs"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], path: str) -> None:
    with pytest.raises(BadAsk) as error:
        params(**body)
    assert error.value.path == path
    assert error.value.reason is Reason.INVALID


@pytest.mark.parametrize(
    ("said", "kind"),
    [("json", "json_object"), ({"type": "object"}, "json_schema"), ("", None), (None, None)],
)
def test_formats(said: Any, kind: str | None) -> None:
    found = params(format=said).response_format
    assert getattr(found, "type", None) == kind
    if kind == "json_schema":
        assert found.json_schema.schema == said  # type: ignore[union-attr]


def test_logprobs() -> None:
    assert params(logprobs=True, top_logprobs=3) == Params(logprobs=True, top_logprobs=3)
    assert params(logprobs=False, top_logprobs=3) == Params()


def test_the_context_that_is_wanted() -> None:
    assert Options(fields(options={"num_ctx": 4096})).context_tok == 4096
    assert Options(fields()).context_tok is None


@pytest.mark.parametrize(
    ("said", "think"),
    [
        (None, None),
        (True, True),
        (False, False),
        ("high", "high"),
        ("true", True),
        ("false", False),
    ],
)
def test_thinking(said: Any, think: Any) -> None:
    assert think_of(fields(think=said)) is think or think_of(fields(think=said)) == think


@pytest.mark.parametrize("said", ["very", 5, []])
def test_thinking_of_another_kind(said: Any) -> None:
    with pytest.raises(BadAsk) as error:
        think_of(fields(think=said))
    assert error.value.path == "think"


def test_what_is_left_out_is_said() -> None:
    body = fields(keep_alive="5m", shift=True, unheard=1, options={"num_gpu": 1, "x y": 2})
    options = Options(body)
    options.params()
    notices = rest(body, options)
    assert "options.num_gpu is accepted and left out" in notices
    assert "keep_alive is accepted and left out" in notices
    assert "unheard is not known here and was left out" in notices
    assert "x y" not in "".join(notices)  # whatever the client wrote there


def test_what_would_show_prompts_is_refused() -> None:
    with pytest.raises(BadAsk) as error:
        rest(fields(_debug_render_only=True), None)
    assert error.value.reason is Reason.UNSUPPORTED
    assert rest(fields(_debug_render_only=False), None) == ()


def test_every_option_of_the_table_is_one() -> None:
    """What the table calls honoured is not left out, and what it calls harmless is."""
    from onegate_ollama_proxy.ask import Fate

    values: dict[str, Any] = {"stop": "x", "repeat_penalty": 1.1, "num_predict": 1}
    for row in PARAMETERS:
        name = row.name.removeprefix(OPTIONS)
        if name == row.name or name == "num_ctx":
            continue
        body = fields(options={name: values.get(name, 1)})
        options = Options(body)
        found = options.params()
        left_out = bool(options.left_out())
        assert left_out is (row.fate is Fate.HARMLESS), row.name
        assert (found == Params()) is left_out, row.name
