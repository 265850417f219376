"""The scripted engine: no model, but the timing, the limits and the faults of one.

A step costs `a + b * prefill_tok + c * seqs` milliseconds; prompts are computed in chunks of
`max_step_tok`, the cache holds `kv_tok` tokens, and of several pools `loadable` are in memory at a
time, each for the price of its `switch_cost_ms`. A prompt of n bytes has n / 4 tokens, rounded up;
an answer is words, one a token, the same for the same prompt. max_tokens, min_tokens, ignore_eos
and stop have their effect; sampling parameters are taken and change nothing.

What a prompt can ask for, anywhere in its text; N counts tokens said before it happens:

    [[tokens:N]]         the answer ends of itself after N tokens (64)
    [[say:a|b||c]]       the answer is these tokens; an empty one is a token without text
    [[step-ms:N]]        a step in which it decodes costs N ms instead of the model's figure
    [[stall:MS]]         the step after its first token takes this much longer
    [[cached:N]]         of what comes before its first token, the cache is said to have N (all but
                         one), which are not computed
    [[hold-seat:MS]]     after an abort the seat is confirmed free only this much later (1000)
    [[refuse:TEXT]]      refused as invalid, with this sentence
    [[error:TEXT]]       fails with this sentence after two tokens
    [[die:N]]            the process dies (3); [[die-before-first]] in its first step
    [[hang:N]]           the step never ends, heartbeats go on (3)
    [[freeze:N]]         the step never ends and holds the interpreter: no heartbeats (3)
    [[close:N]]          the connection is closed and the process stays (3)
    [[garbage:N]]        a frame that is not msgpack (3)
    [[half-utf8:N]]      a frame whose text breaks off inside a character (3)
    [[huge-frame:N]]     a length of 4 GiB and nothing behind it (3)
    [[wrong-id:N]]       output for a request that does not exist (3)
"""

import time
from collections.abc import Callable

from msgspec.structs import replace

from onegate.clock import monotonic_ns
from onegate.engines.base import (
    EngineCapacity,
    EngineRequest,
    Feature,
    PoolInfo,
    PoolState,
)
from onegate.engines.host.checks import (
    check_min_tokens,
    check_params,
    check_plain_text,
    plain_turns,
)
from onegate.engines.host.directives import read_script
from onegate.engines.host.engine import Refusal, StepReport, too_large
from onegate.engines.host.scripted_batch import NowNs, ScriptedBatch, Sleep
from onegate.engines.host.scripted_faults import Faults
from onegate.engines.host.scripted_sequence import ScriptedSequence
from onegate.engines.host.settings import ScriptedPool, ScriptedSettings
from onegate.engines.host.wire import AcceptedMsg, CountCall
from onegate.protocol.content import Identity, Message

VERSION = "1"
BYTES_PER_TOK = 4

HONOURED = frozenset(
    {
        "max_tokens",
        "min_tokens",
        "ignore_eos",
        "stop",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "repeat_penalty",
    }
)
_FEATURES = frozenset(
    {
        Feature.ABORT,
        Feature.COUNTS_TOKENS,
        Feature.RESUME_EXACT,
        Feature.TOKEN_IDS,
        Feature.WHOLE_PROMPTS,
    }
)
_NS_PER_MS = 1_000_000
# While a load is waited for: how often the daemon is listened to.
_LOAD_TURN_S = 0.005


class ScriptedEngine:
    """See `engine.HostEngine`, and the module for what it does."""

    kind = "scripted"
    version = VERSION

    def __init__(
        self,
        settings: ScriptedSettings,
        *,
        hang_up: Callable[[], None],
        now_ns: NowNs = monotonic_ns,
        sleep: Sleep = time.sleep,
    ) -> None:
        self._now_ns = now_ns
        self._sleep = sleep
        self._loadable = settings.loadable
        self._settings = {pool.model: pool for pool in settings.pools}
        faults = Faults(hang_up)
        self._batches = {
            pool.model: ScriptedBatch(pool, faults, now_ns, sleep) for pool in settings.pools
        }
        self._pools = {pool.model: scripted_pool(pool) for pool in settings.pools}
        self._ready_ns: dict[str, int] = {}
        self._used_ns: dict[str, int] = {}
        self._turn = 0
        for pool in settings.pools[: settings.loadable]:
            self._begin_load(pool.model)

    @property
    def busy(self) -> bool:
        return bool(self._ready_ns) or any(batch.ids() for batch in self._batches.values())

    @property
    def due(self) -> bool:
        return self.busy

    @property
    def wake(self) -> None:
        return None

    def pools(self) -> list[PoolInfo]:
        return list(self._pools.values())

    def close(self) -> None:
        """All of it ends with the process."""

    def running(self, model: str) -> list[int]:
        batch = self._batches.get(model)
        return batch.ids() if batch is not None else []

    def look_again(self) -> None:
        """There is no file."""

    def load(self, model: str) -> None:
        if self._pool(model).state in (PoolState.READY, PoolState.LOADING):
            return
        present = [m for m, p in self._pools.items() if p.state is not PoolState.COLD]
        if len(present) >= self._loadable:
            idle = [m for m in present if m not in self._ready_ns and not self.running(m)]
            if not idle:
                raise Refusal("unavailable", f"no room for {model}: {', '.join(present)} is in use")
            self.unload(min(idle, key=lambda m: self._used_ns.get(m, 0)))
        self._begin_load(model)

    def unload(self, model: str) -> None:
        self._pools[model] = replace(self._pool(model), state=PoolState.COLD)
        self._ready_ns.pop(model, None)

    def submit(self, request: EngineRequest) -> AcceptedMsg:
        pool = self._pool(request.model)
        check_plain_text(request)
        check_params(request.params, HONOURED)
        prompt, prompt_tok = _prompt(request.prompt, request.messages, request.prompt_tok_ids)
        script = read_script(prompt)
        if "refuse" in script.texts:
            raise Refusal("invalid", script.texts["refuse"] or "scripted", path="prompt")
        room_tok = pool.capacity.max_context_tok - prompt_tok - len(request.resume_tok_ids or ())
        least_tok = 1 if request.fit_max_tokens else request.max_tokens
        if least_tok > room_tok:
            limit_tok = pool.capacity.max_context_tok
            raise too_large(limit_tok - room_tok + least_tok, limit_tok)
        check_min_tokens(request.params, min(request.max_tokens, room_tok))
        self._used_ns[request.model] = self._now_ns()
        sequence = ScriptedSequence(
            request, script, prompt.encode(), prompt_tok=prompt_tok, room_tok=room_tok
        )
        self._batches[request.model].add(sequence)
        return AcceptedMsg(id=request.id, prompt_tok=prompt_tok, cached_tok=sequence.cached_tok)

    def abort(self, id: int) -> None:
        for batch in self._batches.values():
            batch.abort(id)

    def count(self, call: CountCall) -> tuple[int, bool]:
        self._pool(call.model)
        return _prompt(call.prompt, call.messages, None)[1], True

    def step(self) -> StepReport:
        now_ns = self._now_ns()
        there = [model for model, ready_ns in self._ready_ns.items() if ready_ns <= now_ns]
        for model in there:
            del self._ready_ns[model]
            pool = self._pools[model]
            self._pools[model] = replace(pool, state=PoolState.READY, loads=pool.loads + 1)
        at_work = [batch for batch in self._batches.values() if batch.ids()]
        if there or not at_work:
            if not there:
                self._sleep(_LOAD_TURN_S)
            return StepReport(stepped=False, pools_changed=bool(there))
        # Pools that are loaded together take turns on the one card.
        self._turn += 1
        return at_work[self._turn % len(at_work)].step()

    def _pool(self, model: str) -> PoolInfo:
        if model not in self._pools:
            raise Refusal("invalid", f"there is no pool {model}", path="model")
        return self._pools[model]

    def _begin_load(self, model: str) -> None:
        cost_ms = self._settings[model].switch_cost_ms
        self._pools[model] = replace(self._pools[model], state=PoolState.LOADING)
        self._ready_ns[model] = self._now_ns() + int(cost_ms * _NS_PER_MS)


def _prompt(
    prompt: str | None, messages: list[Message] | None, ids: list[int] | None
) -> tuple[str, int]:
    """The text that directives are looked for in, and how many tokens the prompt is."""
    if ids is not None:
        if not ids:
            raise Refusal("invalid", "the prompt has no tokens", path="prompt_token_ids")
        return " ".join(map(str, ids)), len(ids)
    turns = plain_turns(messages) if messages is not None else [("user", prompt or "")]
    text = "\n".join(text for _, text in turns)
    return text, max(1, -(-len(text.encode()) // BYTES_PER_TOK))


def scripted_pool(pool: ScriptedPool) -> PoolInfo:
    """What is known of a pool before it is loaded."""
    return PoolInfo(
        model=pool.model,
        state=PoolState.COLD,
        capacity=EngineCapacity(
            max_seqs=pool.max_seqs,
            max_context_tok=min(pool.context_tok, pool.kv_tok),
            reservation=pool.reservation,
            kv_tok=pool.kv_tok,
            max_step_tok=pool.max_step_tok,
            max_bytes_per_tok=BYTES_PER_TOK,
        ),
        features=_FEATURES,
        params=HONOURED,
        identity=Identity(
            engine="scripted",
            engine_version=VERSION,
            model=pool.model,
            launch=f"scripted a={pool.a_ms} b={pool.b_ms_per_prefill_tok} c={pool.c_ms_per_seq}",
            boundary="local",
        ),
        switch_cost_ms=pool.switch_cost_ms,
        load_ms=pool.switch_cost_ms,
    )
