"""The embedded engine: one pool, batched continuously inside this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    EngineCapacity,
    EngineRequest,
    Feature,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.engines.host.again import Again, whole_text
from onegate.engines.host.batch import Batch
from onegate.engines.host.checks import check_min_tokens, check_params, check_plain_text
from onegate.engines.host.digest import Stamp, is_replaced, weights_digest, weights_stamp
from onegate.engines.host.engine import LoadFailed, Refusal, StepReport
from onegate.engines.host.forms import Forms
from onegate.engines.host.grammar.nodes import Grammar
from onegate.engines.host.grammar.rest import rest_of
from onegate.engines.host.guide import guide_of
from onegate.engines.host.pipeline import Pipeline
from onegate.engines.host.prefixes import Prefixes
from onegate.engines.host.prompts import PromptReader
from onegate.engines.host.remembered import default_cache
from onegate.engines.host.sampling import HONOURED, sampling_of
from onegate.engines.host.sequence import Sequence
from onegate.engines.host.settings import OpenVinoSettings
from onegate.engines.host.step_size import known_costs, measured_costs, step_tok, words
from onegate.engines.host.wire import AcceptedMsg, CountCall
from onegate.protocol.content import Identity

Open = Callable[[OpenVinoSettings], Pipeline]

_NS_PER_MS = 1e6
_FEATURES = frozenset(
    {
        Feature.ABORT,
        Feature.LOGPROBS,
        Feature.COUNTS_TOKENS,
        Feature.RESUME_EXACT,
        Feature.RESUME_GUIDED,
        Feature.SCHEMA,
        Feature.TOKEN_IDS,
        Feature.WHOLE_PROMPTS,
    }
)


def openvino_pool(settings: OpenVinoSettings) -> PoolInfo:
    """What is known of the pool before it is loaded."""
    cached = {Feature.PREFIX_CACHE} if settings.prefix_cache else set()
    return PoolInfo(
        model=settings.model,
        state=PoolState.LOADING,
        capacity=EngineCapacity(
            max_seqs=settings.max_seqs,
            max_context_tok=min(settings.context_tok, settings.kv_tok),
            reservation=Reservation.GROW,
            kv_tok=settings.kv_tok,
            max_step_tok=settings.max_step_tok,
        ),
        features=_FEATURES | cached,
        params=HONOURED,
    )


class _Loaded(NamedTuple):
    """A model in memory, the files that it came from, and what works on it."""

    stamp: Stamp
    pipeline: Pipeline
    prompts: PromptReader
    batch: Batch
    forms: Forms


class EmbeddedEngine:
    """See `engine.HostEngine`. The library is opened by `open_pipeline`, in a step of its own.

    A prompt becomes one user turn of the model's chat template. Output is greedy unless
    temperature or the model's own generation settings say otherwise. Resuming feeds the tokens of
    the prompt and of the earlier output as one prompt: text goes on where the earlier run's text
    ended, and the continuation of greedy output is the same.
    """

    kind = "openvino"

    def __init__(
        self,
        settings: OpenVinoSettings,
        open_pipeline: Open,
        *,
        version: str,
        digest_cache: Path | None = None,
    ) -> None:
        self.version = version
        self._settings = settings
        self._open = open_pipeline
        self._digest_cache = digest_cache or default_cache("digests.json")
        self._loaded: _Loaded | None = None
        self._pool = openvino_pool(settings)

    @property
    def busy(self) -> bool:
        return self._pool.state is PoolState.LOADING or bool(self.running(self._pool.model))

    @property
    def due(self) -> bool:
        return self.busy

    @property
    def wake(self) -> None:
        return None

    def pools(self) -> list[PoolInfo]:
        return [self._pool]

    def close(self) -> None:
        """All of it ends with the process."""

    def running(self, model: str) -> list[int]:
        return self._loaded.batch.ids() if self._loaded is not None else []

    def look_again(self) -> None:
        if self._loaded is None:
            return  # a load reads what is there by then
        if is_replaced(Path(self._settings.path), self._loaded.stamp):
            self._pool = replace(self._pool, state=PoolState.LOADING, error=None)

    def load(self, model: str) -> None:
        self._check_model(model)
        if self._loaded is None:
            self._pool = replace(self._pool, state=PoolState.LOADING, error=None)
        elif not self.running(model):
            self.look_again()

    def unload(self, model: str) -> None:
        self._check_model(model)
        self._loaded = None
        self._pool = replace(self._pool, state=PoolState.COLD, error=None)

    def submit(self, request: EngineRequest) -> AcceptedMsg:
        loaded = self._ready()
        check_plain_text(request)
        check_params(request.params, HONOURED)
        prompt, resumed = loaded.prompts.ids(request)
        room_tok = self._pool.capacity.max_context_tok - len(prompt) - len(resumed)
        max_tokens = min(request.max_tokens, room_tok)
        check_min_tokens(request.params, max_tokens)
        guide = guide_of(request.params)
        n_before = len(resumed)
        if guide is not None and resumed:
            guide, n_before = self._behind(guide, resumed)
        told = resumed[n_before:]
        grammar = None if guide is None else guide.ebnf()
        if grammar is not None:
            loaded.forms.take(grammar, resumed=bool(resumed))
        sampling = sampling_of(
            request,
            max_tokens=max_tokens + len(told),
            samples_by_default=loaded.pipeline.facts.samples_by_default,
            grammar=grammar,
        )
        handle = loaded.pipeline.add(request.id, prompt + resumed[:n_before], sampling)
        if told:
            handle = Again(handle, told)
        cached_tok = loaded.batch.cached_tok(request.cache_salt, prompt + resumed)
        sequence = Sequence(request, handle, prompt=prompt, cached_tok=cached_tok or 0)
        if resumed:
            sequence.prime(resumed, loaded.pipeline.decode)
        loaded.batch.add(sequence)
        return AcceptedMsg(id=request.id, prompt_tok=len(prompt), cached_tok=cached_tok)

    def abort(self, id: int) -> None:
        if self._loaded is not None:
            self._loaded.batch.abort(id)

    def count(self, call: CountCall) -> tuple[int, bool]:
        self._check_model(call.model)
        if call.tools:
            raise Refusal("unsupported", "this engine does not offer tools", path="tools")
        return self._ready().prompts.count(call.prompt, call.messages, raw=call.raw)

    def step(self) -> StepReport:
        if self._pool.state is PoolState.LOADING:
            return self._load()
        report = self._ready().batch.step()
        if not self.busy and self._ready().forms.worn:
            # Nobody is in it: the next step loads it, and whoever comes now waits for that.
            self._loaded = None
            self._pool = replace(self._pool, state=PoolState.LOADING)
            report.pools_changed = True
        return report

    def _behind(self, guide: Grammar, resumed: list[int]) -> tuple[Grammar, int]:
        """What is left of the grammar, and behind how many of the tokens. Raises Refusal where
        they do not begin what it allows."""
        wrong = Refusal(
            "invalid",
            "the earlier output does not begin what the form allows",
            path="resume_tok_ids",
        )
        try:
            text, n_ids = whole_text(resumed, self._ready().pipeline.bytes_of)
        except UnicodeDecodeError as error:
            raise wrong from error
        if (rest := rest_of(guide, text)) is None:
            raise wrong
        return rest, n_ids

    def _check_model(self, model: str) -> None:
        if model != self._pool.model:
            raise Refusal("invalid", f"there is no pool {model}", path="model")

    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise Refusal("unavailable", f"{self._pool.model} is not loaded")
        return self._loaded

    def _load(self) -> StepReport:
        began_ns = monotonic_ns()
        settings = self._settings
        path = Path(settings.path)
        try:
            stamp = _stamp(path)
            if self._loaded is not None and self._holds_what_is_there():
                return self._keep(stamp)
            self._loaded = None  # there may be no room for both
            pipeline, most_tok = self._open_in_time(stamp)
            digest, digest_kind = weights_digest(path, self._digest_cache)
            if weights_stamp(path) != stamp:
                raise LoadFailed(f"{path} was replaced while it was loaded: it is tried again")
        except (LoadFailed, OSError) as error:
            self._pool = replace(self._pool, state=PoolState.FAILED, error=str(error))
            raise LoadFailed(str(error)) from error
        facts = pipeline.facts
        kv_tok = facts.kv_blocks * facts.block_tok
        capacity = replace(
            self._pool.capacity,
            # A prompt as long as the tokenizer's own limit may have been cut short.
            max_context_tok=min(settings.context_tok, kv_tok, facts.encode_max_tok),
            kv_tok=kv_tok,
            max_step_tok=most_tok,
            block_tok=facts.block_tok,
            max_bytes_per_tok=facts.max_bytes_per_tok,
        )
        self._loaded = _Loaded(
            stamp=stamp,
            pipeline=pipeline,
            prompts=PromptReader(pipeline, capacity.max_context_tok),
            forms=Forms(),
            batch=Batch(
                pipeline,
                settings.model,
                kv_tok=kv_tok,
                max_step_tok=most_tok,
                prefixes=(
                    Prefixes(facts.kv_blocks, facts.block_tok) if settings.prefix_cache else None
                ),
            ),
        )
        features = openvino_pool(settings).features
        if facts.samples_by_default:
            # A request that names no temperature would not go on as it began.
            features -= {Feature.RESUME_EXACT}
        self._pool = replace(
            self._pool,
            state=PoolState.READY,
            features=features,
            loads=self._pool.loads + 1,
            load_ms=(monotonic_ns() - began_ns) / _NS_PER_MS,
            capacity=capacity,
            identity=Identity(
                engine=self.kind,
                engine_version=facts.engine_version,
                model=settings.model,
                digest=digest,
                digest_kind=digest_kind,
                launch=facts.launch,
                boundary="local",
            ),
        )
        return StepReport(stepped=False, pools_changed=True)

    def _open_in_time(self, stamp: Stamp) -> tuple[Pipeline, int]:
        """The model, and how many tokens a step has at most. The library takes that number as it
        opens a model, so one that was never measured here may be opened twice."""
        settings = self._settings
        target_ms, most_tok = settings.step_target_ms, settings.max_step_tok
        if target_ms is None:
            return self._open(settings), most_tok
        cache = self._digest_cache.with_name("steps.json")
        costs, pipeline = known_costs(cache, stamp, settings), None
        if costs is None:
            pipeline = self._open(settings)
            costs = measured_costs(cache, stamp, settings, pipeline)
        chosen_tok = step_tok(
            costs, target_ms=target_ms, max_seqs=settings.max_seqs, most_tok=most_tok
        )
        sys.stderr.write(words(costs, settings, chosen_tok) + "\n")
        if pipeline is None or chosen_tok < most_tok:
            pipeline = None  # there may be no room for both
            pipeline = self._open(replace(settings, max_step_tok=chosen_tok))
        return pipeline, chosen_tok

    def _holds_what_is_there(self) -> bool:
        identity = self._pool.identity
        digest, _ = weights_digest(Path(self._settings.path), self._digest_cache)
        return identity is not None and identity.digest == digest

    def _keep(self, stamp: Stamp) -> StepReport:
        """Other files, and the same weights in them: what is in memory is what is there."""
        assert self._loaded is not None
        self._loaded = self._loaded._replace(stamp=stamp)
        self._pool = replace(self._pool, state=PoolState.READY)
        return StepReport(stepped=False, pools_changed=True)


def _stamp(path: Path) -> Stamp:
    """As `weights_stamp`; of what cannot be looked at, which opening has the better words for,
    there is nothing to compare."""
    try:
        return weights_stamp(path)
    except OSError:
        return ()
