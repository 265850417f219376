import sys
from types import MappingProxyType, ModuleType, SimpleNamespace

import pytest

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm import library
from onegate.engines.host.trtllm.library import installed_version, open_library


class Named:
    model_fields = MappingProxyType({"enable_block_reuse": 1, "capacity_scheduler_policy": 2})


class Llm:
    def __init__(self, model, **kwargs): ...

    def generate_async(self, inputs, sampling_params=None, streaming=False, cache_salt=None): ...


@pytest.fixture
def package(monkeypatch):
    """Modules by the names that are imported."""
    made = {name: ModuleType(name) for name in ("tensorrt_llm", "tensorrt_llm.llmapi")}
    made["tensorrt_llm"].LLM = Llm
    made["tensorrt_llm"].SamplingParams = lambda *, max_tokens=32, top_k=None: None
    for name in ("KvCacheConfig", "SchedulerConfig", "GuidedDecodingParams"):
        setattr(made["tensorrt_llm.llmapi"], name, Named)
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(library.importlib.metadata, "version", lambda name: "1.2.1")
    return made


def test_what_is_installed_is_known_without_importing_it(monkeypatch):
    asked = []
    monkeypatch.setattr(library.importlib.metadata, "version", lambda n: asked.append(n) or "1.2.1")
    assert installed_version() == "1.2.1"
    assert asked == ["tensorrt-llm"]
    assert "tensorrt_llm" not in sys.modules


def test_a_package_that_is_not_there(monkeypatch):
    def version(name):
        raise library.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(library.importlib.metadata, "version", version)
    assert installed_version() is None
    with pytest.raises(LoadFailed, match=f"not installed for {sys.executable}.*engine.python"):
        open_library(None)


def test_signatures_are_read(package):
    arguments = SimpleNamespace(TorchLlmArgs=SimpleNamespace(model_fields={"model": 1}))
    sys.modules["tensorrt_llm.llmapi.llm_args"] = arguments
    try:
        found = open_library(None)
    finally:
        del sys.modules["tensorrt_llm.llmapi.llm_args"]
    assert found.version == "1.2.1"
    assert found.surface.takes("LLM", "model")
    assert not found.surface.takes("LLM", "max_seq_len")
    assert found.surface.takes("generate_async", "cache_salt")
    assert not found.surface.takes("generate_async", "priority")
    assert not found.surface.takes("SamplingParams", "ignore_eos")
    assert found.policies is None


def test_without_a_list_of_arguments_the_table_decides(package):
    assert open_library(None).surface.takes("LLM", "max_seq_len")


def test_an_import_that_fails_is_a_sentence(package, monkeypatch):
    def broken(name):
        raise OSError("libnvinfer.so.10: cannot open shared object file")

    monkeypatch.setattr(library.importlib, "import_module", broken)
    with pytest.raises(
        LoadFailed, match=r"TensorRT-LLM 1\.2\.1 cannot be used: a library or a compiler of CUDA"
    ):
        open_library(None)


def test_a_release_that_is_too_old_is_not_even_imported(package, monkeypatch):
    def imports(name):
        raise AssertionError(name)

    monkeypatch.setattr(library.importlib.metadata, "version", lambda name: "0.21.0")
    monkeypatch.setattr(library.importlib, "import_module", imports)
    with pytest.raises(LoadFailed, match=r"0\.21\.0 is too old"):
        open_library(None)


def test_a_release_that_has_moved_what_is_used_is_a_sentence(package):
    del package["tensorrt_llm.llmapi"].SchedulerConfig
    with pytest.raises(LoadFailed, match=r"1\.2\.1 cannot be used: AttributeError: .*Scheduler"):
        open_library(None)
