"""Verb to handler. Handlers of one-shot verbs answer at once; the others become requests."""

from collections.abc import Callable
from functools import partial
from typing import Any

from onegate import clock
from onegate.admission.model import Verdict
from onegate.protocol import messages as m
from onegate.protocol.errors import FrameTooLarge, NoticeCode, Reason
from onegate.server import access
from onegate.server.checks import check_until, find_pool, refuse
from onegate.server.closures import Closure, Closures, unknown_after_restart
from onegate.server.embed import embed
from onegate.server.generate import count_tokens, generate, lease
from onegate.server.greeting import peer_facts
from onegate.server.loads import load, unload
from onegate.server.log import Event
from onegate.server.outcome import (
    CANCELLED,
    CANCELLED_BY_ADMIN,
    Ending,
    Outcome,
    RequestEnded,
)
from onegate.server.report import limited_by, request_rows
from onegate.server.request import NS_PER_MS, ending_of, too_long
from onegate.server.session import Session
from onegate.server.usage import utc_day, wire_row

# What one report may hold: some two megabytes, and 30 ms of the loop.
MAX_REPORT_ROWS = 8192

Handler = Callable[[Session, Any], None]


def _cancel(session: Session, message: m.Cancel) -> None:
    live = session.live.get(message.id)
    if live is not None:
        live.end(CANCELLED)
    session.send(m.Ack(id=message.id, verb="cancel", applied=live is not None))


def _settle(session: Session, message: m.Settle) -> None:
    lease_end = session.leases.get(message.id)
    if lease_end is None or lease_end.done():
        session.send(m.Ack(id=message.id, verb="settle", applied=False))
    else:
        lease_end.set_result(message.usage)


def _capacity(session: Session, message: m.Capacity) -> None:
    services = session.services
    asked = session.class_for(message.class_)
    treatment = services.treatment(session.principal, session.decision.flow, asked)
    class_ = services.class_config(treatment.class_)
    if (rationed := services.rationed(session.principal, class_.name)) is not None:
        session.send(refusing_report(message.id, rationed))
        return
    pool = find_pool(services.pools(), message.model or session.model)
    verdict = services.gate.ask(
        pool=pool.model,
        class_=class_.name,
        principal=session.principal,
        prompt_tok=message.prompt_tok,
        max_tok=message.max_tok or class_.max_tokens_default,
    )
    session.send(capacity_report(message.id, verdict))


def capacity_report(id: int, verdict: Verdict) -> m.CapacityReport:
    """The core's verdict as a reply."""
    if verdict.refusal is not None:
        ending = ending_of(verdict.refusal, Outcome.REJECTED)
        return refusing_report(id, ending, position=verdict.position)
    wait_ns = verdict.expected_wait_ns
    return m.CapacityReport(
        id=id,
        verdict="start" if verdict.position == 0 else "queue",
        position=verdict.position,
        expected_wait_ms=None if wait_ns is None else wait_ns // NS_PER_MS,
        limited_by=limited_by(verdict.limited_by),
    )


def refusing_report(id: int, ending: Ending, *, position: int = 0) -> m.CapacityReport:
    """What would be refused, and the place it would have had."""
    return m.CapacityReport(
        id=id,
        verdict="refuse",
        position=position,
        reason=ending.reason,
        limited_by=ending.limited_by,
        limit=ending.limit,
        used=ending.used,
        retry_after_ms=ending.retry_after_ms,
    )


def _status(session: Session, message: m.GetStatus) -> None:
    services = session.services
    rows = None
    if message.detail:
        decision = session.decision
        # To speak for somebody is no right to see what is his.
        whose = None if decision.end_client else decision.principal
        rows = request_rows(services.live, principal=whose, admin=decision.admin)
    session.send(m.StatusReport(id=message.id, status=services.reporter.status(), requests=rows))


def _whoami(session: Session, message: m.Whoami) -> None:
    decision, services = session.decision, session.services
    treatment = services.treatment(decision.principal, decision.flow, decision.class_)
    lowered = treatment.detail
    session.send(
        m.WhoamiReport(
            id=message.id,
            peer=peer_facts(session.peer),
            principal=decision.principal,
            class_=decision.class_,
            ceiling=decision.ceiling,
            allowed=list(decision.allowed),
            why=[*decision.why, *([] if lowered is None else [lowered])],
            delegate=decision.delegate,
            admin=decision.admin,
            treated_as=None if lowered is None else treatment.class_,
            daily=(
                {}
                if decision.end_client
                else services.quotas.of(decision.principal, clock.wall_ms())
            ),
        )
    )


def _metrics(session: Session, message: m.Metrics) -> None:
    session.send(m.MetricsReport(id=message.id, text=session.services.metrics.text()))


def _known_class(session: Session, name: str) -> str:
    names = [class_.name for class_ in session.services.config.classes]
    if name not in names:
        raise refuse(
            Reason.INVALID,
            f"there is no class {name[:80]!r}; the classes are {', '.join(names)}",
            path="class",
        )
    return name


def _pause(session: Session, message: m.Pause) -> None:
    class_ = _known_class(session, message.class_)
    now_ms = clock.wall_ms()
    check_until(message.until_ms, now_ms)
    closure = Closure(
        class_=class_, principal=session.principal, since_ms=now_ms, until_ms=message.until_ms
    )

    def close() -> bool:
        session.services.hours.pause(closure)
        return True

    _ack_once_kept(session, message.id, "pause", class_, close)


def _ack_once_kept(
    session: Session, id: int, verb: str, class_: str | None, act: Callable[[], bool]
) -> None:
    """Close or open something; what that comes to is so after a restart, too, once it is said, or
    the answer says that it is not."""
    closures = session.services.closures
    if not closures.stored:
        applied = act()
        session.send(_ack(closures, id, verb, class_, applied))
        return
    live = session.open(id, verb, None)
    applied = act()

    async def body() -> None:
        await closures.written()
        live.client.send(_ack(closures, id, verb, class_, applied))

    session.start(live, body)


def _ack(closures: Closures, id: int, verb: str, class_: str | None, applied: bool) -> m.Ack:
    why = closures.unknown(class_)
    notices = []
    if why is not None:
        detail = unknown_after_restart(why)
        notices = [m.Notice(code=NoticeCode.CLOSED_UNWRITTEN.value, detail=detail)]
    return m.Ack(id=id, verb=verb, applied=applied, notices=notices)


def _unpause(session: Session, message: m.Unpause) -> None:
    class_ = _known_class(session, message.class_)
    services = session.services

    end = partial(services.hours.unpause, class_, session.principal)
    _ack_once_kept(session, message.id, "unpause", class_, end)


def _cancel_any(session: Session, message: m.CancelAny) -> None:
    live = session.services.live.find(message.rid)
    if live is not None:
        live.end(CANCELLED_BY_ADMIN)
        session.services.log.event(
            Event.REQUEST_CANCELLED, rid=live.rid, principal=session.principal
        )
    session.send(m.Ack(id=message.id, verb="cancel_any", applied=live is not None))


def _usage(session: Session, message: m.GetUsage) -> None:
    if session.decision.end_client:
        raise refuse(Reason.PERMISSION, "what somebody used is not shown to whoever speaks for him")
    everybody, usage = session.decision.admin, session.services.usage
    since = "" if message.since_ms is None else utc_day(message.since_ms)
    rows = usage.rows(since, None if everybody else session.principal)
    if len(rows) > MAX_REPORT_ROWS:
        raise refuse(
            Reason.TOO_LARGE,
            f"{len(rows)} rows, and one report holds {MAX_REPORT_ROWS}: ask for fewer days",
            path="since_ms",
            limit=MAX_REPORT_ROWS,
            used=len(rows),
        )
    session.send(
        m.UsageReport(
            id=message.id,
            rows=[wire_row(row) for row in rows],
            everybody=everybody,
            stored=usage.stored and not usage.unwritten,
            daily=session.services.quotas.of(session.principal, clock.wall_ms()),
        )
    )


def _release_engine(session: Session, message: m.ReleaseEngine) -> None:
    release = session.services.release
    if message.end:
        end = partial(release.end, session.principal)
        _ack_once_kept(session, message.id, "release_engine", None, end)
        return
    check_until(message.until_ms, clock.wall_ms())
    live = session.open(message.id, "release_engine", None)
    release.begin(until_ms=message.until_ms, now=message.now, principal=session.principal)

    async def body() -> None:
        applied = await release.wait_free()
        closures = session.services.closures
        live.client.send(_ack(closures, live.id, "release_engine", None, applied))

    session.start(live, body)


HANDLERS: dict[type, Handler] = {
    m.Generate: generate,
    m.CountTokens: count_tokens,
    m.Lease: lease,
    m.Cancel: _cancel,
    m.Settle: _settle,
    m.Capacity: _capacity,
    m.GetStatus: _status,
    m.Whoami: _whoami,
    m.Metrics: _metrics,
    m.GetUsage: _usage,
    m.ReleaseEngine: _release_engine,
    m.Pause: _pause,
    m.Unpause: _unpause,
    m.CancelAny: _cancel_any,
    m.Embed: embed,
    m.Load: load,
    m.Unload: unload,
}


def check_complete() -> None:
    """Raise unless every verb has a rule and a handler."""
    access.check_complete(set(HANDLERS))


def _class_of(session: Session, message: m.Generate | m.Lease | m.Embed | m.Load) -> str:
    """The class in which it would have been; one that it may not have counts for the usual one."""
    try:
        asked = session.class_for(None if isinstance(message, m.Load) else message.class_)
    except RequestEnded:
        asked = session.decision.class_
    return session.services.treatment(session.principal, session.decision.flow, asked).class_


def dispatch(session: Session, message: Any) -> None:
    """Carry out one request of a connection that has said hello."""
    try:
        if not access.allowed(session.decision, type(message)):
            raise refuse(
                Reason.PERMISSION,
                f"{message.__struct_config__.tag} is for {access.RULES[type(message)].value}; "
                "`onegate whoami` says what you are and why",
            )
        HANDLERS[type(message)](session, message)
    except RequestEnded as error:
        if isinstance(message, m.Generate | m.Lease | m.Embed | m.Load):
            session.services.refused_on_arrival(
                session.principal, _class_of(session, message), error.ending.reason
            )
        session.refuse(message.id, error.ending)
    except FrameTooLarge as error:
        session.refuse(message.id, too_long(error))
