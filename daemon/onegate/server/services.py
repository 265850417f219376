"""What every connection is given to work with; put together by `app` alone."""

from dataclasses import dataclass, field

from onegate import clock
from onegate.config import ClassConfig, Config
from onegate.engines.base import Engine, PoolInfo
from onegate.protocol.errors import Reason
from onegate.server.account import Accounts
from onegate.server.behaviour import Behaviour, Treatment
from onegate.server.classify import Rules
from onegate.server.closures import Closures
from onegate.server.gate import Gate
from onegate.server.hours import Hours
from onegate.server.inbound import InboundBytes
from onegate.server.kernel import Kernel
from onegate.server.live import QUEUED_VERBS, LiveRequest, LiveRequests
from onegate.server.log import Event, Log
from onegate.server.metrics import Metrics
from onegate.server.outcome import Ending, Outcome
from onegate.server.quota import Quotas
from onegate.server.release import Release
from onegate.server.report import Reporter
from onegate.server.sizes import PromptSizes
from onegate.server.slots import Slots
from onegate.server.turns import Turns
from onegate.server.unread import Unread
from onegate.server.usage import UsageTable
from onegate.tasks import Tasks

# Counts run outside the queue and each costs the engine a moment, so they are few at a time.
COUNTS_AT_A_TIME = 4

NS_PER_MS = 1_000_000


@dataclass
class Services:
    """The daemon's parts. `config` and `rules` are replaced on reload; the rest stays."""

    config: Config
    rules: Rules
    kernel: Kernel
    gate: Gate
    engine: Engine
    tasks: Tasks
    accounts: Accounts
    inbound: InboundBytes
    live: LiveRequests
    closures: Closures
    release: Release
    usage: UsageTable
    reporter: Reporter
    metrics: Metrics
    log: Log
    sizes: PromptSizes = field(default_factory=PromptSizes)
    counting: Slots = field(default_factory=lambda: Slots(COUNTS_AT_A_TIME))
    turns: Turns = field(default_factory=Turns)
    unread: Unread = field(init=False)
    behaviour: Behaviour = field(init=False)
    quotas: Quotas = field(init=False)
    hours: Hours = field(init=False)

    def __post_init__(self) -> None:
        self.behaviour = Behaviour(lambda: self.config.classes)
        self.quotas = Quotas(self.usage, self.live, lambda: self.config.classes)
        self.hours = Hours(
            gate=self.gate,
            closures=self.closures,
            classes=lambda: self.config.classes,
            log=self.log,
        )
        self.unread = Unread(
            lambda: (self.config.gate.unread_bytes, self.config.gate.unread_bytes_per_principal)
        )

    def pools(self) -> dict[str, PoolInfo]:
        """Every pool by its model, the default one first."""
        return {pool.model: self.release.seen(pool) for pool in self.engine.pools()}

    def class_config(self, name: str) -> ClassConfig:
        """The configured class of that name; it must exist."""
        return next(class_ for class_ in self.config.classes if class_.name == name)

    def restore_closures(self) -> None:
        """What was closed when the daemon before this one ended still is. To be called before the
        engine starts."""
        for closure in self.closures.restore():
            if closure.class_ is None:
                self.release.restore(closure)
            elif any(class_.name == closure.class_ for class_ in self.config.classes):
                self.hours.pause(closure, "still")
            else:
                detail = f"there is no class {closure.class_} any more, which was paused"
                self.log.event(Event.STATE_PROBLEM, detail=detail)
                self.closures.open(closure.class_)

    def treatment(self, principal: str, flow: str, asked: str) -> Treatment:
        """How a request of that flow for the class `asked` would be treated now."""
        return self.behaviour.would_be(
            principal=principal, flow=flow, asked=asked, now_ns=clock.monotonic_ns()
        )

    def rationed(self, principal: str, class_: str) -> Ending | None:
        """Why this principal may not begin one more in that class today."""
        return self.quotas.full(principal, self.class_config(class_), clock.wall_ms())

    def begin(self, live: LiveRequest, flow: str, asked: str) -> None:
        """A request that takes a place in a queue: it gets its class, and counts until its end."""
        live.start = self.behaviour.started(
            principal=live.principal, flow=flow, asked=asked, now_ns=live.arrived_ns
        )
        live.class_ = live.start.treatment.class_
        if live.class_ != asked:
            self.accounts.lowered[asked, live.class_] += 1

    def account(self, live: LiveRequest, outcome: Outcome, reason: Reason | None) -> None:
        """The one end of a request: counted, logged, forgotten."""
        now_ns = clock.monotonic_ns()
        self.live.close(live)
        if live.start is not None:
            self.behaviour.ended(live.start)
        if live.verb not in QUEUED_VERBS:
            return
        self.accounts.request_ended(live, outcome, reason, now_ns)
        granted_ns = live.granted_ns
        queued_ns = (now_ns if granted_ns is None else granted_ns) - live.arrived_ns
        self.usage.ended(
            principal=live.principal,
            class_=live.class_,
            outcome=outcome,
            now_ms=clock.wall_ms(),
            prompt_tok=0 if granted_ns is None else live.prompt_tok,
            output_tok=live.output_tok,
            work=live.work,
            queue_ms=queued_ns // NS_PER_MS,
            run_ms=0 if granted_ns is None else (now_ns - granted_ns) // NS_PER_MS,
        )
        self.log.request_end(
            rid=live.rid,
            uid=live.client.uid,
            class_=live.class_,
            outcome=outcome.value,
            reason=None if reason is None else reason.value,
            queue_ms=_ms(live.arrived_ns, live.granted_ns),
            ttft_ms=_ms(live.arrived_ns, live.first_text_ns),
            e2e_ms=(now_ns - live.arrived_ns) // NS_PER_MS,
            predicted_ms=_ms(0, live.predicted_ns),
            prompt_tok=live.prompt_tok,
            cached_tok=live.work.cached_tok,
            recomputed_tok=live.work.recomputed_tok or None,
            out_tok=live.output_tok,
            discarded_tok=live.work.discarded_tok or None,
        )

    def refused_on_arrival(self, principal: str, class_: str, reason: Reason) -> None:
        """A request that was refused before it came to live: counted."""
        self.accounts.refused_on_arrival(class_, reason)
        self.usage.ended(
            principal=principal,
            class_=class_,
            outcome=Outcome.REJECTED,
            now_ms=clock.wall_ms(),
        )


def _ms(from_ns: int, to_ns: int | None) -> int | None:
    return None if to_ns is None else (to_ns - from_ns) // NS_PER_MS
