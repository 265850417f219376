"""The status document: what `onegate status --json` prints. Fields are added, never renamed.

A figure that is not known is None, never 0. Counts and waiting times of others are visible to
everybody; who they are only to administrators; texts to nobody.
"""

import msgspec

from onegate.protocol.content import Identity
from onegate.protocol.errors import LimitedBy


class _Doc(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the document's parts: every field is printed, also when it is None."""


class Quantiles(_Doc, frozen=True):
    """Milliseconds over the recent window."""

    p50: float
    p95: float


class GateStatus(_Doc, frozen=True):
    """The gate as a whole. `limited_by` names what keeps the next queued request from starting."""

    in_flight: int
    max_in_flight: int
    queued: int
    queued_tok: int
    max_queued_tok: int
    inbound_bytes: int
    sessions: int
    limited_by: LimitedBy | None = None


class StepModel(_Doc, frozen=True):
    """What was learned of how long a pool's steps take: each `step_ms`, and more for each prompt
    token in it and each sequence that decodes. `error` is the median of |predicted - seen| / seen.
    Learned of the last `steps`, the newest `age_ms` ago.
    """

    step_ms: float
    prefill_ms_per_tok: float | None
    decode_ms_per_seq: float
    error: float | None
    steps: int
    age_ms: int


class PoolStatus(_Doc, frozen=True):
    """One model that can be served.

    `loads` counts how often the engine has loaded it. `released_until_ms` is Unix time: when a
    released one is taken back, None where nobody has said. `features` as in `ModelInfo`.
    """

    model: str
    state: str
    seats: int
    seats_used: int
    seats_quarantined: int
    restarts: int
    kv_tok: int | None = None
    kv_tok_used: int | None = None
    max_step_tok: int | None = None
    max_context_tok: int | None = None
    step_ms: Quantiles | None = None
    tok_per_s: float | None = None
    ledger_minus_engine_tok: int | None = None
    identity: Identity | None = None
    error: str | None = None
    loads: int | None = None
    released_until_ms: int | None = None
    step_model: StepModel | None = None
    features: list[str] = []


class ClassStatus(_Doc, frozen=True):
    """One class: what waits, what runs, how its requests ended, and what these took.

    `cached_tok` of prompts were in the engine's cache, None where it never said. `recomputed_tok`
    were computed again and `discarded_tok` of output made for nothing, because a request was
    stopped to make room or the engine died.
    """

    name: str
    rank: int
    queued: int
    queued_tok: int
    max_queued_tok: int
    running: int
    admitted: int
    finished: int
    rejected: dict[str, int]
    cancelled: int
    expired: int
    failed: int
    preempted: int
    expected_wait_ms: int | None = None
    paused: bool = False
    paused_until_ms: int | None = None
    ttft_ms: Quantiles | None = None
    prompt_tok: int = 0
    output_tok: int = 0
    cached_tok: int | None = None
    recomputed_tok: int = 0
    discarded_tok: int = 0


class NoticeStatus(_Doc, frozen=True):
    """A degradation that holds now."""

    code: str
    detail: str
    since_ms: int


class RequestStatus(_Doc, frozen=True):
    """One live request. `principal` is shown to administrators and for one's own requests."""

    rid: str
    class_: str = msgspec.field(name="class")
    state: str
    age_ms: int
    prompt_tok: int
    output_tok: int
    mine: bool
    principal: str | None = None


class Status(_Doc, frozen=True):
    """The whole document. `state` is starting, serving, draining or stopped."""

    state: str
    version: str
    uptime_s: float
    gate: GateStatus
    pools: list[PoolStatus]
    classes: list[ClassStatus]
    notices: list[NoticeStatus]
