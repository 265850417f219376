"""The page says what the code does: its tables are the code's, its configurations are read.

ONEGATE_ACCEPT=1 writes the tables anew.
"""

import os
import re
import tomllib
from pathlib import Path

import pytest
from msgspec import Struct, structs

from onegate.config import check as check_gate
from onegate_ollama_proxy.ask import Fate, Parameter
from onegate_ollama_proxy.config import (
    Config,
    HintConfig,
    ListenerConfig,
    ManagementConfig,
    WaitingConfig,
    check,
)
from onegate_ollama_proxy.dialects.ollama import parameters as ollama
from onegate_ollama_proxy.dialects.openai import parameters as openai

PAGE = Path(__file__).parents[4] / "contrib/ollama-proxy/README.md"
DIALECTS = {"ollama": ollama.PARAMETERS, "openai": openai.PARAMETERS}


def table(rows: tuple[Parameter, ...]) -> str:
    """The three lists, one after the other, each in the code's order."""
    lines = ["| parameter | what becomes of it | |", "|---|---|---|"]
    for fate in Fate:
        found = [row for row in rows if row.fate is fate]
        lines += [f"| `{row.name}` | {fate} | {row.says} |" for row in found]
    return "\n".join(lines)


def place(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- parameters: {name} -->\n)((?:\|.*\n)*)")


@pytest.mark.parametrize("name", DIALECTS)
def test_the_table_is_the_codes(name):
    text = PAGE.read_text(encoding="utf-8")
    wanted = table(DIALECTS[name]) + "\n"
    if os.environ.get("ONEGATE_ACCEPT") == "1":
        text = place(name).sub(lambda found: found[1] + wanted, text)
        PAGE.write_text(text, encoding="utf-8")
    found = place(name).search(text)
    assert found is not None
    assert found[2] == wanted, "ONEGATE_ACCEPT=1 writes it"


@pytest.mark.parametrize("name", DIALECTS)
def test_no_parameter_is_there_twice_and_each_says_something(name):
    names = [row.name for row in DIALECTS[name]]
    assert len(names) == len(set(names))
    assert all(row.says and "|" not in row.says for row in DIALECTS[name])


def documents() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"```toml\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("text", documents())
def test_every_configuration_is_one(text):
    document = tomllib.loads(text)
    # The gate's classes are an array of tables, the proxy's have names.
    if "grant" in document or isinstance(document.get("class"), list):
        check_gate(text)
    else:
        check(text)


def test_there_are_configurations():
    assert len(documents()) >= 5


def keys(kind: type[Struct], prefix: str = "") -> set[str]:
    """Every key of the configuration, as the page writes it."""
    found: set[str] = set()
    for field in structs.fields(kind):
        tables = {"listener": ListenerConfig, "hint": HintConfig, "management": ManagementConfig}
        name = prefix + field.encode_name
        if field.encode_name == "class" and not prefix:
            found |= keys(WaitingConfig, "class.NAME.")
        elif field.encode_name in tables and not prefix:
            found |= keys(tables[field.encode_name], f"{name}.")
        else:
            found.add(name)
    return found


def test_every_key_is_on_the_page_and_no_other():
    table = PAGE.read_text(encoding="utf-8").partition("<!-- keys -->")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([^`]+)`", "".join(first_cells))) == keys(Config)
