"""What the NVIDIA driver says of the GPU, by nvidia-ml-py; what is not there is None."""

import importlib
from dataclasses import dataclass
from typing import Any

_GIB = 1 << 30


@dataclass(frozen=True)
class GpuFacts:
    """One GPU. `capability` is CUDA's (9.0 for a Hopper), `cuda` the newest CUDA version that the
    driver serves, as the driver counts it (13010 is 13.1); `used_by` are processes by id."""

    name: str
    driver: str
    capability: str
    cuda: int
    total_bytes: int
    free_bytes: int
    used_by: tuple[int, ...]

    @property
    def cuda_text(self) -> str:
        return f"CUDA up to {self.cuda // 1000}.{self.cuda % 1000 // 10}"

    @property
    def memory_text(self) -> str:
        held = ""
        if self.used_by:
            held = f", also used by process {', '.join(map(str, self.used_by))}"
        free, total = self.free_bytes / _GIB, self.total_bytes / _GIB
        return f"{self.name}: {free:.1f} of {total:.1f} GiB free before the load{held}"


def gpu_facts(index: int = 0) -> GpuFacts | None:
    """The GPU with this index as the driver counts; None without the package, a driver or a GPU."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        return _facts(nvml, index)
    except nvml.NVMLError:
        return None  # a GPU in a state in which it answers not everything
    finally:
        nvml.nvmlShutdown()


def _facts(nvml: Any, index: int) -> GpuFacts:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    return GpuFacts(
        name=str(nvml.nvmlDeviceGetName(handle)),
        driver=str(nvml.nvmlSystemGetDriverVersion()),
        capability=f"{major}.{minor}",
        cuda=int(nvml.nvmlSystemGetCudaDriverVersion()),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        used_by=tuple(int(process.pid) for process in running),
    )
