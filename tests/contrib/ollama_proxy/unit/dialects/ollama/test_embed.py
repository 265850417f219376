"""`POST /api/embed` and `/api/embeddings`."""

import json
from typing import Any

import pytest

from onegate_ollama_proxy.ask import BadAsk, EmbedAsk, LoadExchange
from onegate_ollama_proxy.dialects.ollama.embed import parse_embed, parse_embeddings


def parse(**body: Any) -> Any:
    return parse_embed(json.dumps({"model": "tiny"} | body).encode())


def old(**body: Any) -> Any:
    return parse_embeddings(json.dumps({"model": "tiny"} | body).encode())


@pytest.mark.parametrize(("said", "inputs"), [("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_one_text_or_several(said: Any, inputs: tuple[str, ...]) -> None:
    assert parse(input=said).ask == EmbedAsk(model="tiny", inputs=inputs, truncate=True)


def test_how() -> None:
    ask = parse(input="a", truncate=False, dimensions=3, keep_alive=1).ask
    assert (ask.truncate, ask.dimensions) == (False, 3)
    assert ask.notices == ("keep_alive is accepted and left out",)
    assert parse(input="a", dimensions=0).ask.dimensions is None


def test_the_older_route() -> None:
    assert old(prompt="a").ask == EmbedAsk(model="tiny", inputs=("a",), truncate=True)


@pytest.mark.parametrize(
    ("found", "document"),
    [
        (parse(input=[]), {"model": "tiny", "embeddings": []}),
        (parse(), {"model": "tiny", "embeddings": []}),
        (old(prompt=""), {"embedding": []}),
        (old(), {"embedding": []}),
    ],
)
def test_without_a_text_it_only_loads(found: Any, document: dict[str, Any]) -> None:
    assert isinstance(found, LoadExchange)
    assert json.loads(found.document(1)) == document


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"input": 5}, "input"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": "a", "dimensions": -1}, "dimensions"),
        ({"input": "a", "options": {"seed": "x"}}, "options.seed"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], path: str) -> None:
    with pytest.raises(BadAsk) as error:
        parse(**body)
    assert error.value.path == path
