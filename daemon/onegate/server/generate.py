"""The verbs that queue or ask the engine: each becomes a live request with a task of its own."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onegate.admission.model import Refusal, Standing
from onegate.config import ClassConfig
from onegate.engines.base import EngineBroke, EngineUnavailable, PoolState
from onegate.protocol import messages as m
from onegate.protocol.content import Usage
from onegate.protocol.errors import NoticeCode, Phase, Reason
from onegate.server.answer import Answer
from onegate.server.checks import find_pool
from onegate.server.live import LiveRequest
from onegate.server.outcome import Ending, Outcome, RequestEnded
from onegate.server.prepare import Plan, plan_generate, plan_lease, with_count
from onegate.server.relay import Relay
from onegate.server.request import ending_of, queued_message
from onegate.server.session import Session
from onegate.server.sizes import held_bytes

# A count waits for no permit, so it may not wait for long either: for its turn and for the engine.
COUNT_S = 5.0
COUNT_TOO_SLOW = Ending(
    Outcome.FAILED,
    Reason.ENGINE_UNAVAILABLE,
    f"the engine has not counted within {COUNT_S:g} s: try again later",
)


def generate(session: Session, message: m.Generate) -> None:
    """Start a `Generate`."""
    live = session.open(message.id, "generate", message.class_)
    services = session.services
    # Looked up now: what held when it came holds to its end, also across a reload.
    class_, asked_class = map(services.class_config, (live.class_, live.asked_class))

    async def body() -> None:
        plan = plan_generate(
            message,
            live,
            pool=find_pool(services.pools(), message.model or session.model),
            spec_class=class_,
            asked_class=asked_class,
            flow=session.decision.flow,
            sizes=services.sizes,
        )
        live.prompt_tok = plan.spec.prompt_tok
        with inbound(session, plan.held_bytes):
            if plan.must_count:
                plan = await _counted(session, plan, asked_class)
                live.prompt_tok = plan.spec.prompt_tok
            await _admitted(session, live, message, plan)

    session.start(live, body)


@contextmanager
def inbound(session: Session, n_bytes: int) -> Iterator[None]:
    """What a request holds in memory is charged while it lives; raises `RequestEnded`."""
    inbound, principal = session.services.inbound, session.principal
    full = inbound.charge(principal, n_bytes)
    if full is not None:
        raise RequestEnded(full)
    try:
        yield
    finally:
        inbound.refund(principal, n_bytes)


async def _counted(session: Session, plan: Plan, asked_class: ClassConfig) -> Plan:
    """The plan with the engine's count, or as it is when the engine cannot say or takes too long:
    then it finds out itself, once it runs the request."""
    request = plan.request
    try:
        async with asyncio.timeout(COUNT_S), session.services.counting.of(session.principal):
            count = await session.services.engine.count(
                request.model,
                prompt=request.prompt,
                raw=request.raw,
                messages=request.messages,
                tools=request.tools,
            )
    except (TimeoutError, EngineUnavailable, EngineBroke):
        return plan
    return with_count(plan, count.n_tok, asked_class)


async def _admitted(session: Session, live: LiveRequest, message: m.Generate, plan: Plan) -> None:
    services = session.services
    answer = Answer(live, stream=message.stream, want_tok_ids=message.prompt_token_ids is not None)
    lowered = None if live.start is None else live.start.treatment.detail
    if lowered is not None:
        answer.notices.append(m.Notice(code=NoticeCode.CLASS_LOWERED, detail=lowered))
    relay = Relay(services.engine, plan, live, answer, services.sizes, services.accounts)
    live.phase = Phase.QUEUED
    async with services.gate.admit(
        plan.spec, aborter(live), _progress(session, live, message.progress)
    ) as permit:
        await relay.run(permit)


def _progress(
    session: Session, live: LiveRequest, wanted: bool
) -> Callable[[Standing], None] | None:
    if not wanted:
        return None
    return lambda standing: live.client.send(queued_message(live, standing))


def aborter(live: LiveRequest) -> Callable[[Refusal], None]:
    """What ends a request whose permit has run out of time."""

    def abort(refusal: Refusal) -> None:
        live.end(ending_of(refusal, Outcome.ABORTED))

    return abort


def lease(session: Session, message: m.Lease) -> None:
    """Start a `Lease`: a permit and a seat without our generating anything."""
    live = session.open(message.id, "lease", message.class_)
    services = session.services
    class_, asked_class = map(services.class_config, (live.class_, live.asked_class))

    async def body() -> None:
        spec = plan_lease(
            message,
            live,
            pool=find_pool(services.pools(), message.model or session.model),
            spec_class=class_,
            asked_class=asked_class,
            flow=session.decision.flow,
        )
        live.prompt_tok = spec.prompt_tok
        live.phase = Phase.QUEUED
        progress = _progress(session, live, message.progress)
        async with services.gate.admit(spec, aborter(live), progress) as permit:
            live.granted_ns = permit.granted_ns
            live.phase = Phase.GRANTED
            settled: asyncio.Future[Usage | None] = asyncio.get_running_loop().create_future()
            session.leases[message.id] = settled
            try:
                queue_ms = ((permit.granted_ns or live.arrived_ns) - live.arrived_ns) / 1e6
                live.client.send(m.Started(id=live.id, rid=live.rid, queue_ms=queue_ms))
                usage = await settled
            finally:
                del session.leases[message.id]
            if usage is not None:
                live.prompt_tok, live.output_tok = usage.prompt_tok, usage.output_tok
                # Nobody checks what a delegate says, and shares and floors are reckoned in it.
                permit.produced(min(usage.output_tok, message.max_tok))
            permit.settle(finished=True)
        live.client.send(m.Ack(id=live.id, verb="settle"))

    session.start(live, body)


def count_tokens(session: Session, message: m.CountTokens) -> None:
    """Start a `CountTokens`: outside the queue, but few at a time."""
    live = session.open(message.id, "count", None)
    services = session.services

    async def body() -> None:
        pool = find_pool(services.pools(), message.model or session.model)
        if pool.state is PoolState.RELEASED:
            raise RequestEnded(services.release.ending(Outcome.REJECTED))
        with inbound(session, held_bytes(message)):
            try:
                async with asyncio.timeout(COUNT_S), services.counting.of(session.principal):
                    count = await services.engine.count(
                        pool.model,
                        prompt=message.prompt,
                        messages=message.messages,
                        tools=message.tools,
                    )
            except TimeoutError:
                raise RequestEnded(COUNT_TOO_SLOW) from None
            except EngineUnavailable:
                if services.release.in_force:  # the device was lent while this was asked
                    raise RequestEnded(services.release.ending(Outcome.FAILED)) from None
                raise
        live.client.send(m.Counted(id=live.id, n_tok=count.n_tok, exact=count.exact))

    session.start(live, body)
