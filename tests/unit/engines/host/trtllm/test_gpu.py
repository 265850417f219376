import sys
from types import SimpleNamespace

import pytest

from onegate.engines.host.trtllm.gpu import gpu_facts


class NVMLError(Exception): ...


@pytest.fixture
def nvml(monkeypatch):
    calls = []

    def handle(index):
        if index > 1:
            raise NVMLError("no such GPU")
        return index

    module = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=24 << 30, free=1 << 30),
        nvmlDeviceGetCudaComputeCapability=lambda h: (9, 0),
        nvmlDeviceGetComputeRunningProcesses=lambda h: [SimpleNamespace(pid=5)],
        nvmlDeviceGetName=lambda h: f"card {h}",
        nvmlSystemGetDriverVersion=lambda: "580",
        nvmlSystemGetCudaDriverVersion=lambda: 13010,
        calls=calls,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_what_the_driver_says(nvml):
    facts = gpu_facts(1)
    assert (facts.name, facts.capability, facts.driver) == ("card 1", "9.0", "580")
    assert facts.cuda_text == "CUDA up to 13.1"
    assert facts.memory_text.startswith("card 1: 1.0 of 24.0 GiB free")
    assert facts.memory_text.endswith("also used by process 5")
    assert nvml.calls == ["init", "shutdown"]


def test_what_is_not_there_is_none(nvml, monkeypatch):
    assert gpu_facts(2) is None
    assert nvml.calls == ["init", "shutdown"]

    def no_driver():
        raise NVMLError

    nvml.nvmlInit = no_driver
    assert gpu_facts() is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_facts() is None


def test_a_card_that_nobody_else_uses(nvml):
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda h: []
    assert "also" not in gpu_facts().memory_text
