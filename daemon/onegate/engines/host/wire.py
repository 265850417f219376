"""The wire between the daemon and an engine host: length-prefixed msgpack, one map per frame.

The host answers a `Submit` with exactly one of `Accepted` or `Refused`; an accepted request ends
with `freed` in a `Step`, once, whatever else happens to it. Everything of one engine step is in one
`Step` message. A host serves one daemon at a time, and greets it when nothing of another one's
requests runs any more. `WIRE` changes with every incompatible change: two sides that differ do not
talk; the keys of `settings` are part of it.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from onegate.engines.base import EngineChunk, EngineRequest, EngineSnapshot, PoolInfo, SeatId
from onegate.protocol.content import FinishReason, Message, Tok, Tool, Usage
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import DEFAULT_MAX_FRAME_BYTES

WIRE = 2
# The longest frame that a host takes. A request comes to it with what the client wrote, which is at
# most one of the client's frames by default, and with every default written out; twice that and a
# little holds it. What is longer, because `gate.max_frame_bytes` is, no context holds: the daemon
# refuses it. Decoded, the worst of frames takes some seventy times its length in memory.
MAX_TO_HOST_BYTES = 2 * DEFAULT_MAX_FRAME_BYTES + 64 * 1024

_T = TypeVar("_T")
# What decoding raises. Older codecs let bad UTF-8 and map keys that cannot be keys through as the
# interpreter's own errors.
_UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError)
_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


def read(decoder: msgspec.msgpack.Decoder[_T], payload: bytes) -> _T:
    """The message in a frame, whatever the other side has put there.

    Raises RemoteProtocolError and nothing else; its text quotes nothing of the frame, which may be
    a request or an answer.
    """
    try:
        return decoder.decode(payload)
    except RecursionError:
        raise RemoteProtocolError("a message is nested too deeply") from None
    except _UNREADABLE as error:
        raise RemoteProtocolError(f"a frame is no message: {type(error).__name__}") from None


class _Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
    tag_field="t",
):
    """Base of every message; both sides are strict, because `WIRE` has been compared."""


# --- daemon to host ---------------------------------------------------------------------------


class Attach(_Wire, frozen=True, tag="attach"):
    """First message. `engine` are the host's settings (`host.settings`): one kind's keys of
    `[engine]`, with the model's path looked up. A host that was attached to before keeps its model
    if they are the same, and ends if they are not."""

    wire: int
    daemon_pid: _Number
    engine: dict[str, Any] | None = None


class Submit(_Wire, frozen=True, tag="submit"):
    """Run this."""

    request: EngineRequest


class Abort(_Wire, frozen=True, tag="abort"):
    """Stop request `id`; unknown ids are fine, they crossed with the end."""

    id: SeatId


class CountCall(_Wire, frozen=True, tag="count"):
    """Count tokens; answered by `CountResult` or `CallFailed` with the same `call`."""

    call: _Number
    model: str
    prompt: str | None = None
    raw: bool = False
    messages: list[Message] | None = None
    tools: list[Tool] | None = None


class EmbedCall(_Wire, frozen=True, tag="embed"):
    """Embed texts; answered by `EmbedResultMsg` or `CallFailed`."""

    call: _Number
    model: str
    input: list[str]


class LoadCall(_Wire, frozen=True, tag="load"):
    """Bring a pool into memory; answered by `CallDone` or `CallFailed`."""

    call: _Number
    model: str


class UnloadCall(_Wire, frozen=True, tag="unload"):
    """Free a pool's memory; answered by `CallDone` or `CallFailed`."""

    call: _Number
    model: str


class Exit(_Wire, frozen=True, tag="exit"):
    """Leave: at once, or after the running streams when `drain` is set."""

    drain: bool = False


ToHost = Attach | Submit | Abort | CountCall | EmbedCall | LoadCall | UnloadCall | Exit


# --- host to daemon ---------------------------------------------------------------------------


class HostHello(_Wire, frozen=True, tag="hello"):
    """Answer to `Attach`: who this is. Pools may still be loading."""

    wire: int
    pid: _Number
    kind: str
    version: str
    pools: list[PoolInfo]


class PoolUpdate(_Wire, frozen=True, tag="pool"):
    """A pool's state, capacity or identity is now this."""

    pool: PoolInfo


class AcceptedMsg(_Wire, frozen=True, tag="accepted"):
    """The request has a seat; its prompt is this long."""

    id: SeatId
    prompt_tok: Tok | None = None
    cached_tok: Tok | None = None


class RefusedMsg(_Wire, frozen=True, tag="refused"):
    """The request was not taken and holds nothing.

    `code` is invalid, unsupported, too_large or unavailable.
    """

    id: SeatId
    code: str
    message: str
    path: str | None = None
    need_tok: _Number | None = None
    limit_tok: _Number | None = None


class Output(_Wire, frozen=True, tag="output"):
    """One request's share of a step."""

    id: SeatId
    chunk: EngineChunk


class Prefilled(_Wire, frozen=True, tag="prefilled"):
    """Prompt tokens of a request computed so far."""

    id: SeatId
    prefilled_tok: Tok


class Ended(_Wire, frozen=True, tag="ended"):
    """A request ended of itself (`finish_reason`), or the engine failed it (`error`)."""

    id: SeatId
    usage: Usage
    finish_reason: FinishReason | None = None
    error: str | None = None
    cached_tok: Tok | None = None


class Step(_Wire, frozen=True, tag="step"):
    """What one step of the engine changed, in one message. `n` counts the steps since `Attach`.

    A seat in `freed` whose request has not `ended`, here or before, was aborted by the daemon.
    """

    n: _Number
    outputs: list[Output] = []
    prefilled: list[Prefilled] = []
    ended: list[Ended] = []
    freed: list[SeatId] = []
    snapshot: EngineSnapshot | None = None


class CountResult(_Wire, frozen=True, tag="count_result"):
    """Answer to `CountCall`."""

    call: _Number
    n_tok: Tok
    exact: bool


class EmbedResultMsg(_Wire, frozen=True, tag="embed_result"):
    """Answer to `EmbedCall`."""

    call: _Number
    vectors: list[list[float]]
    usage: Usage


class CallDone(_Wire, frozen=True, tag="call_done"):
    """A call without a result was carried out."""

    call: _Number


class CallFailed(_Wire, frozen=True, tag="call_failed"):
    """A call failed; codes as in `RefusedMsg`, and `broke`."""

    call: _Number
    code: str
    message: str


class Heartbeat(_Wire, frozen=True, tag="heartbeat"):
    """The process is alive. It comes from a second thread and is no proof of progress.

    `steps` is the step count and `busy` tells whether a step is under way: progress is judged by
    `steps` moving while `busy`.
    """

    steps: _Number
    busy: bool


FromHost = (
    HostHello
    | PoolUpdate
    | AcceptedMsg
    | RefusedMsg
    | Step
    | CountResult
    | EmbedResultMsg
    | CallDone
    | CallFailed
    | Heartbeat
)
