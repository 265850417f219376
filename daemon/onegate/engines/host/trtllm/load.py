"""From a folder of weights to a model that has generated its first token."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from onegate.clock import monotonic_ns
from onegate.engines.base import EngineCapacity
from onegate.engines.host.digest import Stamp, weights_digest, weights_stamp
from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.arguments import launch_text, llm_arguments
from onegate.engines.host.trtllm.context import model_context_tok
from onegate.engines.host.trtllm.faults import load_words
from onegate.engines.host.trtllm.folder import check_folder, unreadable
from onegate.engines.host.trtllm.gpu import GpuFacts, gpu_facts
from onegate.engines.host.trtllm.library import open_library
from onegate.engines.host.trtllm.pool import known_capacity
from onegate.engines.host.trtllm.session import Session, no_engine
from onegate.engines.host.trtllm.surface import unproven
from onegate.engines.host.trtllm.text import HfText, open_text
from onegate.protocol.content import Identity

_NS_PER_MS = 1e6
_PROBE = "Hello"
# So long the first token may take, and the first that is drawn: what was not compiled while the
# model was loaded is compiled for them.
_FIRST_TOKEN_S = 300.0
# What it reads is in the folder, and who uses it is nobody else's affair: no file is fetched, as
# a model's configuration may ask for, and no figures are sent, as releases after 1.2 do.
QUIET = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "TRTLLM_NO_USAGE_STATS": "1"}


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
    settings = _within(settings, model_context_tok(path))
    os.environ.update(QUIET)
    gpu = gpu_facts(os.environ)
    library = open_library(gpu)
    if (said := unproven(library.version)) is not None:
        sys.stderr.write(f"{said}\n")
    arguments = llm_arguments(library, settings)
    salted = settings.salted and library.surface.takes("generate_async", "cache_salt")
    if settings.salted and not salted:
        raise LoadFailed(
            f"TensorRT-LLM {library.version} cannot separate users in its prefix cache: set "
            'engine.prefix_cache_scope = "shared" or engine.prefix_cache = false'
        )
    try:
        stamp = weights_stamp(path)
        digest, digest_kind = weights_digest(path, digest_cache)
    except OSError as error:
        raise unreadable(error, path) from error
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
    if not _is_unchanged(path, stamp):
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


def _within(settings: TensorRtLlmSettings, most_tok: int) -> TensorRtLlmSettings:
    if settings.context_tok <= most_tok:
        return settings
    sys.stderr.write(
        f"{settings.model} reads {most_tok} tokens at most, and engine.context_tok is "
        f"{settings.context_tok}: the lower counts\n"
    )
    return structs.replace(settings, context_tok=most_tok)


def _is_unchanged(path: Path, stamp: Stamp) -> bool:
    try:
        return weights_stamp(path) == stamp
    except OSError:
        return False  # a file that was there has gone


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


def _gpu_line(gpu: GpuFacts | None) -> str:
    if gpu is None:
        return (
            "nothing is known of the GPU: nvidia-ml-py or a driver is missing, or which GPU it is"
        )
    return f"{gpu.memory_text}; {gpu.driver_text}"
