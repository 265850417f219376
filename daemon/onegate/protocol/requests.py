"""What a client may send: one tagged struct each. The daemon refuses fields that it does not know.

A frame holds one msgpack map whose `"t"` names the message. Times are milliseconds; `_tok` counts
tokens. PROTOCOL.md beside this file is the specification; its examples are executed by tests.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from onegate.protocol.content import (
    Message,
    Millis,
    Name,
    Params,
    PosMillis,
    RequestId,
    Think,
    Tok,
    TokId,
    Tool,
    ToolChoice,
    Usage,
)

# The furthest time until which a class or the device can be closed, from now. Whoever means longer
# opens it by hand; what is later than this is a slip.
MAX_CLOSED_MS = 30 * 86_400_000


class _Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="t",
):
    """Base of every message."""


class OnBehalf(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """The end client that a delegate speaks for: facts, never a pid."""

    source: Literal["sock_diag", "keyfile", "listener", "unknown"]
    uid: Annotated[int, Meta(ge=0, le=2**32 - 1)] | None = None
    unit: Name | None = None
    slice: Name | None = None
    principal: Name | None = None
    flow: Name | None = None
    ceiling: Name | None = None


class Hello(_Wire, frozen=True, tag="hello"):
    """First message of a connection, exactly once. `features` are those the client understands."""

    features: Annotated[list[Name], Meta(max_length=64)]
    app: Annotated[str, Meta(max_length=256)] = ""
    model: Name | None = None
    class_: Name | None = msgspec.field(default=None, name="class")
    on_behalf: OnBehalf | None = None


class Generate(_Wire, frozen=True, tag="generate"):
    """Ask for text. Exactly one of `prompt`, `messages`, `prompt_token_ids`.

    `ttft_timeout_ms` bounds queue and prefill, `timeout_ms` the whole request. Without them the
    class's defaults hold. `ticket` is the promise of an earlier refusal.
    """

    id: RequestId
    model: Name | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(max_length=4096)] | None = None
    prompt_token_ids: Annotated[list[TokId], Meta(max_length=2**20)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=512)] | None = None
    tool_choice: ToolChoice | None = None
    think: Think | None = None
    suffix: str | None = None
    raw: bool = False
    params: Params = Params()  # one object: the encoder leaves out what is this very default
    stream: bool = True
    class_: Name | None = msgspec.field(default=None, name="class")
    ttft_timeout_ms: PosMillis | None = None
    timeout_ms: PosMillis | None = None
    ticket: Name | None = None
    progress: bool = False


class Embed(_Wire, frozen=True, tag="embed"):
    """Ask for one vector per input text."""

    id: RequestId
    input: Annotated[list[str], Meta(min_length=1, max_length=2048)]
    model: Name | None = None
    class_: Name | None = msgspec.field(default=None, name="class")
    timeout_ms: PosMillis | None = None
    ticket: Name | None = None


class CountTokens(_Wire, frozen=True, tag="count"):
    """Ask how many tokens a prompt or a conversation is, outside the queue.

    `tools` belong to a conversation: the model's template renders them into the prompt.
    """

    id: RequestId
    model: Name | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Meta(max_length=4096)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=512)] | None = None


class Cancel(_Wire, frozen=True, tag="cancel"):
    """End the live request `id` of this connection. Always answered by an `Ack`."""

    id: RequestId


class Capacity(_Wire, frozen=True, tag="capacity"):
    """Would a request of this size be taken, and when would it start? Advice, never a gate."""

    id: RequestId
    prompt_tok: Tok
    max_tok: Tok | None = None
    model: Name | None = None
    class_: Name | None = msgspec.field(default=None, name="class")


class GetStatus(_Wire, frozen=True, tag="status"):
    """Ask for the daemon's state; with `detail` also for the live requests the caller may see."""

    id: RequestId
    detail: bool = False


class Whoami(_Wire, frozen=True, tag="whoami"):
    """Ask who the daemon takes the caller for, and why."""

    id: RequestId


class Metrics(_Wire, frozen=True, tag="metrics"):
    """Ask for the metrics in Prometheus text format."""

    id: RequestId


class Lease(_Wire, frozen=True, tag="lease"):
    """Delegates: hold a permit and a seat for work that the daemon does not carry out.

    Answered by `Started` once granted. `Settle` or the end of the connection gives it back.
    """

    id: RequestId
    prompt_tok: Tok
    max_tok: Tok
    model: Name | None = None
    class_: Name | None = msgspec.field(default=None, name="class")
    ttft_timeout_ms: PosMillis | None = None
    ticket: Name | None = None
    progress: bool = False


class Settle(_Wire, frozen=True, tag="settle"):
    """Delegates: the leased work is over and used this much.

    Answered by an `Ack`, `applied` false where the id is no lease; a `usage` that cannot be read
    ends the lease with a `Failed`.
    """

    id: RequestId
    usage: Usage | None = None


class Load(_Wire, frozen=True, tag="load"):
    """Delegates: bring a model into memory, queued with its switch cost."""

    id: RequestId
    model: Name


class Unload(_Wire, frozen=True, tag="unload"):
    """Delegates: free a model's memory."""

    id: RequestId
    model: Name


class Pause(_Wire, frozen=True, tag="pause"):
    """Administrators: close a class; `until_ms` is Unix time, nil means until unpaused.

    A time that has passed, or is more than `MAX_CLOSED_MS` ahead, is refused.
    """

    id: RequestId
    class_: Name = msgspec.field(name="class")
    until_ms: Millis | None = None


class Unpause(_Wire, frozen=True, tag="unpause"):
    """Administrators: open a class again."""

    id: RequestId
    class_: Name = msgspec.field(name="class")


class CancelAny(_Wire, frozen=True, tag="cancel_any"):
    """Administrators: end anybody's request by its daemon-wide id."""

    id: RequestId
    rid: Name


class GetUsage(_Wire, frozen=True, tag="usage"):
    """Ask what was used per principal, class and day, from the day of `since_ms` (Unix time) on.

    Everybody is told their own, administrators everybody's.
    """

    id: RequestId
    since_ms: Millis | None = None


class ReleaseEngine(_Wire, frozen=True, tag="release_engine"):
    """Administrators: free the device until `until_ms` (Unix time), nil: until it is taken back.

    A time that has passed, or is more than `MAX_CLOSED_MS` ahead, is refused.

    Answered by an `Ack` once it is free, after what runs has ended; `now` ends that at once. With
    `end` it is taken back instead, and `applied` is false where it was not released.
    """

    id: RequestId
    until_ms: Millis | None = None
    now: bool = False
    end: bool = False
