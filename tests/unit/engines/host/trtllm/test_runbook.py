"""The configurations and commands of TENSORRT_LLM.md, and its list of points."""

import re
import shlex
import subprocess
from importlib import import_module
from pathlib import Path

import pytest
from cyclopts import App

from onegate import engines
from onegate.cli.bench import read_spec
from onegate.config import check, warnings
from onegate.config.engine import EngineConfig, TensorRtLlmConfig
from onegate.config.shape import shapes

RUNBOOK = Path(engines.__file__).with_name("TENSORRT_LLM.md").read_text(encoding="utf-8")
TESTS = Path(__file__).parents[4]
CODE = re.findall(r"`(onegate [^`]+)`", RUNBOOK)
SHELL = re.findall(r"```sh\n(.*?)```", RUNBOOK, re.DOTALL)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", RUNBOOK, re.DOTALL))
def test_each_configuration_is_one_without_warnings_of_the_engine(text):
    config = check(text)
    assert config.engine.kind == "tensorrt-llm"
    assert [w.path for w in warnings(config) if w.path.startswith("engine")] == []


def test_every_key_of_its_table_is_told():
    told = set(re.findall(r"`engine\.tensorrt_llm\.(\w+)`", RUNBOOK))
    assert told | {"load_timeout_s"} >= shapes(TensorRtLlmConfig).keys()
    assert set(re.findall(r"`engine\.(\w+)`", RUNBOOK)) <= shapes(EngineConfig).keys()


@pytest.mark.parametrize("command", sorted(set(CODE)))
def test_each_command_is_one_that_the_command_line_takes(command):
    verb, *given = shlex.split(command.partition(" > ")[0])[1:]
    name = verb.replace("-", "_")
    app = App(name="onegate")
    app.command(getattr(import_module(f"onegate.cli.{name}"), name), name=verb)
    app.parse_args([verb, *given], exit_on_error=False, print_error=False)
    for spec in re.findall(r"--vs (\S+)", command):
        assert read_spec(spec).kind == "host"


def test_there_are_commands_to_look_at():
    assert {command.split()[1] for command in CODE} == {"doctor", "status", "ask", "bench"}


@pytest.mark.parametrize("text", SHELL)
def test_each_block_for_the_shell_is_one(text):
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)


def test_every_point_has_a_test_of_its_number():
    points = re.findall(r"^(\d+)\. ", RUNBOOK.partition("## What the adapter")[2], re.MULTILINE)
    assert points == [str(n) for n in range(1, 26)]
    text = (TESTS / "contract/test_trtllm.py").read_text(encoding="utf-8")
    for names in re.findall(r"def test((?:_\d\d)+)_", text):
        points = [point for point in points if point.zfill(2) not in names.split("_")]
    assert points == []
