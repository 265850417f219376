"""What the NVIDIA driver says of the GPU, by nvidia-ml-py; what it does not say is None.

Only words for the operator come of it, so nothing here may keep an engine from starting.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_GIB = 1 << 30
_MIG_ON = 1


@dataclass(frozen=True)
class GpuFacts:
    """One GPU, or one instance of a GPU that is partitioned (MIG). `capability` is CUDA's (9.0 for
    a Hopper), `cuda` the newest CUDA version that the driver serves, as the driver counts it (13010
    is 13.1); `used_by` are processes by id."""

    name: str
    driver: str | None
    capability: str | None
    cuda: int | None
    total_bytes: int | None
    free_bytes: int | None
    used_by: tuple[int, ...]

    @property
    def card_text(self) -> str:
        if self.capability is None:
            return self.name
        return f"{self.name}, compute capability {self.capability}"

    @property
    def driver_text(self) -> str:
        driver = f"driver {self.driver or 'unknown'}"
        if self.cuda is None:
            return driver
        return f"{driver}, CUDA up to {self.cuda // 1000}.{self.cuda % 1000 // 10}"

    @property
    def memory_text(self) -> str:
        if self.total_bytes is None or self.free_bytes is None:
            return f"{self.name}: how much of its memory is free is not known"
        held = ""
        if self.used_by:
            held = f", also used by process {', '.join(map(str, self.used_by))}"
        free, total = self.free_bytes / _GIB, self.total_bytes / _GIB
        return f"{self.name}: {free:.1f} of {total:.1f} GiB free before the load{held}"


def gpu_facts(environment: Mapping[str, str]) -> GpuFacts | None:
    """The first GPU that CUDA shows under these variables.

    None without the package, a driver or a GPU, and where several GPUs leave open which one it is:
    about another card than the one that fails, every word would be wrong.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
    except Exception:
        # Of its name there are several packages, of many ages.
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        gpu = _first(nvml, environment)
        return None if gpu is None else _facts(nvml, gpu)
    finally:
        _said(nvml, "nvmlShutdown")


def _first(nvml: Any, environment: Mapping[str, str]) -> Any:
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    first = "0" if visible is None else visible.partition(",")[0].strip()
    if first.startswith(("GPU-", "MIG-")):
        return _said(nvml, "nvmlDeviceGetHandleByUUID", first)
    if not (first.isascii() and first.isdigit() and len(first) < 4):
        return None  # none is visible
    in_order = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not in_order and not _are_alike(nvml):
        return None  # CUDA counts the fastest first, the driver by the slot
    return _said(nvml, "nvmlDeviceGetHandleByIndex", int(first))


def _are_alike(nvml: Any) -> bool:
    gpus = [
        _said(nvml, "nvmlDeviceGetHandleByIndex", index)
        for index in range(_said(nvml, "nvmlDeviceGetCount") or 0)
    ]
    return len({_text(_said(nvml, "nvmlDeviceGetName", gpu)) for gpu in gpus}) <= 1


def _facts(nvml: Any, gpu: Any) -> GpuFacts:
    # A partitioned GPU as a whole has memory and processes that are not those of the instance.
    whole = (_said(nvml, "nvmlDeviceGetMigMode", gpu) or (None,))[0] == _MIG_ON
    memory = None if whole else _said(nvml, "nvmlDeviceGetMemoryInfo", gpu)
    running = () if whole else _said(nvml, "nvmlDeviceGetComputeRunningProcesses", gpu) or ()
    capability = _said(nvml, "nvmlDeviceGetCudaComputeCapability", gpu)
    cuda = _said(nvml, "nvmlSystemGetCudaDriverVersion")
    return GpuFacts(
        name=_text(_said(nvml, "nvmlDeviceGetName", gpu)) or "a GPU without a name",
        driver=_text(_said(nvml, "nvmlSystemGetDriverVersion")),
        capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        cuda=None if cuda is None else int(cuda),
        total_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        used_by=tuple(int(process.pid) for process in running),
    )


def _said(nvml: Any, call: str, *given: Any) -> Any:
    """The driver's answer; None where it has none, or the package is too old to ask."""
    try:
        return getattr(nvml, call)(*given)
    except (nvml.NVMLError, AttributeError):
        return None


def _text(said: Any) -> str | None:
    # Older packages say it in bytes.
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said
