import sys
from types import SimpleNamespace

import pytest

from onegate.engines.host.trtllm.gpu import GpuFacts, gpu_facts

ANYWAY = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


class NVMLError(Exception): ...


def refuses(*given):
    raise NVMLError("Not Supported")


@pytest.fixture
def nvml(monkeypatch):
    """A driver with two cards of one kind."""
    calls = []

    def handle(index):
        if index > 1:
            raise NVMLError("no such GPU")
        return index

    def by_uuid(uuid):
        return {"GPU-1": 1, "MIG-1": "instance"}.get(uuid) or refuses()

    module = SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=lambda: calls.append("init"),
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=handle,
        nvmlDeviceGetHandleByUUID=by_uuid,
        nvmlDeviceGetMigMode=lambda h: [0, 0],
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=24 << 30, free=1 << 30),
        nvmlDeviceGetCudaComputeCapability=lambda h: (9, 0),
        nvmlDeviceGetComputeRunningProcesses=lambda h: [SimpleNamespace(pid=5)],
        nvmlDeviceGetName=lambda h: "card",
        nvmlSystemGetDriverVersion=lambda: "580",
        nvmlSystemGetCudaDriverVersion=lambda: 13010,
        calls=calls,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_what_the_driver_says(nvml):
    facts = gpu_facts({"CUDA_VISIBLE_DEVICES": "1"})
    assert (facts.name, facts.capability, facts.driver) == ("card", "9.0", "580")
    assert facts.card_text == "card, compute capability 9.0"
    assert facts.driver_text == "driver 580, CUDA up to 13.1"
    assert facts.memory_text.startswith("card: 1.0 of 24.0 GiB free")
    assert facts.memory_text.endswith("also used by process 5")
    assert nvml.calls == ["init", "shutdown"]


def test_without_a_package_a_driver_or_a_gpu_nothing_is_known(nvml, monkeypatch):
    assert gpu_facts({"CUDA_VISIBLE_DEVICES": "2"}) is None
    assert nvml.calls == ["init", "shutdown"]
    nvml.nvmlInit = refuses
    assert gpu_facts({}) is None
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu_facts({}) is None


def test_a_package_that_breaks_as_it_is_imported(monkeypatch):
    def breaks(name):
        raise OSError("not this one")

    monkeypatch.setattr("onegate.engines.host.trtllm.gpu.importlib.import_module", breaks)
    assert gpu_facts({}) is None


@pytest.mark.parametrize(
    ("visible", "asked"),
    [
        (None, 0),
        ("0", 0),
        ("1,0", 1),
        (" 1", 1),
        ("GPU-1,GPU-0", 1),
        ("MIG-1", "instance"),
        ("GPU-absent", None),
        ("", None),
        ("-1", None),
        ("none", None),
        ("9" * 20, None),
        ("\u00b2", None),
    ],
)
def test_the_gpu_that_cuda_shows(nvml, visible, asked):
    handles = []
    nvml.nvmlDeviceGetMemoryInfo = lambda h: handles.append(h) or refuses()
    facts = gpu_facts({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})
    assert handles == ([] if asked is None else [asked])
    assert (facts is None) is (asked is None)


def test_of_several_kinds_nobody_knows_which_one_cuda_counts_first(nvml):
    nvml.nvmlDeviceGetName = lambda h: f"card {h}"
    assert gpu_facts({}) is None
    assert gpu_facts(ANYWAY).name == "card 0"
    assert gpu_facts({"CUDA_VISIBLE_DEVICES": "GPU-1"}).name == "card 1"


def test_of_a_partitioned_gpu_only_the_instance_has_figures(nvml):
    nvml.nvmlDeviceGetMigMode = lambda h: [1, 1] if h != "instance" else refuses()
    whole = gpu_facts({})
    assert (whole.total_bytes, whole.free_bytes, whole.used_by) == (None, None, ())
    assert whole.memory_text == "card: how much of its memory is free is not known"
    assert gpu_facts({"CUDA_VISIBLE_DEVICES": "MIG-1"}).total_bytes == 24 << 30


def test_what_the_driver_does_not_say_is_not_known_and_the_rest_is(nvml):
    asked = [name for name in vars(nvml) if name.startswith("nvmlDeviceGet")]
    asked += [name for name in vars(nvml) if name.startswith("nvmlSystemGet")]
    for name in asked:
        if "Handle" not in name:
            setattr(nvml, name, refuses)
    nvml.nvmlShutdown = refuses
    facts = gpu_facts({})
    assert facts == GpuFacts("a GPU without a name", None, None, None, None, None, ())
    assert facts.driver_text == "driver unknown"
    assert facts.card_text == facts.name
    # Each by itself, too.
    nvml.nvmlSystemGetDriverVersion = lambda: b"535"
    assert gpu_facts({}).driver_text == "driver 535"


def test_a_package_that_is_too_old_to_ask(nvml):
    del nvml.nvmlDeviceGetMigMode, nvml.nvmlDeviceGetCudaComputeCapability
    facts = gpu_facts({})
    assert facts.capability is None
    assert facts.total_bytes == 24 << 30


def test_a_card_that_nobody_else_uses(nvml):
    nvml.nvmlDeviceGetComputeRunningProcesses = lambda h: []
    assert "also" not in gpu_facts({}).memory_text
