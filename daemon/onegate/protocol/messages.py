"""Every message of the wire, and one union per direction. Import messages from here."""

from onegate.protocol.answers import (
    Ack,
    CapacityReport,
    Chunk,
    ClassLimits,
    Counted,
    DailyUse,
    Done,
    Embeddings,
    Failed,
    Limits,
    MetricsReport,
    ModelInfo,
    Notice,
    Paused,
    PeerFacts,
    Queued,
    Resumed,
    Started,
    StatusReport,
    Timings,
    UsageReport,
    UsageRow,
    Welcome,
    WhoamiReport,
)
from onegate.protocol.requests import (
    Cancel,
    CancelAny,
    Capacity,
    CountTokens,
    Embed,
    Generate,
    GetStatus,
    GetUsage,
    Hello,
    Lease,
    Load,
    Metrics,
    OnBehalf,
    Pause,
    ReleaseEngine,
    Settle,
    Unload,
    Unpause,
    Whoami,
)

ClientMessage = (
    Hello
    | Generate
    | Embed
    | CountTokens
    | Cancel
    | Capacity
    | GetStatus
    | Whoami
    | Metrics
    | Lease
    | Settle
    | Load
    | Unload
    | Pause
    | Unpause
    | CancelAny
    | GetUsage
    | ReleaseEngine
)

DaemonMessage = (
    Welcome
    | Queued
    | Started
    | Chunk
    | Paused
    | Resumed
    | Done
    | Failed
    | Embeddings
    | Counted
    | CapacityReport
    | StatusReport
    | WhoamiReport
    | MetricsReport
    | UsageReport
    | Ack
)

__all__ = [
    "Ack",
    "Cancel",
    "CancelAny",
    "Capacity",
    "CapacityReport",
    "Chunk",
    "ClassLimits",
    "ClientMessage",
    "CountTokens",
    "Counted",
    "DaemonMessage",
    "DailyUse",
    "Done",
    "Embed",
    "Embeddings",
    "Failed",
    "Generate",
    "GetStatus",
    "GetUsage",
    "Hello",
    "Lease",
    "Limits",
    "Load",
    "Metrics",
    "MetricsReport",
    "ModelInfo",
    "Notice",
    "OnBehalf",
    "Pause",
    "Paused",
    "PeerFacts",
    "Queued",
    "ReleaseEngine",
    "Resumed",
    "Settle",
    "Started",
    "StatusReport",
    "Timings",
    "Unload",
    "Unpause",
    "UsageReport",
    "UsageRow",
    "Welcome",
    "Whoami",
    "WhoamiReport",
]
