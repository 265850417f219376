"""The verbs `load` and `unload`: a delegate's clients bring a model into memory, and out of it."""

from onegate.admission.model import RequestSpec
from onegate.engines.base import PoolState
from onegate.protocol import messages as m
from onegate.protocol.errors import Phase
from onegate.server.checks import check_boundary, find_pool
from onegate.server.generate import aborter
from onegate.server.prepare import deadline_ns
from onegate.server.session import Session

# It takes a place in the queue and uses none of it; a permit is reckoned in at least this much.
PLACE_TOK = 1


def load(session: Session, message: m.Load) -> None:
    """Start a `Load`: a place in the queue of its class, so that nobody better is put out of memory
    for it before it is its turn. With the permit the model is there, and the permit goes back."""
    live = session.open(message.id, "load", None)
    services = session.services
    class_, asked_class = map(services.class_config, (live.class_, live.asked_class))

    async def body() -> None:
        pool = find_pool(services.pools(), message.model)
        check_boundary(pool, asked_class)
        spec = RequestSpec(
            rid=live.serial,
            pool=pool.model,
            class_=class_.name,
            principal=live.client.principal,
            flow=session.decision.flow,
            prompt_tok=PLACE_TOK,
            max_tok=PLACE_TOK,
            arrived_ns=live.arrived_ns,
            counted=True,
            ttft_deadline_ns=deadline_ns(live.arrived_ns, class_.ttft_timeout_ms),
            lease=True,
        )
        live.phase = Phase.QUEUED
        async with services.gate.admit(spec, aborter(live)) as permit:
            live.granted_ns = permit.granted_ns
            permit.settle(finished=True)
        live.client.send(m.Ack(id=live.id, verb="load"))

    session.start(live, body)


def unload(session: Session, message: m.Unload) -> None:
    """Start an `Unload`. What somebody uses or waits for stays: `applied` is false then."""
    live = session.open(message.id, "unload", None)
    services = session.services

    async def body() -> None:
        pool = find_pool(services.pools(), message.model)
        applied = pool.state is PoolState.READY and not services.gate.wants(pool.model)
        if applied:
            await services.engine.unload(pool.model)
        live.client.send(m.Ack(id=live.id, verb="unload", applied=applied))

    session.start(live, body)
