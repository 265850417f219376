"""From a folder of weights to a model that has generated its first token."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineCapacity
from onegate.engines.host.digest import Stamp, weights_digest, weights_stamp
from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.arguments import launch_text, llm_arguments
from onegate.engines.host.trtllm.faults import load_words
from onegate.engines.host.trtllm.gpu import GpuFacts, gpu_facts
from onegate.engines.host.trtllm.library import open_library
from onegate.engines.host.trtllm.pool import known_capacity
from onegate.engines.host.trtllm.session import Session, no_engine
from onegate.engines.host.trtllm.text import HfText, open_text
from onegate.protocol.content import Identity

_NS_PER_MS = 1e6
_PROBE = "Hello"
# Everything that is prepared at the start has been by then.
_FIRST_TOKEN_S = 60.0


@dataclass(frozen=True)
class Loaded:
    """A model in memory, the files that it came from, and what is known of it now."""

    stamp: Stamp
    session: Session
    text: HfText
    capacity: EngineCapacity
    identity: Identity
    has_priority: bool
    load_ms: float


def load(
    settings: TensorRtLlmSettings, digest_cache: Path | None, post: Callable[..., None]
) -> Loaded:
    """Load the model; takes minutes. Raises LoadFailed with the sentence for the operator."""
    began_ns = monotonic_ns()
    path = Path(settings.path)
    check_folder(path)
    gpu = gpu_facts(_visible_index(os.environ.get("CUDA_VISIBLE_DEVICES", "")))
    library = open_library(gpu)
    arguments = llm_arguments(library, settings)
    salted = settings.salted and library.surface.takes("generate_async", "cache_salt")
    if settings.salted and not salted:
        raise LoadFailed(
            f"TensorRT-LLM {library.version} cannot separate users in its prefix cache: set "
            'engine.prefix_cache_scope = "shared" or engine.prefix_cache = false'
        )
    stamp = weights_stamp(path)
    digest, digest_kind = weights_digest(path, digest_cache)
    text = open_text(path, trust_remote_code=settings.trust_remote_code)
    sys.stderr.write(f"{_gpu_line(gpu)}\n")
    try:
        llm = library.llm(**arguments)
    except Exception as error:
        # Whatever pydantic, CUDA, MPI or a worker raises.
        raise LoadFailed(load_words(error, settings, gpu)) from error
    session = Session(
        library,
        llm,
        post,
        canary_ids=text.encode(_PROBE, add_special=False)[:1],
        salted=salted,
        stall_s=settings.stall_s,
    )
    try:
        session.warm_up(min(_FIRST_TOKEN_S, settings.load_s / 2))
    except Exception as error:
        # What the engine raises for its first request, of any kind.
        session.end(1.0)
        raise no_engine(error) from error
    if weights_stamp(path) != stamp:
        session.end(1.0)
        raise LoadFailed(f"{path} was replaced while it was loaded: it is tried again")
    session.begin_to_watch()
    return Loaded(
        stamp=stamp,
        session=session,
        text=text,
        capacity=_capacity(settings, session, text),
        identity=Identity(
            engine="tensorrt-llm",
            engine_version=library.version,
            model=settings.model,
            digest=digest,
            digest_kind=digest_kind,
            launch=launch_text(settings, arguments),
            boundary="local",
        ),
        has_priority=library.surface.takes("generate_async", "priority"),
        load_ms=(monotonic_ns() - began_ns) / _NS_PER_MS,
    )


def check_folder(path: Path) -> None:
    """Raises LoadFailed for a path at which there are no weights that can be served."""
    if not path.exists():
        raise LoadFailed(
            f"there is no model at {path}: set engine.model to the folder that holds its weights"
        )
    if not path.is_dir():
        raise LoadFailed(f"{path} is no folder: engine.model is the folder of a model's weights")
    try:
        names = {entry.name for entry in path.iterdir()}
    except OSError as error:
        raise LoadFailed(f"{path} cannot be read ({error.strerror}): correct its mode") from error
    if any(name.endswith(".engine") for name in names):
        raise LoadFailed(
            f"{path} holds an engine that was compiled for one GPU and one release, which are not "
            "served: set engine.model to the folder of the weights that it was built from"
        )
    if "config.json" not in names or not any(
        name.endswith((".safetensors", ".bin")) for name in names
    ):
        raise LoadFailed(
            f"{path} holds no config.json with weights (*.safetensors): engine.model is the folder "
            "of a Hugging Face model, downloaded whole"
        )


def _capacity(settings: TensorRtLlmSettings, session: Session, text: HfText) -> EngineCapacity:
    known = known_capacity(settings)
    figures = session.figures
    kv_tok = known.kv_tok
    if figures.blocks and figures.block_tok:
        kv_tok = figures.blocks * figures.block_tok
    else:
        sys.stderr.write("the engine does not say how large its cache is\n")
    return EngineCapacity(
        max_seqs=known.max_seqs,
        max_context_tok=min(settings.context_tok, kv_tok or settings.context_tok),
        reservation=known.reservation,
        kv_tok=kv_tok,
        max_step_tok=known.max_step_tok,
        block_tok=figures.block_tok or 1,
        max_bytes_per_tok=text.facts.max_bytes_per_tok,
    )


def _visible_index(visible: str) -> int:
    """The first GPU that CUDA_VISIBLE_DEVICES leaves, by its number; 0 where it names none so."""
    first = visible.partition(",")[0].strip()
    return int(first) if first.isascii() and first.isdigit() and len(first) < 4 else 0


def _gpu_line(gpu: GpuFacts | None) -> str:
    if gpu is None:
        return "the GPU cannot be asked: nvidia-ml-py, a driver or a GPU is missing"
    return f"{gpu.memory_text}; driver {gpu.driver}, {gpu.cuda_text}"
