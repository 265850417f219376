"""From what TensorRT-LLM, CUDA and MPI raise to one sentence that names the fix."""

import re
from collections.abc import Iterator

from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.gpu import GpuFacts

_MOST_CHARS = 300

# Words of an error, in lower case, and what there is to do about it.
_CUDA = (
    "driver version is insufficient",
    "libcuda",
    "libnvinfer",
    "libnvrtc",
    "libcublas",
    "cuda_home",
    "no cuda-capable device",
    "found no nvidia driver",
    "cuda driver initialization failed",
    "unsupported display driver",
)
_MPI = ("libmpi", "mpi_init", "mpi4py")
_MEMORY = ("out of memory", "outofmemory", "insufficient gpu memory", "cannot allocate memory")
_KERNELS = ("no kernel image is available", "unsupported gpu", "unsupported compute capability")
_PLAN = ("incompatible device", "engine plan", "serialized engine", "deserialize")


def is_request_error(error: BaseException) -> bool:
    """Whether an error is about one request. Its class has moved between modules, and kept its
    name."""
    return any(kind.__name__ == "RequestError" for kind in type(error).__mro__)


def words_of(error: BaseException, *, what: str, gpu: GpuFacts | None = None) -> str:
    """One sentence about the installation or the machine, else `what` and the library's words."""
    text = " | ".join(_texts(error))
    lower = text.lower()
    if any(word in lower for word in _KERNELS):
        card = f" ({gpu.name}, compute capability {gpu.capability})" if gpu is not None else ""
        return (
            f"this build of TensorRT-LLM or this model's format has no code for this GPU{card}: "
            f"use a release that supports it, or weights in another format: {_end(text)}"
        )
    if any(word in lower for word in _CUDA):
        driver = "no driver answers" if gpu is None else f"driver {gpu.driver}, {gpu.cuda_text}"
        return (
            f"{what}: its CUDA and this machine's NVIDIA driver do not fit ({driver}): install the "
            f"driver that this release asks for, or the release for this driver: {_end(text)}"
        )
    if any(word in lower for word in _MPI):
        return f"{what}: MPI is missing, apt install libopenmpi-dev: {_end(text)}"
    return f"{what}: {_end(text)}"


def load_words(error: BaseException, settings: TensorRtLlmSettings, gpu: GpuFacts | None) -> str:
    """The sentence for a model that did not come up."""
    text = " | ".join(_texts(error))
    lower = text.lower()
    if any(word in lower for word in _MEMORY):
        held = "" if gpu is None else f" ({gpu.memory_text})"
        return (
            f"there is not enough GPU memory for {settings.model}{held}: end what else is on the "
            "card, lower engine.context_tok, engine.max_seqs, engine.max_step_tok or "
            "engine.tensorrt_llm.kv_share, or take smaller weights"
        )
    if any(word in lower for word in _PLAN):
        return (
            f"{settings.path} was compiled for another GPU or another release: set engine.model "
            "to the folder of the weights that it was built from"
        )
    if (found := re.search(r"only (\d+) gpus are available", lower)) is not None:
        return (
            f"there are {found[1]} GPUs, and engine.tensorrt_llm.tensor_parallel is "
            f"{settings.tensor_parallel}: lower it, or let this user see more of them"
        )
    if (found := re.search(r"invalid argument: (\w+)", text)) is not None:
        return (
            f"this release of TensorRT-LLM does not take {found[1]}: install one that onegate was "
            "written for, see TENSORRT_LLM.md"
        )
    return words_of(error, what=f"{settings.path} cannot be loaded", gpu=gpu)


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
