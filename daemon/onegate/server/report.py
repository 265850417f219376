"""The status document, put together from the core's view, the engine's word and the accounts."""

from collections.abc import Callable, Iterable

from onegate import __version__, clock
from onegate.admission.model import Binding, ClassView, PoolView, StepView
from onegate.config import GateConfig
from onegate.engines.base import Engine, EngineSnapshot, PoolInfo
from onegate.protocol.errors import LimitedBy, NoticeCode
from onegate.protocol.status import (
    ClassStatus,
    GateStatus,
    NoticeStatus,
    PoolStatus,
    Quantiles,
    RequestStatus,
    Status,
    StepModel,
)
from onegate.server.account import Accounts, quantiles
from onegate.server.gate import Gate
from onegate.server.inbound import InboundBytes
from onegate.server.live import LiveRequest
from onegate.server.outcome import Outcome
from onegate.source import build

NS_PER_MS = 1_000_000


def limited_by(binding: Binding | None) -> LimitedBy | None:
    """The core's word on the wire."""
    return None if binding is None else LimitedBy(binding.value)


def unix_ms(at_ns: int | None) -> int | None:
    """A time of the monotonic clock as Unix milliseconds."""
    if at_ns is None:
        return None
    return clock.wall_ms() + (at_ns - clock.monotonic_ns()) // NS_PER_MS


def step_model(view: StepView | None) -> StepModel | None:
    """What the core knows of a pool's steps, in milliseconds."""
    if view is None:
        return None
    prefill_ns = view.prefill_ns
    return StepModel(
        step_ms=view.step_ns / NS_PER_MS,
        prefill_ms_per_tok=None if prefill_ns is None else prefill_ns / NS_PER_MS,
        decode_ms_per_seq=view.decode_ns / NS_PER_MS,
        error=view.error,
        steps=view.steps,
        age_ms=view.age_ns // NS_PER_MS,
    )


class Reporter:
    """Builds the document; holds no figures of its own but the notices that are in force."""

    def __init__(
        self,
        *,
        gate: Gate,
        engine: Engine,
        accounts: Accounts,
        inbound: InboundBytes,
        limits: Callable[[], GateConfig],
        sessions: Callable[[], int],
        state: Callable[[], str],
        started_ns: int,
    ) -> None:
        self._gate = gate
        self._engine = engine
        self._accounts = accounts
        self._inbound = inbound
        self._limits = limits
        self._sessions = sessions
        self._state = state
        self._started_ns = started_ns
        # Now, when what lies on the disk is what runs.
        self._build = build(__version__)
        self._notices: dict[NoticeCode, NoticeStatus] = {}

    def notice(self, code: NoticeCode, detail: str | None) -> None:
        """A degradation holds from now on, or, with None, holds no longer."""
        if detail is None:
            self._notices.pop(code, None)
        else:
            known = self._notices.get(code)
            since_ms = clock.wall_ms() if known is None else known.since_ms
            self._notices[code] = NoticeStatus(code=code, detail=detail, since_ms=since_ms)

    def status(self) -> Status:
        """The document as of now."""
        view = self._gate.view()
        infos = {pool.model: pool for pool in self._engine.pools()}
        return Status(
            state=self._state(),
            version=self._build,
            uptime_s=round((clock.monotonic_ns() - self._started_ns) / 1e9, 3),
            gate=GateStatus(
                in_flight=view.in_flight,
                max_in_flight=self._limits().max_in_flight,
                queued=view.queued,
                queued_tok=view.queued_tok,
                max_queued_tok=self._limits().max_queued_tok,
                inbound_bytes=self._inbound.total_bytes,
                sessions=self._sessions(),
                limited_by=limited_by(view.limited_by),
            ),
            pools=[self._pool(pool, infos.get(pool.model)) for pool in view.pools],
            classes=[self._class(class_) for class_ in view.classes],
            notices=list(self._notices.values()),
        )

    def _pool(self, view: PoolView, info: PoolInfo | None) -> PoolStatus:
        says = self._engine.snapshot(view.model) or EngineSnapshot(model=view.model)
        step_ms = None
        if says.step_ms_p50 is not None and says.step_ms_p95 is not None:
            step_ms = Quantiles(p50=says.step_ms_p50, p95=says.step_ms_p95)
        return PoolStatus(
            model=view.model,
            state=view.state.value,
            seats=view.seats,
            seats_used=view.seats_used,
            seats_quarantined=view.seats_quarantined,
            restarts=self._accounts.engine_losses,
            kv_tok=view.kv_tok,
            kv_tok_used=view.kv_tok_used,
            max_step_tok=info.capacity.max_step_tok if info else None,
            max_context_tok=info.capacity.max_context_tok if info else None,
            step_ms=step_ms,
            tok_per_s=says.tok_per_s,
            ledger_minus_engine_tok=(
                None if says.kv_tok_used is None else view.kv_tok_used - says.kv_tok_used
            ),
            identity=info.identity if info else None,
            error=info.error if info else None,
            loads=info.loads if info else None,
            released_until_ms=unix_ms(view.released_until_ns),
            step_model=step_model(view.pace),
            features=info.offers if info else [],
        )

    def _class(self, view: ClassView) -> ClassStatus:
        account = self._accounts.of(view.name)
        outcomes, wait_ns = account.outcomes, view.expected_wait_ns
        return ClassStatus(
            name=view.name,
            rank=view.rank,
            queued=view.queued,
            queued_tok=view.queued_tok,
            max_queued_tok=view.max_queued_tok,
            running=view.running,
            admitted=account.admitted,
            finished=outcomes[Outcome.FINISHED],
            rejected={reason.value: count for reason, count in account.rejected.items()},
            cancelled=outcomes[Outcome.CANCELLED] + outcomes[Outcome.DISCONNECTED],
            expired=outcomes[Outcome.EXPIRED],
            failed=outcomes[Outcome.FAILED] + outcomes[Outcome.ABORTED],
            preempted=account.preempted,
            expected_wait_ms=None if wait_ns is None else wait_ns // NS_PER_MS,
            paused=view.closed,
            paused_until_ms=unix_ms(view.opens_at_ns),
            ttft_ms=quantiles(account.recent_ttft_ms),
            prompt_tok=account.prompt_tok,
            output_tok=account.output_tok,
            cached_tok=account.cached_tok if account.told_tok else None,
            recomputed_tok=account.recomputed_tok,
            discarded_tok=account.discarded_tok,
        )


def request_rows(
    requests: Iterable[LiveRequest], *, principal: str | None, admin: bool
) -> list[RequestStatus]:
    """The live requests as `principal` may see them: all of them, whose they are only to admins."""
    now_ns = clock.monotonic_ns()
    return [
        RequestStatus(
            rid=live.rid,
            class_=live.class_,
            state=live.phase.value,
            age_ms=(now_ns - live.arrived_ns) // NS_PER_MS,
            prompt_tok=live.prompt_tok,
            output_tok=live.output_tok,
            mine=live.client.principal == principal,
            principal=(
                live.client.principal if admin or live.client.principal == principal else None
            ),
        )
        for live in requests
    ]
