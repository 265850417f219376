"""What is known of one model behind Ollama."""

from dataclasses import dataclass

from msgspec import structs

from onegate.config import OllamaModel
from onegate.engines.base import EngineCapacity, Feature, PoolInfo, PoolState, Reservation
from onegate.engines.ollama.shapes import Loaded, Tag
from onegate.engines.ollama.version import Version
from onegate.protocol.content import Identity

# Capabilities by their names in /api/show.
COMPLETION = "completion"
EMBEDDING = "embedding"
_FEATURES = {
    "tools": Feature.TOOLS,
    "vision": Feature.IMAGES,
    "thinking": Feature.THINKING,
    "insert": Feature.SUFFIX,
    EMBEDDING: Feature.EMBEDDINGS,
}
_PARAMS = frozenset(
    {"max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "response_format"}
)
_PENALTIES = frozenset({"presence_penalty", "frequency_penalty", "repeat_penalty"})
_LOGPROBS = frozenset({"logprobs", "top_logprobs"})


@dataclass(frozen=True)
class Facts:
    """What /api/show says of a model, as long as its digest is `digest`.

    `stops` are the model's own stop strings: a request that names some would replace them.
    `trained_tok` is the context that it was trained for, None where it does not say.
    """

    digest: str
    capabilities: frozenset[str] = frozenset({COMPLETION})
    stops: tuple[str, ...] = ()
    trained_tok: int | None = None
    remote_host: str = ""


@dataclass
class Known:
    """One configured model, and what was learned of it since the start.

    `load_ms` is what its last load took, `loads` how many there were, ours and Ollama's own;
    `remote_host` is where its answers are made, "" for this machine as far as anybody has said.
    """

    config: OllamaModel
    facts: Facts | None = None
    error: str | None = None
    loads: int = 0
    load_ms: float | None = None
    warm_load_ms: float | None = None
    loaded: Loaded | None = None
    remote_host: str = ""
    is_loading: bool = False

    @property
    def name(self) -> str:
        """As it is configured, and as Ollama is asked for it."""
        return self.config.model

    @property
    def generates(self) -> bool:
        """Whether it makes text; one that only embeds does not."""
        return self.facts is None or COMPLETION in self.facts.capabilities

    @property
    def context_tok(self) -> int:
        """Tokens of one request: what is asked for, or less where it was trained for less."""
        asked_tok = self.config.context_tok
        trained_tok = None if self.facts is None else self.facts.trained_tok
        return asked_tok if trained_tok is None else min(asked_tok, trained_tok)

    def loaded_as_pinned(self) -> bool:
        """Whether it is in memory with the context that requests here ask for; with another one
        the next request would load it anew. Older servers do not say with which."""
        if self.loaded is None:
            return False
        return self.loaded.context_length in (0, self.context_tok)

    def took(self, load_ms: float) -> None:
        """A load was measured."""
        self.loads += 1
        self.load_ms = load_ms

    def offload(self) -> float | None:
        """How much of it is on the processor instead of the GPU, 0 to 1; None while unknown."""
        loaded = self.loaded
        if loaded is None or not loaded.size or loaded.size_vram > loaded.size:
            return None
        return (loaded.size - loaded.size_vram) / loaded.size


def pool_of(known: Known, version: Version | None, *, penalties: bool, boundary: str) -> PoolInfo:
    """The pool as it is now."""
    seats = known.config.max_seqs
    facts = known.facts
    features = {Feature.ABORT, Feature.SCHEMA}
    params = set(_PARAMS)
    if penalties:
        params |= _PENALTIES
    if version is not None and version.logprobs:
        params |= _LOGPROBS
        features.add(Feature.LOGPROBS)
    if version is not None and version.whole_prompts:
        features.add(Feature.WHOLE_PROMPTS)
    if facts is not None:
        features |= {_FEATURES[name] for name in facts.capabilities & _FEATURES.keys()}
    return PoolInfo(
        model=known.name,
        state=_state(known, boundary),
        capacity=EngineCapacity(
            max_seqs=seats,
            max_context_tok=known.context_tok,
            # Ollama reserves the whole context for each of its slots when it loads the model.
            reservation=Reservation.PER_SLOT,
            kv_tok=known.context_tok * seats,
        ),
        features=frozenset(features),
        params=frozenset(params),
        identity=_identity(known, version, boundary),
        switch_cost_ms=known.load_ms,
        load_ms=known.load_ms,
        loads=known.loads,
        error=known.error,
    )


def _state(known: Known, boundary: str) -> PoolState:
    if known.error is not None:
        return PoolState.FAILED
    if known.is_loading:
        return PoolState.LOADING
    # What answers elsewhere is never in this machine's memory, and needs no load.
    if boundary == "remote" or known.loaded_as_pinned():
        return PoolState.READY
    return PoolState.COLD


def _identity(known: Known, version: Version | None, boundary: str) -> Identity | None:
    if version is None or known.facts is None:
        return None
    digest = known.facts.digest
    identity = Identity(
        engine="ollama",
        engine_version=version.text,
        model=known.name,
        digest=f"sha256:{digest}" if digest else None,
        digest_kind="ollama manifest" if digest else None,
        launch=_launch(known),
    )
    match boundary:
        case "local" | "remote":
            return structs.replace(identity, boundary=boundary)
        case _:
            return identity


def _launch(known: Known) -> str:
    """What makes it the same again: settings of the server, and those sent with each request."""
    batch = known.config.num_batch
    options = f"num_ctx={known.context_tok}" + (f" num_batch={batch}" if batch else "")
    return f"OLLAMA_NUM_PARALLEL={known.config.max_seqs} ollama serve; {known.name} with {options}"


def missing(name: str, tags: dict[str, Tag]) -> str:
    """Why a model cannot be served that Ollama does not have."""
    others = ", ".join(sorted(tag.name for tag in tags.values())[:8])
    has = f"it has {others}" if others else "it has none"
    return f"Ollama has no model {name} ({has}): type ollama pull {name}"
