"""What a server is, and which models it has."""

import hashlib
import re
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import structs

from onegate.config import OpenAiConfig, OpenAiPool
from onegate.engines.base import (
    EngineBroke,
    EngineCapacity,
    EngineUnavailable,
    Feature,
    PoolInfo,
    PoolState,
)
from onegate.engines.http.documents import document, short
from onegate.engines.http.link import HttpLink, HttpStatus
from onegate.engines.openai.exposition import gauges
from onegate.engines.openai.flavours import FLAVOURS, NONE, Flavour, recognised
from onegate.engines.openai.shapes import Listed, ModelList, Props, Version
from onegate.protocol.content import Identity

T = TypeVar("T")

_MAX_POOLS = 64
_MAX_NAME_CHARS = 256
_COUNT = re.compile(r"[0-9]{1,12}")
# Where neither the owner nor the server says.
_SEATS = 4
_CONTEXT_TOK = 4096
# Of a list of names, those that a sentence has room for.
_NAMED = 8
# No machine has more memory than this.
_MAX_OFFLOAD_GIB = 1e6


@dataclass(frozen=True)
class Survey:
    """What one look showed. `offload_gib` of the model are kept off each GPU."""

    flavour: Flavour
    models: list[Listed] = field(default_factory=list)
    props: Props | None = None
    version: str | None = None
    kv_tok: int | None = None
    offload_gib: float | None = None


async def survey(link: HttpLink, config: OpenAiConfig) -> Survey:
    """Ask what there is to know. Raises EngineErrors."""
    models = await _models(link, config)
    owners = {model.owned_by for model in models if model.owned_by is not None}
    props = None
    flavour = NONE if config.flavour == "auto" else FLAVOURS[config.flavour]
    if config.flavour == "llama-server" or (config.flavour == "auto" and "llamacpp" in owners):
        props = await _optional(link, "/props", Props)
    if config.flavour == "auto":
        flavour = recognised(owners, props is not None)
    if props is not None:
        return Survey(flavour, models, props, version=_version(props.build_info))
    if flavour.counts != "vllm":
        return Survey(flavour, models)
    version = await _optional(link, "/version", Version)
    cache = await _vllm_cache(link)
    return Survey(
        flavour,
        models,
        version=None if version is None else _version(version.version),
        kv_tok=_cache_tok(cache),
        offload_gib=_offload_gib(cache),
    )


async def _models(link: HttpLink, config: OpenAiConfig) -> list[Listed]:
    try:
        data = await link.get("/v1/models")
    except HttpStatus as status:
        if status.status == 503:
            raise EngineUnavailable("the server is there and still loads its model") from status
        if status.status in (401, 403):
            raise EngineBroke(
                f"the server does not let this daemon in ({status.status}): correct api_key_file"
            ) from status
        if config.pools:
            # It cannot list its models, and the owner has said which there are.
            return [Listed(id=pool.model) for pool in config.pools]
        raise EngineBroke(
            f"{status}. Correct base_url, or name its models in [[engine.openai.pools]]"
        ) from status
    # A name that no client could say is nobody's model; one that is said twice is one.
    listed = {row.id: row for row in document(data, ModelList).data if _is_name(row.id)}
    models = list(listed.values())
    if not models:
        raise EngineBroke("the server lists no model in /v1/models")
    if len(models) > _MAX_POOLS and not config.pools:
        raise EngineBroke(
            f"the server lists {len(models)} models: name those to serve in [[engine.openai.pools]]"
        )
    return models


def _version(said: str | None) -> str | None:
    return short(said) if said else None


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_NAME_CHARS and name.isprintable()


async def _optional(link: HttpLink, path: str, shape: type[T]) -> T | None:
    try:
        return document(await link.get(path), shape)
    except HttpStatus:
        return None


async def _vllm_cache(link: HttpLink) -> list[dict[str, str]]:
    """vLLM's settings of its memory, the labels of one figure, for each of its engines."""
    name = "vllm:cache_config_info"
    try:
        found = gauges(await link.get("/metrics"), {name})
    except HttpStatus:
        return []
    return [labels for labels, _ in found.get(name, ())]


def _cache_tok(cache: list[dict[str, str]]) -> int | None:
    """Tokens of vLLM's cache: blocks times their size."""
    for labels in cache:
        blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
        if _COUNT.fullmatch(blocks) and _COUNT.fullmatch(size):
            kv_tok = int(blocks) * int(size)
            if 0 < kv_tok < 2**32:
                return kv_tok
    return None


def _offload_gib(cache: list[dict[str, str]]) -> float | None:
    """What `--cpu-offload-gb` has set, in versions that tell it (0.11 does)."""
    for labels in cache:
        try:
            found = float(labels.get("cpu_offload_gb", ""))
        except ValueError:
            continue
        if 0 < found < _MAX_OFFLOAD_GIB:
            return found
    return None


# --- pools --------------------------------------------------------------------------------------


def pools_of(
    found: Survey, config: OpenAiConfig, *, boundary: str, priority: bool
) -> list[PoolInfo]:
    """The pools that the owner wants of those that the server has."""
    wanted = {pool.model: pool for pool in config.pools}
    return [
        _pool(found, model, wanted.get(model.id), config, boundary, priority)
        for model in found.models
        if not wanted or model.id in wanted
    ]


def missing_pools(found: Survey, config: OpenAiConfig) -> list[PoolInfo]:
    """Those that the owner names and the server does not have."""
    has = [model.id for model in found.models]
    listed = ", ".join(has[:_NAMED]) + (" and others" if len(has) > _NAMED else "")
    return [
        structs.replace(
            pool,
            state=PoolState.FAILED,
            error=f"the server has no model {pool.model} (it has {listed}): correct "
            "[[engine.openai.pools]]",
        )
        for pool in expected_pools(config)
        if pool.model not in has
    ]


def expected_pools(config: OpenAiConfig) -> list[PoolInfo]:
    """What is known before the server has said anything: the pools that the owner names, with what
    every server takes, so that a request that comes meanwhile may wait for it."""
    flavour = NONE if config.flavour == "auto" else FLAVOURS[config.flavour]
    return [
        PoolInfo(
            model=pool.model,
            state=PoolState.LOADING,
            capacity=EngineCapacity(
                max_seqs=pool.max_seqs or config.max_seqs or _SEATS,
                max_context_tok=pool.context_tok or config.context_tok or _CONTEXT_TOK,
                reservation=flavour.reservation,
            ),
            features=_features(Survey(flavour), pool, priority=False),
            params=frozenset(flavour.params),
        )
        for pool in config.pools
    ]


def _pool(
    found: Survey,
    model: Listed,
    said: OpenAiPool | None,
    config: OpenAiConfig,
    boundary: str,
    priority: bool,
) -> PoolInfo:
    flavour, props = found.flavour, found.props
    meta = model.meta
    context_tok = (meta.n_ctx if meta is not None else None) or model.max_model_len
    mine = said or OpenAiPool(model=model.id)
    slots = None if props is None else props.total_slots
    seats = mine.max_seqs or config.max_seqs or slots or _SEATS
    asked_tok = mine.context_tok or config.context_tok or context_tok or _CONTEXT_TOK
    return PoolInfo(
        model=model.id,
        state=PoolState.READY,
        capacity=EngineCapacity(
            # What the server says it has, no key can make more.
            max_seqs=min(seats, slots or seats),
            max_context_tok=max(1, min(asked_tok, context_tok or asked_tok)),
            reservation=flavour.reservation,
            kv_tok=found.kv_tok,
        ),
        features=_features(found, mine, priority),
        params=frozenset(flavour.params),
        identity=_identity(found, model, boundary),
    )


def _features(found: Survey, pool: OpenAiPool, priority: bool) -> frozenset[Feature]:
    flavour, props = found.flavour, found.props
    features = set(flavour.features)
    caps = None if props is None else props.chat_template_caps
    tools = caps is not None and caps.supports_tools and caps.supports_tool_calls
    images = props is not None and props.modalities.vision
    thinking = props is not None and "enable_thinking" in props.chat_template
    for feature, said, seen in (
        (Feature.TOOLS, pool.tools, tools),
        (Feature.IMAGES, pool.images, images),
        (Feature.THINKING, pool.thinking, thinking and flavour.thinks),
        (Feature.EMBEDDINGS, pool.embeddings, False),
        (Feature.PRIORITY, None, priority),
    ):
        if seen if said is None else said:
            features.add(feature)
    return frozenset(features)


def _identity(found: Survey, model: Listed, boundary: str) -> Identity:
    """A digest of everything that the server says of the model: no file can be hashed from here."""
    props = found.props
    meta = None if model.meta is None else msgspec.structs.asdict(model.meta)
    parts = [found.flavour.name, found.version, model.id, model.root, model.parent]
    parts += [None if meta is None else repr(sorted(meta.items())), str(model.max_model_len)]
    if props is not None:
        parts += [props.model_path, props.chat_template]
    digest = hashlib.sha256("\0".join(part or "" for part in parts).encode()).hexdigest()
    name = {"none": "openai"}.get(found.flavour.name, found.flavour.name)
    return Identity(
        engine=name,
        model=model.id,
        engine_version=found.version or "unknown",
        digest=f"sha256:{digest}",
        digest_kind="listing",
        boundary="remote"
        if boundary == "remote"
        else "local"
        if boundary == "local"
        else "unknown",
    )


def offload_of(found: Survey) -> str | None:
    """How much of its model a server keeps out of the GPU's memory, in words; None for nothing, and
    where it does not say: of the servers known here vLLM alone does, by its setting."""
    if found.offload_gib is None:
        return None
    return (
        f"vLLM was told to keep {found.offload_gib:g} GiB of it for each GPU in the machine's own "
        "memory, which is slow: start it without --cpu-offload-gb where the GPU has the room"
    )
