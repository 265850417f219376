"""Every name that is passed, against what a package says of itself: the stand-in, and the real one
where there is one (`ONEGATE_TRTLLM_PYTHON=/opt/trtllm/bin/python`)."""

import json
import os
import subprocess
import sys

import pytest
from tests.contract.trtllm import stand_in

from onegate.engines.host.trtllm.surface import KNOWN

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
    max_tokens=1, n=1, top_k=1, ignore_eos=True, detokenize=False, min_tokens=1, temperature=0.5,
    top_p=0.5, guided_decoding=library.guided(json_object=True),
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


def looked(python: str) -> dict:
    done = subprocess.run([python, "-c", LOOK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def has_package(python: str) -> bool:
    program = "import importlib.util, sys; sys.exit(not importlib.util.find_spec('tensorrt_llm'))"
    return subprocess.run([python, "-c", program], check=False).returncode == 0


def test_03_every_name_is_one_that_the_stand_in_takes(tmp_path):
    found = looked(stand_in(tmp_path).python)
    assert found == {"version": "1.2.1", "missing": [], "methods": [], "priority": False}


def test_03_every_name_is_one_that_the_package_takes():
    python = os.environ.get("ONEGATE_TRTLLM_PYTHON", sys.executable)
    if not has_package(python):
        pytest.skip(f"absent tensorrt-llm: {python} does not have the package")
    found = looked(python)
    assert found["missing"] == [], f"TensorRT-LLM {found['version']}"
    assert found["methods"] == []


def test_25_a_look_at_another_package_would_show_it(tmp_path):
    """The check can fail: an older release does not take everything."""
    found = looked(stand_in(tmp_path, version="1.0.0").python)
    assert found["missing"] == ["KvCacheConfig.dtype", "generate_async.cache_salt"]
    assert set(KNOWN) >= {"LLM", "generate_async", "SamplingParams"}
