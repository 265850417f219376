"""Names of models, as Ollama reads them."""

import pytest

from onegate_ollama_proxy.names import canonical, resolve


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("Llama3", "llama3:latest"),
        ("llama3:8B", "llama3:8b"),
        (" llama3:latest ", "llama3:latest"),
        ("localhost:5000/me/x", "localhost:5000/me/x:latest"),
        ("hf.co/a/b:Q4_K_M", "hf.co/a/b:q4_k_m"),
        ("x:", "x:latest"),
    ],
)
def test_one_spelling(name: str, same: str) -> None:
    assert canonical(name) == same


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("tiny", "tiny"),
        ("TINY:latest", "tiny"),
        ("big:7b", "Big:7B"),
        ("big", None),
        ("gpt", "tiny"),
        ("GPT:latest", "tiny"),
        ("lost", None),
    ],
)
def test_what_is_asked_for_is_found(asked: str, found: str | None) -> None:
    aliases = {"gpt": "tiny", "lost": "gone"}
    assert resolve(asked, ["tiny", "Big:7B"], aliases) == found
