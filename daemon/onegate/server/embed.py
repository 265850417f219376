"""The verb `embed`: it waits like any other work, and holds a permit while the engine computes."""

from onegate.admission.model import RequestSpec
from onegate.config import ClassConfig
from onegate.engines.base import EmbedRequest, Feature, PoolInfo
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason
from onegate.server.checks import (
    check_bound,
    check_boundary,
    check_up,
    find_pool,
    refuse,
    too_large,
)
from onegate.server.generate import aborter, inbound
from onegate.server.live import LiveRequest
from onegate.server.prepare import deadline_ns
from onegate.server.session import Session
from onegate.server.sizes import PromptSizes, held_bytes, least_tok

# No token is made; a permit is reckoned in at least one.
OUTPUT_TOK = 1


def plan_embed(
    message: m.Embed,
    live: LiveRequest,
    *,
    pool: PoolInfo,
    spec_class: ClassConfig,
    asked_class: ClassConfig,
    flow: str,
    sizes: PromptSizes,
) -> RequestSpec:
    """Check an `Embed` against pool and class; raises `RequestEnded` with the refusal.

    Each text has a context of its own, so together they may be more than one holds; what they take
    at once is no more than that.
    """
    check_boundary(pool, asked_class)
    check_up(pool)
    if Feature.EMBEDDINGS not in pool.features:
        raise refuse(
            Reason.UNSUPPORTED,
            f"the engine of model {pool.model} makes no embeddings: ask for a model that does",
            path="model",
        )
    check_bound(message.timeout_ms, asked_class.timeout_ms_max, "timeout_ms", asked_class.name)
    context_tok = pool.capacity.max_context_tok
    sizes_bytes = [len(text.encode()) for text in message.input]
    least = max(least_tok(pool.capacity, n_bytes) for n_bytes in sizes_bytes)
    if least > context_tok:
        raise too_large(least, context_tok)
    estimate = sum(sizes.estimate(pool.model, n_bytes, 0) for n_bytes in sizes_bytes)
    return RequestSpec(
        rid=live.serial,
        pool=pool.model,
        class_=spec_class.name,
        principal=live.client.principal,
        flow=flow,
        prompt_tok=max(1, min(estimate, context_tok - OUTPUT_TOK)),
        max_tok=OUTPUT_TOK,
        arrived_ns=live.arrived_ns,
        counted=True,
        # No first token is shown, so what bounds the time to it bounds the wait for the permit.
        ttft_deadline_ns=deadline_ns(live.arrived_ns, spec_class.ttft_timeout_ms),
        deadline_ns=deadline_ns(live.arrived_ns, message.timeout_ms, spec_class.timeout_ms),
        lease=True,  # it shows no tokens, and cannot be stopped and gone on with
        prompt_bytes=sum(sizes_bytes),
        ticket=message.ticket,
    )


def embed(session: Session, message: m.Embed) -> None:
    """Start an `Embed`."""
    live = session.open(message.id, "embed", message.class_)
    services = session.services
    class_, asked_class = map(services.class_config, (live.class_, live.asked_class))

    async def body() -> None:
        spec = plan_embed(
            message,
            live,
            pool=find_pool(services.pools(), message.model or session.model),
            spec_class=class_,
            asked_class=asked_class,
            flow=session.decision.flow,
            sizes=services.sizes,
        )
        live.prompt_tok = spec.prompt_tok
        live.phase = Phase.QUEUED
        with inbound(session, held_bytes(message)):
            async with services.gate.admit(spec, aborter(live)) as permit:
                live.granted_ns = permit.granted_ns
                live.phase = Phase.GRANTED
                queue_ms = ((permit.granted_ns or live.arrived_ns) - live.arrived_ns) / 1e6
                live.client.send(m.Started(id=live.id, rid=live.rid, queue_ms=queue_ms))
                request = EmbedRequest(id=live.serial, model=spec.pool, input=message.input)
                result = await services.engine.embed(request)
                live.prompt_tok = result.usage.prompt_tok
                permit.settle(finished=True)
            live.client.send(m.Embeddings(id=live.id, vectors=result.vectors, usage=result.usage))

    session.start(live, body)
