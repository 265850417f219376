"""The configurations of TENSORRT_LLM.md, and its list of points."""

import re
from pathlib import Path

import pytest

from onegate import engines
from onegate.config import check, warnings
from onegate.config.engine import EngineConfig, TensorRtLlmConfig
from onegate.config.shape import shapes

RUNBOOK = Path(engines.__file__).with_name("TENSORRT_LLM.md").read_text(encoding="utf-8")
TESTS = Path(__file__).parents[4]


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", RUNBOOK, re.DOTALL))
def test_each_configuration_is_one_without_warnings_of_the_engine(text):
    config = check(text)
    assert config.engine.kind == "tensorrt-llm"
    assert [w.path for w in warnings(config) if w.path.startswith("engine")] == []


def test_every_key_of_its_table_is_told():
    told = set(re.findall(r"`engine\.tensorrt_llm\.(\w+)`", RUNBOOK))
    assert told | {"load_timeout_s"} >= shapes(TensorRtLlmConfig).keys()
    assert set(re.findall(r"`engine\.(\w+)`", RUNBOOK)) <= shapes(EngineConfig).keys()


def test_every_point_has_a_test_of_its_number():
    points = re.findall(r"^(\d+)\. ", RUNBOOK.partition("## What the adapter")[2], re.MULTILINE)
    assert points == [str(n) for n in range(1, 26)]
    text = (TESTS / "contract/test_trtllm.py").read_text(encoding="utf-8")
    for names in re.findall(r"def test((?:_\d\d)+)_", text):
        points = [point for point in points if point.zfill(2) not in names.split("_")]
    assert points == []
