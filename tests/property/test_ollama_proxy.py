"""Whatever is sent to the proxy, it is read or refused with a sentence, and never anything else."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects import ollama, openai
from onegate_ollama_proxy.dialects.ollama.parameters import PARAMETERS as OLLAMA
from onegate_ollama_proxy.dialects.openai.parameters import PARAMETERS as OPENAI
from onegate_ollama_proxy.ears import LeasedEar
from onegate_ollama_proxy.leased import MESSAGES, RESPONSES, estimate_tok, read, tool_types
from onegate_ollama_proxy.management import shown
from onegate_ollama_proxy.refused import Refused

ROUTES = {route.path: route.parse for route in (*ollama.ROUTES, *openai.ROUTES)}

# Names that somebody reads somewhere, at the top and further down.
NAMES = sorted(
    {row.name.removeprefix("options.") for row in (*OLLAMA, *OPENAI)}
    | {"options", "role", "content", "type", "text", "image_url", "url", "function", "name"}
    | {"arguments", "tool_calls", "tool_call_id", "json_schema", "schema", "effort", "thinking"}
)
WORDS = st.sampled_from(
    [
        *("", "m", "user", "assistant", "tool", "system", "text", "function", "image_url"),
        *("json", "json_schema", "auto", "high", "web_search", "x:cloud", "0s"),
        "data:image/png;base64,iVBORw==",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORDS
    | st.text(max_size=20)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=8), inner, max_size=6)
    ),
    max_leaves=15,
)
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8).map(
    lambda fields: json.dumps({"model": "m", **fields}).encode()
)
ANYTHING = BODIES | st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode())


@pytest.mark.parametrize("path", ROUTES)
@settings(max_examples=60)
@given(body=ANYTHING)
def test_a_request_is_read_or_refused_with_a_sentence(path: str, body: bytes) -> None:
    try:
        said = ROUTES[path](body).ask.notices
    except BadAsk as error:
        said = (error.sentence,)
    assert all(0 < len(sentence) < 1000 for sentence in said)


@given(body=ANYTHING, kind=st.sampled_from([RESPONSES, MESSAGES]))
def test_a_request_under_a_lease_is_read_or_refused(body: bytes, kind) -> None:
    try:
        fields = read(body, kind)
        n_tok = estimate_tok(fields)
    except Refused as error:
        status = error.no.status
    else:
        status = 200
        assert n_tok >= 1
        assert all(isinstance(one, str) for one in tool_types(fields))
    assert status in (200, 400)


@given(body=ANYTHING)
def test_a_question_about_a_model_is_read_or_refused(body: bytes) -> None:
    try:
        name, question = shown(body)
    except Refused:
        return
    # Whatever the case of a key, Ollama finds this name in it and no other.
    keys = [key for key in json.loads(question) if key.casefold() in ("model", "name")]
    assert keys == ["model"]
    assert json.loads(question)["model"] == name


@given(
    pieces=st.lists(
        st.binary(max_size=40)
        | VALUES.map(lambda value: b"data: " + json.dumps(value).encode() + b"\n\n")
    ),
    is_stream=st.booleans(),
)
def test_an_answer_is_read_along_with_whatever_it_says(pieces, is_stream) -> None:
    ear = LeasedEar(MESSAGES.ends)
    ear.begin(SimpleNamespace(status=200), is_stream=is_stream)
    for piece in pieces:
        ear.hear(piece)
    ear.end()
    used = ear.usage()
    assert used is None or used.output_tok >= 0
