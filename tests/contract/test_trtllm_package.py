"""Every name that is passed, against what a package says of itself: the stand-in, and the real one
where there is one (`ONEGATE_TRTLLM_PYTHON=/opt/trtllm/bin/python`).

And both of them against `trtllm_1_2_1.json`: names and defaults of release 1.2.1 as its own
published source pages have them, "(required)" for a name without a default and "(made)" for one
that is made anew. The stand-in has them all and no others.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.contract.trtllm import stand_in

from onegate.engines.host.trtllm.surface import BY_SIGNATURE, KNOWN

CONTRACT = json.loads(Path(__file__).with_name("trtllm_1_2_1.json").read_text(encoding="utf-8"))

# Run by the interpreter that has the package: which names does each call not take, and what is
# there of the rest. Building settings objects shows that their classes take them, too.
LOOK = """
import json, sys
from onegate.engines.host.trtllm.library import open_library
from onegate.engines.host.trtllm.surface import KNOWN
library = open_library(None)
missing = [
    f"{call}.{name}" for call, names in KNOWN.items() for name in names
    if not library.surface.takes(call, name)
]
params = library.sampling_params(
    max_tokens=1, n=1, top_k=1, ignore_eos=True, detokenize=False, temperature=0.5, top_p=0.5,
    guided_decoding=library.guided(json_object=True),
)
library.kv_cache_config(enable_block_reuse=True, max_tokens=64, free_gpu_memory_fraction=0.5)
policy = "GUARANTEED_NO_EVICT"
policy = library.policies[policy] if library.policies is not None else policy
library.scheduler_config(capacity_scheduler_policy=policy)
llm = library.llm
methods = ("generate_async", "get_stats", "shutdown", "_check_health")
print(json.dumps({
    "version": library.version,
    "missing": missing,
    "methods": [name for name in methods if not callable(getattr(llm, name, None))],
    "priority": library.surface.takes("generate_async", "priority"),
}))
"""

# Run by the same: the shape of everything that the list is about.
SHAPE = """
import inspect, json, sys
import tensorrt_llm, tensorrt_llm.llmapi as llmapi
from tensorrt_llm.llmapi.llm_args import TorchLlmArgs

def told(default):
    if default is inspect.Parameter.empty or default is ...:
        return "(required)"
    default = getattr(default, "value", default)
    return default if isinstance(default, (bool, int, float, str, type(None))) else "(made)"

def parameters(call):
    return {
        p.name: told(p.default) for p in inspect.signature(call).parameters.values()
        if p.name != "self" and p.kind is not p.VAR_KEYWORD
    }

def fields(kind):
    def default(field):
        required = getattr(field, "is_required", None)
        if required is None:
            return told(field)
        made = getattr(field, "default_factory", None) is not None
        return "(required)" if required() else "(made)" if made else told(field.default)
    return {name: default(field) for name, field in kind.model_fields.items()}

def names(kind, of):
    return sorted(
        n for n, v in inspect.getmembers(kind, of)
        if not n.startswith("_") or n in ("_check_health", "__await__", "__aiter__", "__anext__",
                                          "__iter__", "__next__")
    )

is_property = lambda value: isinstance(value, property)
LLM = tensorrt_llm.LLM
Output = tensorrt_llm.llmapi.RequestOutput
Completion = tensorrt_llm.llmapi.CompletionOutput
print(json.dumps({
    "LLM": {
        "parameters": parameters(LLM),
        "fields": fields(TorchLlmArgs),
        "methods": {
            n: parameters(getattr(LLM, n)) for n in names(LLM, inspect.isfunction)
            if n != "generate_async"
        },
        "properties": names(LLM, is_property),
    },
    "generate_async": parameters(LLM.generate_async),
    "SamplingParams": parameters(tensorrt_llm.SamplingParams),
    "GuidedDecodingParams": parameters(llmapi.GuidedDecodingParams),
    "KvCacheConfig": fields(llmapi.KvCacheConfig),
    "SchedulerConfig": fields(llmapi.SchedulerConfig),
    "CapacitySchedulerPolicy": sorted(p.value for p in llmapi.CapacitySchedulerPolicy),
    "RequestOutput": {"methods": names(Output, inspect.isfunction)},
    "CompletionOutput": {
        "parameters": parameters(Completion), "properties": names(Completion, is_property),
    },
}))
"""


def run(python: str, program: str) -> dict:
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def has_package(python: str) -> bool:
    program = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('tensorrt_llm'))"
    return subprocess.run([python, "-c", program], check=False).returncode == 0


def test_03_every_name_is_one_that_the_stand_in_takes(tmp_path):
    found = run(stand_in(tmp_path).python, LOOK)
    assert found == {"version": "1.2.1", "missing": [], "methods": [], "priority": False}


@pytest.fixture
def package() -> str:
    """An interpreter that has the package."""
    python = os.environ.get("ONEGATE_TRTLLM_PYTHON", sys.executable)
    if not has_package(python):
        pytest.skip(f"absent tensorrt-llm: {python} does not have the package")
    return python


def test_03_every_name_is_one_that_the_package_takes(package):
    python = package
    found = run(python, LOOK)
    assert found["missing"] == [], f"TensorRT-LLM {found['version']}"
    assert found["methods"] == []


def test_25_a_look_at_another_package_would_show_it(tmp_path):
    """The check can fail: an older release does not take everything."""
    found = run(stand_in(tmp_path, version="1.0.0").python, LOOK)
    assert found["missing"] == ["KvCacheConfig.dtype", "generate_async.cache_salt"]
    assert set(KNOWN) >= {"LLM", "generate_async", "SamplingParams"}


def wanted(part: str) -> object:
    """The list's entry, in the shape that is looked at."""
    entry = CONTRACT[part]
    if part == "LLM":
        return {
            **{name: entry[name] for name in ("parameters", "fields", "methods")},
            "properties": sorted(entry["properties"]),
        }
    if part == "RequestOutput":
        return {"methods": sorted(entry["methods"])}
    if part == "CompletionOutput":
        return {**entry, "properties": sorted(entry["properties"])}
    return entry


PARTS = [part for part in CONTRACT if part not in ("release", "finish_reasons")]


@pytest.fixture(scope="module")
def shape(tmp_path_factory) -> dict:
    return run(stand_in(tmp_path_factory.mktemp("shape")).python, SHAPE)


@pytest.mark.parametrize("part", PARTS)
def test_25_the_stand_in_has_what_the_release_has_and_nothing_else(shape, part):
    assert shape[part] == wanted(part)


def test_25_an_output_of_the_stand_in_has_the_attributes_of_the_releases(tmp_path):
    program = (
        "import asyncio, json\nfrom tensorrt_llm.outputs import RequestOutput\n"
        "async def look():\n"
        "    output = RequestOutput(None, 1, [1], None, True)\n"
        "    print(json.dumps({'names': [n for n in vars(output) if not n.startswith('_')]}))\n"
        "asyncio.run(look())"
    )
    found = run(stand_in(tmp_path).python, program)["names"]
    assert sorted(found) == sorted(CONTRACT["RequestOutput"]["attributes"])


def test_03_what_is_passed_is_in_the_list_and_not_deprecated():
    lists = {
        "LLM": CONTRACT["LLM"]["fields"].keys() - set(CONTRACT["LLM"]["deprecated"]),
        **{name: CONTRACT[name].keys() for name in KNOWN if name != "LLM"},
    }
    for call, names in KNOWN.items():
        assert names.keys() <= lists[call], call
    for call, names in BY_SIGNATURE.items():
        assert not names & lists[call], call


def test_25_the_package_has_what_the_list_has(package):
    """Of the installed one: more is no harm, and another release has other defaults."""
    shape = run(package, SHAPE)
    for part in PARTS:
        found, listed = shape[part], wanted(part)
        if part in ("LLM", "RequestOutput", "CompletionOutput"):
            missing = {
                f"{k}.{n}" for k, names in listed.items() for n in names if n not in found[k]
            }
        else:
            missing = {name for name in listed if name not in found}
        assert missing == set(), part
