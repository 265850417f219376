"""An engine as it is chosen, as the text of a configuration."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onegate.config import check, warnings
from onegate.config.engine_tables import EngineChoice, installed, main

SHIPPED = Path(__file__).parents[3] / "systemd/onegate.toml"
TEMPLATE = SHIPPED.read_text(encoding="utf-8")
URL = "http://127.0.0.1:9"


def engine_of(choice: EngineChoice) -> Any:
    config = check(installed(TEMPLATE, choice))
    assert warnings(config) == []
    # It stays, for a change of mind; a server has no use for it.
    assert config.engine.host_socket == "/run/onegate-engine/host.sock"
    return config.engine


def test_the_embedded_engine_is_the_shipped_file() -> None:
    assert installed(TEMPLATE, EngineChoice("openvino")) == TEMPLATE


def test_a_model_of_ones_own() -> None:
    engine = engine_of(EngineChoice("openvino", ('/m/"a" ü.gguf',)))
    assert engine.model == '/m/"a" ü.gguf'
    assert engine.needs_host


def test_an_ollama_with_its_models() -> None:
    engine = engine_of(EngineChoice("ollama", ("a", "b:7b"), URL))
    assert (engine.kind, engine.needs_host) == ("ollama", False)
    assert engine.ollama.base_url == URL
    assert [model.model for model in engine.ollama.models] == ["a", "b:7b"]
    assert engine_of(EngineChoice("ollama", ("a",))).ollama.base_url == "http://127.0.0.1:11434"


@pytest.mark.parametrize("models", [(), ("a", "b")])
def test_a_server_with_an_openai_api(models: tuple[str, ...]) -> None:
    engine = engine_of(EngineChoice("openai", models, "unix:/run/x/x.sock:/v1"))
    assert engine.openai.base_url == "unix:/run/x/x.sock:/v1"
    assert tuple(pool.model for pool in engine.openai.pools) == models
    assert not engine.needs_host


def test_tensorrt_llm_in_its_own_environment() -> None:
    engine = engine_of(EngineChoice("tensorrt-llm", ("/srv/m",), python="/opt/t/bin/python"))
    assert (engine.model, engine.python) == ("/srv/m", "/opt/t/bin/python")
    assert engine.needs_host


@pytest.mark.parametrize(
    "choice",
    [
        EngineChoice("ollama", ("a",), URL),
        EngineChoice("openai", ("a",), URL),
        EngineChoice("tensorrt-llm", ("/m",), python="/p"),
        EngineChoice("scripted"),
    ],
)
def test_what_can_be_uncommented_is_good_and_the_embedded_engines_lines_are_gone(
    choice: EngineChoice,
) -> None:
    text = installed(TEMPLATE, choice)
    assert "# device = " not in text
    begin, end = text.index("[engine]"), text.index("[gate]")
    lines = [
        line.removeprefix("# ") if " = " in line and line.startswith("# ") else line
        for line in text[begin:end].splitlines()
    ]
    check("\n".join(lines))


def test_it_prints_what_install_sh_writes(capsys: Any) -> None:
    arguments = ["--engine", "ollama", "--model", "a", "--model", "b", "--base-url", URL]
    assert main([str(SHIPPED), *arguments]) == 0
    printed = capsys.readouterr().out
    assert printed == installed(TEMPLATE, EngineChoice("ollama", ("a", "b"), URL))


def test_what_is_no_good_is_said_and_not_printed(capsys: Any) -> None:
    far = ["--engine", "openai", "--base-url", "http://192.0.2.1/v1"]
    assert main([str(SHIPPED), *far]) == 78
    said = capsys.readouterr()
    assert said.out == ""
    assert "engine.openai.base_url: 192.0.2.1 is not this machine" in said.err


def test_it_runs_as_a_module_without_a_word_more() -> None:
    command = [sys.executable, "-W", "error", "-m", "onegate.config.engine_tables", SHIPPED]
    done = subprocess.run([*command, "--engine", "openvino"], capture_output=True, check=True)
    assert (done.stdout.decode(), done.stderr) == (TEMPLATE, b"")
