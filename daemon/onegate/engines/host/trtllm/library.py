"""The package itself: found, compared with what is known of it, and imported when it is needed.

The only module that imports it. Importing takes seconds and brings CUDA and MPI in, so it happens
in the thread that loads the model.
"""

import importlib
import importlib.metadata
import sys
from dataclasses import dataclass
from typing import Any

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm.faults import words_of
from onegate.engines.host.trtllm.gpu import GpuFacts
from onegate.engines.host.trtllm.surface import Surface, names_of, release_of

DISTRIBUTION = "tensorrt-llm"


@dataclass(frozen=True)
class Library:
    """What of the package is used here. `policies` is None where it names policies by text."""

    version: str
    surface: Surface
    llm: Any
    sampling_params: Any
    guided: Any
    kv_cache_config: Any
    scheduler_config: Any
    policies: Any


def installed_version() -> str | None:
    """The installed version, without importing it; None where there is none."""
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def open_library(gpu: GpuFacts | None) -> Library:
    """Import the package. `gpu` is for the words of an error.

    Raises LoadFailed with the sentence for the operator.
    """
    version = installed_version()
    if version is None:
        raise LoadFailed(
            f"TensorRT-LLM is not installed for {sys.executable}: make it an environment of its "
            "own and name its interpreter in engine.python, see TENSORRT_LLM.md"
        )
    release_of(version)  # a release that is too old has other errors, which explain less
    try:
        return _described(
            version,
            importlib.import_module("tensorrt_llm"),
            importlib.import_module("tensorrt_llm.llmapi"),
        )
    except Exception as error:
        # A broken CUDA, MPI or torch shows itself here, as whatever its loader raises, and a
        # release that has moved what is used.
        what = f"TensorRT-LLM {version} cannot be used"
        raise LoadFailed(words_of(error, what=what, gpu=gpu)) from error


def _described(version: str, package: Any, llmapi: Any) -> Library:
    signatures = {
        "LLM": _fields_of_llm(package.LLM),
        "generate_async": names_of(package.LLM.generate_async),
        "SamplingParams": names_of(package.SamplingParams),
        "KvCacheConfig": names_of(llmapi.KvCacheConfig),
        "SchedulerConfig": names_of(llmapi.SchedulerConfig),
        "GuidedDecodingParams": names_of(llmapi.GuidedDecodingParams),
    }
    return Library(
        version=version,
        surface=Surface(version, signatures),
        llm=package.LLM,
        sampling_params=package.SamplingParams,
        guided=llmapi.GuidedDecodingParams,
        kv_cache_config=llmapi.KvCacheConfig,
        scheduler_config=llmapi.SchedulerConfig,
        policies=getattr(llmapi, "CapacitySchedulerPolicy", None),
    )


def _fields_of_llm(llm: Any) -> frozenset[str] | None:
    """`LLM` takes any keyword and compares it with the fields of its settings class."""
    try:
        arguments = importlib.import_module("tensorrt_llm.llmapi.llm_args").TorchLlmArgs
    except (ImportError, AttributeError):
        return None  # moved in a later release: the table alone decides
    return names_of(arguments)
