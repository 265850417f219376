"""From what a client asks to what the core and the engine are given."""

from dataclasses import dataclass, replace

import msgspec
from msgspec import UNSET

from onegate.admission.model import RequestSpec, Resume
from onegate.config import ClassConfig
from onegate.engines.base import EngineRequest, Feature, PoolInfo, PoolState, Reservation
from onegate.protocol.content import Params
from onegate.protocol.messages import Generate, Lease
from onegate.server.checks import (
    check_bound,
    check_boundary,
    check_class,
    check_features,
    check_params,
    check_up,
    check_whole_prompt,
    too_large,
)
from onegate.server.live import LiveRequest
from onegate.server.sizes import (
    PromptSizes,
    held_bytes,
    least_tok,
    most_tok,
    template_bytes,
    text_bytes,
)

MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Plan:
    """A request that may queue: what the core decides on, and what the engine will be sent.

    `must_count` says that only the engine can tell whether it fits into the context.
    `held_bytes` stay in memory until the request ends. `surely_fits`: whatever the tokenizer makes
    of it, it fits into the context with the longest answer that it may get.
    """

    spec: RequestSpec
    request: EngineRequest
    pool: PoolInfo
    asked_class: ClassConfig
    n_bytes: int
    n_messages: int
    held_bytes: int
    must_count: bool
    surely_fits: bool

    @property
    def resumes_exactly(self) -> bool:
        """Can its answer be continued from its token ids after a cut?"""
        return self.spec.resume is Resume.EXACT


def default_max_tok(pool: PoolInfo, spec_class: ClassConfig, prompt_tok: int) -> int:
    """Output tokens of a request that names no maximum.

    The rest of the context where reserving it costs nothing that is not used; the class's number
    where the engine reserves in full, or a default would take the cache from everybody.
    """
    rest = max(1, pool.capacity.max_context_tok - prompt_tok)
    if pool.capacity.reservation is Reservation.FULL:
        return min(rest, spec_class.max_tokens_default)
    return min(rest, spec_class.max_tokens_max)


def resumes_exactly(params: Params, features: frozenset[Feature]) -> bool:
    """Greedy decoding without penalties or a minimum goes on as if it never stopped.

    Penalties would forget what came before the cut, and so would a grammar, except where the
    engine begins it at the cut.
    """
    return (
        Feature.RESUME_EXACT in features
        and params.temperature in (UNSET, 0)
        and params.min_tokens is UNSET
        and (_is_free(params) or Feature.RESUME_GUIDED in features)
        and params.presence_penalty in (UNSET, 0)
        and params.frequency_penalty in (UNSET, 0)
        and params.repeat_penalty in (UNSET, 1)
        and params.logprobs is not True
    )


def _is_free(params: Params) -> bool:
    """Any text may be the answer."""
    return params.response_format is UNSET or params.response_format.type == "text"


def _resume(message: Generate, pool: PoolInfo) -> Resume:
    """What can become of it when it is stopped on this engine."""
    if Feature.ABORT not in pool.features:
        return Resume.NEVER
    if resumes_exactly(message.params, pool.features):
        return Resume.EXACT
    return Resume.UNSEEN if message.stream else Resume.RESTART


def deadline_ns(arrived_ns: int, *timeouts_ms: int | None) -> int | None:
    """The moment that the first timeout which is stated comes to."""
    first = next((timeout for timeout in timeouts_ms if timeout is not None), None)
    return None if first is None else arrived_ns + first * MS


def plan_generate(
    message: Generate,
    live: LiveRequest,
    *,
    pool: PoolInfo,
    spec_class: ClassConfig,
    asked_class: ClassConfig,
    flow: str,
    sizes: PromptSizes,
) -> Plan:
    """Check a `Generate` against its pool and class; raises `RequestEnded` with the refusal.

    `spec_class` is what it is treated as, `asked_class` the one whose bounds it was told.
    """
    check_boundary(pool, asked_class)
    check_up(pool)
    check_features(message, pool)
    check_params(message.params, pool)
    check_class(message, asked_class)
    context_tok = pool.capacity.max_context_tok
    sure_bytes = text_bytes(message.prompt, message.messages)
    n_bytes = sure_bytes + template_bytes(message.messages, message.tools)
    n_messages = len(message.messages or ()) or 1
    ids = message.prompt_token_ids
    asked = message.params.max_tokens
    output_tok = 1 if asked is UNSET else asked
    if ids is not None:
        least = most = prompt_tok = len(ids)
    else:
        least = least_tok(pool.capacity, sure_bytes)
        most = most_tok(n_bytes, n_messages)
        prompt_tok = max(least, sizes.estimate(pool.model, n_bytes, n_messages))
    if least + output_tok > context_tok:
        raise too_large(least + output_tok, context_tok)
    prompt_tok = min(prompt_tok, context_tok - output_tok)
    max_tok = default_max_tok(pool, asked_class, prompt_tok) if asked is UNSET else asked
    # With all of its answer: an engine that cuts a prompt may cut it for the answer, too.
    surely_fits = most + max_tok <= context_tok
    check_whole_prompt(pool, asked_class, surely_fits=surely_fits)
    return Plan(
        spec=RequestSpec(
            rid=live.serial,
            pool=pool.model,
            class_=spec_class.name,
            principal=live.client.principal,
            flow=flow,
            prompt_tok=prompt_tok,
            max_tok=max_tok,
            arrived_ns=live.arrived_ns,
            counted=ids is not None,
            ttft_deadline_ns=deadline_ns(
                live.arrived_ns, message.ttft_timeout_ms, spec_class.ttft_timeout_ms
            ),
            ttft_is_own=message.ttft_timeout_ms is not None,
            deadline_ns=deadline_ns(live.arrived_ns, message.timeout_ms, spec_class.timeout_ms),
            resume=_resume(message, pool),
            prompt_bytes=n_bytes,
            ticket=message.ticket,
            likely_tok=asked_class.max_tokens_default if asked is UNSET else None,
        ),
        request=EngineRequest(
            id=0,
            model=pool.model,
            max_tokens=max_tok,
            fit_max_tokens=asked is UNSET,
            prompt=message.prompt,
            messages=message.messages,
            prompt_tok_ids=ids,
            tools=message.tools,
            tool_choice=message.tool_choice,
            think=message.think,
            suffix=message.suffix,
            raw=message.raw,
            params=message.params,
            rank=spec_class.rank,
            cache_salt=live.client.principal,
        ),
        pool=pool,
        asked_class=asked_class,
        n_bytes=n_bytes,
        n_messages=n_messages,
        held_bytes=held_bytes(message),
        must_count=(
            ids is None
            and most + output_tok > context_tok
            and Feature.COUNTS_TOKENS in pool.features
            and pool.state is PoolState.READY
        ),
        surely_fits=surely_fits,
    )


def with_count(plan: Plan, prompt_tok: int, asked_class: ClassConfig) -> Plan:
    """The plan with the engine's own count; raises `too_large` when it does not fit."""
    request, context_tok = plan.request, plan.pool.capacity.max_context_tok
    output_tok = 1 if request.fit_max_tokens else request.max_tokens
    if prompt_tok + output_tok > context_tok:
        raise too_large(prompt_tok + output_tok, context_tok)
    max_tok = request.max_tokens
    if request.fit_max_tokens:
        max_tok = default_max_tok(plan.pool, asked_class, prompt_tok)
    return replace(
        plan,
        spec=replace(plan.spec, prompt_tok=prompt_tok, max_tok=max_tok, counted=True),
        request=msgspec.structs.replace(request, max_tokens=max_tok),
    )


def plan_lease(
    message: Lease,
    live: LiveRequest,
    *,
    pool: PoolInfo,
    spec_class: ClassConfig,
    asked_class: ClassConfig,
    flow: str,
) -> RequestSpec:
    """Check a `Lease` against pool and class, as `plan_generate` does; raises `RequestEnded`."""
    check_boundary(pool, asked_class)
    most_tok, most_ms = asked_class.max_tokens_max, asked_class.ttft_timeout_ms_max
    check_bound(message.max_tok, most_tok, "max_tok", asked_class.name)
    check_bound(message.ttft_timeout_ms, most_ms, "ttft_timeout_ms", asked_class.name)
    if message.prompt_tok + message.max_tok > pool.capacity.max_context_tok:
        raise too_large(message.prompt_tok + message.max_tok, pool.capacity.max_context_tok)
    return RequestSpec(
        rid=live.serial,
        pool=pool.model,
        class_=spec_class.name,
        principal=live.client.principal,
        flow=flow,
        prompt_tok=message.prompt_tok,
        max_tok=message.max_tok,
        arrived_ns=live.arrived_ns,
        counted=True,
        # A lease shows no first token, so its ttft bounds the wait for the permit.
        ttft_deadline_ns=deadline_ns(
            live.arrived_ns, message.ttft_timeout_ms, spec_class.ttft_timeout_ms
        ),
        lease=True,
        prompt_bytes=message.prompt_tok,  # a lease has no text; its tokens are what it declares
        ticket=message.ticket,
    )
