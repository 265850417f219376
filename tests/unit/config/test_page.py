"""The page that documents every key."""

import os
import tomllib
from pathlib import Path

import pytest

from onegate.config import Config, Grant, Hint, check, page, reference, rule_text
from onegate.config.classes import ClassConfig
from onegate.config.engine import (
    EngineConfig,
    ScriptedConfig,
    ScriptedPool,
    TensorRtLlmConfig,
)
from onegate.config.gate import GateConfig
from onegate.config.http import OpenAiConfig, OpenAiPool
from onegate.config.log import LogConfig
from onegate.config.ollama import OllamaConfig, OllamaModel
from onegate.config.page import toml_value
from onegate.config.shape import shapes
from onegate.config.usage import UsageConfig

KINDS = [
    *(EngineConfig, OllamaConfig, OllamaModel, OpenAiConfig, OpenAiPool),
    *(ScriptedConfig, ScriptedPool, TensorRtLlmConfig, GateConfig, UsageConfig, LogConfig),
    *(ClassConfig, Grant, Hint),
]


def rows() -> list[list[str]]:
    lines = [line for line in reference().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_key_has_a_row() -> None:
    keys = [key for kind in KINDS for key in shapes(kind)]
    assert [row[0].strip("`") for row in rows()] == keys


def test_every_row_says_why() -> None:
    assert all(row[-1] for row in rows())


def test_defaults_can_be_pasted_into_a_file() -> None:
    kinds = {"gate": GateConfig, "engine": EngineConfig, "usage": UsageConfig, "log": LogConfig}
    text = ""
    for table, kind in kinds.items():
        text += f"[{table}]\n"
        for key, (field, shape) in shapes(kind).items():
            if shape.table is None:
                text += f"{key} = {toml_value(field.default, shape)}\n"
    for cls in Config().classes:
        text += "[[class]]\n"
        for key, (field, shape) in shapes(ClassConfig).items():
            text += f"{key} = {toml_value(getattr(cls, field.name), shape)}\n"
    tomllib.loads(text)
    assert check(text) == Config()


def test_the_shipped_rules_are_listed_in_order() -> None:
    page = reference()
    config = Config()
    places = [page.index(f"`{rule_text(rule)}`") for rule in config.shipped_grants]
    assert places == sorted(places)
    assert all(f"`{rule_text(rule)}`" in page for rule in config.shipped_hints)


def test_the_stored_page_is_up_to_date() -> None:
    stored = Path(page.__file__).with_name("CONFIG.md")
    if os.environ.get("ONEGATE_ACCEPT") == "1":
        stored.write_text(reference(), encoding="utf-8")
    assert stored.read_text(encoding="utf-8") == reference(), "ONEGATE_ACCEPT=1 rewrites it"


def test_the_page_is_the_same_each_time() -> None:
    assert reference() == reference()
    assert reference().endswith("\n")


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (
            Grant(slice="user-*.slice", ceiling="batch"),
            'slice = "user-*.slice" -> ceiling = "batch"',
        ),
        (Grant(uid=0, group="g", admin=True), 'uid = 0, group = "g" -> admin = true'),
        (Hint(tty=False, class_="loop"), 'tty = false -> class = "loop"'),
    ],
)
def test_a_rule_on_one_line(rule: Grant | Hint, text: str) -> None:
    assert rule_text(rule) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, '"none"'), (True, "true"), (3, "3"), (0.05, "0.05"), (2700.0, "2700")),
        *(("a", '"a"'), ((), "[]"), (("a", "b"), '["a", "b"]')),
    ],
)
def test_values_as_in_a_file(value: object, text: str) -> None:
    assert toml_value(value) == text


def test_a_mode_is_octal() -> None:
    assert toml_value(0o660, shapes(GateConfig)["socket_mode"][1]) == "0o660"


def test_keys_that_need_a_restart_are_marked() -> None:
    marked = {row[0].strip("`") for row in rows() if "*(restart)*" in row[-1]}
    assert {"kind", "socket_path"} <= marked
    assert "max_in_flight" not in marked
