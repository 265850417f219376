"""What the daemon sends: one tagged struct each. Clients ignore what they do not know.

Times are milliseconds; `_tok` counts tokens; a figure that is not known is nil, never 0.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from onegate.protocol.content import (
    ChunkKind,
    FinishReason,
    Identity,
    RequestId,
    TokenLogprob,
    ToolCall,
    Usage,
)
from onegate.protocol.errors import LimitedBy, Phase, Reason
from onegate.protocol.status import RequestStatus, Status

Count = Annotated[int, Meta(ge=0)]
Place = Annotated[int, Meta(ge=1)]


class _Reply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="t"):
    """Base of what the daemon sends. Clients ignore fields and tags that they do not know."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of structs inside a reply; clients ignore unknown fields here too."""


class PeerFacts(_Part, frozen=True):
    """What the kernel said about the caller, as far as it could be read."""

    uid: int
    gid: int
    pid: int
    unit: str | None = None
    user_unit: str | None = None
    slice: str | None = None
    tty: bool = False


class ModelInfo(_Part, frozen=True):
    """A model that can be asked for. `max_context_tok` bounds prompt plus output; `features` are
    what a request may ask of it beyond text."""

    model: str
    state: str
    max_context_tok: int | None = None
    features: list[str] = []


class ClassLimits(_Part, frozen=True):
    """What one class allows: tokens of output and the two timeouts (nil: none)."""

    max_tokens_default: int
    max_tokens_max: int
    ttft_timeout_ms: int | None = None
    ttft_timeout_ms_max: int | None = None
    timeout_ms: int | None = None
    timeout_ms_max: int | None = None


class Limits(_Part, frozen=True):
    """Bounds that a client can respect instead of running into them."""

    max_frame_bytes: int
    frame_timeout_ms: int
    in_flight_per_session: int
    classes: dict[str, ClassLimits] = {}


class Welcome(_Reply, frozen=True, tag="welcome"):
    """Answer to `Hello`: who you are here, what you get, and why."""

    peer: PeerFacts
    class_: str = msgspec.field(name="class")
    ceiling: str
    why: list[str]
    models: list[ModelInfo]
    limits: Limits
    features: list[str]
    version: str


class Queued(_Reply, frozen=True, tag="queued"):
    """Where a waiting request stands; only with `progress`, at most once a second, latest wins.

    `position` counts from 1, which is next to start; `ahead` are the others before it, by class.
    """

    id: RequestId
    rid: str
    position: Place
    ahead: dict[str, int]
    expected_wait_ms: Count | None = None
    confidence: float | None = None
    limited_by: LimitedBy | None = None
    opens_in_ms: Count | None = None


class Started(_Reply, frozen=True, tag="started"):
    """The request has its permit and goes to the engine."""

    id: RequestId
    rid: str
    queue_ms: float


class Chunk(_Reply, frozen=True, tag="chunk"):
    """A piece of the answer. `n_tok` counts the tokens behind it (0 while text is held back)."""

    id: RequestId
    n_tok: Count
    kind: ChunkKind = ChunkKind.TEXT
    text: str = ""
    tool_call: ToolCall | None = None
    token_ids: list[int] | None = None
    logprobs: list[TokenLogprob] | None = None


class Paused(_Reply, frozen=True, tag="paused"):
    """The stream was preempted; it goes on later."""

    id: RequestId
    expected_wait_ms: Count | None = None


class Resumed(_Reply, frozen=True, tag="resumed"):
    """A preempted stream goes on."""

    id: RequestId


class Timings(_Part, frozen=True):
    """Where the time went. `cached_tok`: only what the principal itself put into the cache."""

    queue_ms: float
    e2e_ms: float
    ttft_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    tok_per_s: float | None = None
    cached_tok: int | None = None
    preempted: int = 0
    predicted_wait_ms: float | None = None
    waits: dict[str, float] = {}
    deferred_by: dict[str, float] = {}


class Notice(_Part, frozen=True):
    """Something the caller should know about how this was answered."""

    code: str
    detail: str
    since_ms: int | None = None


class Done(_Reply, frozen=True, tag="done"):
    """The request finished of itself."""

    id: RequestId
    rid: str
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    identity: Identity
    notices: list[Notice] = []


class Failed(_Reply, frozen=True, tag="failed"):
    """The request, or without `id` the connection, ends here and this is why.

    `limit` and `used` are in the unit of what was met: tokens for `tokens_full` and `too_large`,
    requests for `class_full`, bytes for `bytes_full`; for `peer_quota` tokens, requests or
    connections, as `message` says; for `invalid` the field's own. `path` names the offending field
    of an `invalid` or `unsupported` request, `models` the models there are.
    """

    reason: Reason
    message: str
    retryable: bool
    phase: Phase
    id: RequestId | None = None
    rid: str | None = None
    retry_after_ms: Count | None = None
    ticket: str | None = None
    limit: int | None = None
    used: int | None = None
    limited_by: LimitedBy | None = None
    confidence: float | None = None
    path: str | None = None
    models: list[str] | None = None


class Embeddings(_Reply, frozen=True, tag="embeddings"):
    """One vector per input, in order."""

    id: RequestId
    vectors: list[list[float]]
    usage: Usage


class Counted(_Reply, frozen=True, tag="counted"):
    """Answer to `CountTokens`; `exact` is false where the engine cannot count."""

    id: RequestId
    n_tok: Count
    exact: bool


class CapacityReport(_Reply, frozen=True, tag="capacity_report"):
    """Answer to `Capacity`: what would happen to such a request now.

    `position`: 0 with `start` and for what would be refused whatever waits; otherwise the place it
    would have in the queue, from 1.
    """

    id: RequestId
    verdict: Literal["start", "queue", "refuse"]
    position: Count = 0
    expected_wait_ms: Count | None = None
    confidence: float | None = None
    reason: Reason | None = None
    limited_by: LimitedBy | None = None
    limit: int | None = None
    used: int | None = None
    retry_after_ms: Count | None = None


class StatusReport(_Reply, frozen=True, tag="status_report"):
    """Answer to `GetStatus`."""

    id: RequestId
    status: Status
    requests: list[RequestStatus] | None = None


class DailyUse(_Part, frozen=True):
    """What the caller has used today of what it may use of a class in a day (UTC)."""

    limit_tok: Count
    used_tok: Count
    resets_in_ms: Count


class WhoamiReport(_Reply, frozen=True, tag="whoami_report"):
    """Answer to `Whoami`: facts, decision and the rules behind it.

    `treated_as` is the lower class that a request gets now for what this program does; the last of
    `why` says so too. `daily` are the rations of the day, by class.
    """

    id: RequestId
    peer: PeerFacts
    principal: str
    class_: str = msgspec.field(name="class")
    ceiling: str
    allowed: list[str]
    why: list[str]
    delegate: bool = False
    admin: bool = False
    treated_as: str | None = None
    daily: dict[str, DailyUse] = {}


class MetricsReport(_Reply, frozen=True, tag="metrics_report"):
    """Answer to `Metrics`: Prometheus text format."""

    id: RequestId
    text: str


class UsageRow(_Part, frozen=True):
    """What one principal used in one class on one day (UTC, `YYYY-MM-DD`).

    `requests` counts ends by outcome. `queue_ms` is waiting, `run_ms` holding a permit, both summed
    over the requests. Of `told_tok` prompt tokens the engine said whether they were in its cache,
    and `cached_tok` were (None: it said nothing). `recomputed_tok` were computed again and
    `discarded_tok` of output made for nothing, because a request was stopped to make room or the
    engine died. The principal `others` is everybody beyond the bound of a day, together.
    """

    day: str
    principal: str
    class_: str = msgspec.field(name="class")
    requests: dict[str, Count]
    prompt_tok: Count = 0
    output_tok: Count = 0
    queue_ms: Count = 0
    run_ms: Count = 0
    told_tok: Count = 0
    cached_tok: Count | None = None
    recomputed_tok: Count = 0
    discarded_tok: Count = 0


class UsageReport(_Reply, frozen=True, tag="usage_report"):
    """Answer to `GetUsage`: rows by day, the oldest first.

    `everybody`: the rows of all principals, not only the caller's own. `stored`: they are kept on
    disk, and outlive the daemon. `daily`: the caller's own rations of the day, by class.
    """

    id: RequestId
    rows: list[UsageRow]
    everybody: bool = False
    stored: bool = False
    daily: dict[str, DailyUse] = {}


class Ack(_Reply, frozen=True, tag="ack"):
    """A verb without an answer of its own was carried out.

    `applied` is false where there was nothing to do, such as cancelling a request that has just
    ended, or settling what is no lease. The `Ack` of a `cancel` never ends the request with the
    same id: its own end follows. That of a `settle` that was applied ends the lease. `notices` say
    what does not hold all the same, such as over a restart of the daemon.
    """

    id: RequestId
    verb: str
    applied: bool = True
    notices: list[Notice] = []
