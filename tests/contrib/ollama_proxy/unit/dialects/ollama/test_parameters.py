"""The table of Ollama's parameters."""

from onegate_ollama_proxy.ask import Fate
from onegate_ollama_proxy.dialects.ollama.parameters import HARMLESS, PARAMETERS


def test_what_is_harmless_is_what_the_table_says() -> None:
    assert {row.name for row in PARAMETERS if row.fate is Fate.HARMLESS} == HARMLESS
    assert "keep_alive" in HARMLESS
    assert "options.num_ctx" in HARMLESS
