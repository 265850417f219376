"""From what TensorRT-LLM, CUDA and MPI raise to one sentence that names the fix."""

import re
from collections.abc import Iterator

from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.gpu import GpuFacts

_MOST_CHARS = 300

# Words of an error, in lower case, and what there is to do about it. The first that fits counts.
_KERNELS = (
    "no kernel image is available",
    "unsupported gpu",
    "unsupported compute capability",
    "pre sm 80 gpus",
)
_DRIVER = (
    "driver version is insufficient",
    "driver/library version mismatch",
    "libcuda.so",
    "no cuda-capable device",
    "no cuda gpus are available",
    "found no nvidia driver",
    "cuda driver initialization failed",
    "unsupported display driver",
)
_TOOLKIT = ("cuda_home", "nvcc", "ninja", "libnvrtc", "libcudart", "libcublas", "libnvinfer")
_MPI = ("libmpi", "mpi_init", "mpi4py", "libpmix", "orted")
_MEMORY = (
    "out of memory",
    "outofmemory",
    "insufficient gpu memory",
    "impossible to fit in any sequence in kvcache",
)
_MAIN_MEMORY = ("cannot allocate memory",)
_DISK = ("no space left on device", "disk quota exceeded")
_DIED = ("worker died during initialization",)
_PLAN = ("incompatible device", "engine plan", "serialized engine", "deserialize")


def is_request_error(error: BaseException) -> bool:
    """Whether an error is about one request. Its class has moved between modules, and kept its
    name."""
    return any(kind.__name__ == "RequestError" for kind in type(error).__mro__)


def words_of(error: BaseException, *, what: str, gpu: GpuFacts | None = None) -> str:
    """One sentence about the installation or the machine, else `what` and the library's words."""
    text = " | ".join(_texts(error))
    if _has(text, _KERNELS):
        card = f" ({gpu.card_text})" if gpu is not None else ""
        return (
            f"this build of TensorRT-LLM or this model's format has no code for this GPU{card}: "
            f"use a release that supports it, or weights in another format: {_end(text)}"
        )
    if _has(text, _DRIVER):
        driver = "nvidia-ml-py gets no answer" if gpu is None else gpu.driver_text
        return (
            f"{what}: its CUDA and this machine's NVIDIA driver do not fit ({driver}): install the "
            "driver that this release asks for, or the release for this driver, and let the engine "
            f"open the GPU: {_end(text)}"
        )
    if _has(text, _TOOLKIT):
        return (
            f"{what}: a library or a compiler of CUDA is missing: install the CUDA toolkit that "
            f"this release asks for and set CUDA_HOME where the engine starts: {_end(text)}"
        )
    if _has(text, _MPI):
        return f"{what}: MPI is missing, apt install libopenmpi-dev: {_end(text)}"
    if _has(text, _MAIN_MEMORY):
        return f"{what}: there is not enough main memory, end what else needs it: {_end(text)}"
    if _has(text, _DISK):
        return f"{what}: a disk is full, free what holds its caches or /dev/shm: {_end(text)}"
    return f"{what}: {_end(text)}"


def load_words(error: BaseException, settings: TensorRtLlmSettings, gpu: GpuFacts | None) -> str:
    """The sentence for a model that did not come up."""
    text = " | ".join(_texts(error))
    if _has(text, _MEMORY):
        held = "" if gpu is None else f" ({gpu.memory_text})"
        return (
            f"there is not enough GPU memory for {settings.model}{held}: end what else is on the "
            "card, lower engine.context_tok, engine.max_seqs, engine.max_step_tok or "
            "engine.tensorrt_llm.kv_share, or take smaller weights"
        )
    if _has(text, _PLAN):
        return (
            f"{settings.path} was compiled for another GPU or another release: set engine.model "
            "to the folder of the weights that it was built from"
        )
    if (found := re.search(r"only (\d+) gpus are available", text.lower())) is not None:
        return (
            f"there are {found[1]} GPUs, and engine.tensorrt_llm.tensor_parallel is "
            f"{settings.tensor_parallel}: lower it, or let this user see more of them"
        )
    if (found := re.search(r"invalid argument: (\w+)", text)) is not None:
        return (
            f"this release of TensorRT-LLM does not take {found[1]}: install one that onegate was "
            "written for, see TENSORRT_LLM.md"
        )
    if _has(text, _DIED):
        return (
            f"the process that was to hold {settings.model} died while it loaded: see its lines "
            "above; without any, the kernel may have ended it for want of main memory (dmesg), "
            "which has to hold the weights as well"
        )
    return words_of(error, what=f"{settings.path} cannot be loaded", gpu=gpu)


def _has(text: str, words: tuple[str, ...]) -> bool:
    lower = text.lower()
    return any(word in lower for word in words)


def _texts(error: BaseException) -> Iterator[str]:
    """The words of an error and of those that it came from, outermost first."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield f"{type(at).__name__}: {' '.join(str(at).split())}"
        at = at.__cause__ or at.__context__


def _end(text: str) -> str:
    """The end of a text, where the cause is."""
    return text if len(text) <= _MOST_CHARS else f"...{text[-_MOST_CHARS:]}"
