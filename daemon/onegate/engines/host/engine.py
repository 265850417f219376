"""What the host's loop drives: one engine, stepped by the thread that serves the socket."""

from dataclasses import dataclass, field
from typing import Protocol

from onegate.engines.base import EngineRequest, EngineSnapshot, PoolInfo
from onegate.engines.host.wire import AcceptedMsg, CountCall, Ended, Output, Prefilled


class Refusal(Exception):
    """A request or a call is not taken and holds nothing.

    `code` is one of the wire's: invalid, unsupported, too_large (with both numbers), unavailable.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        path: str | None = None,
        need_tok: int | None = None,
        limit_tok: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.path = path
        self.need_tok = need_tok
        self.limit_tok = limit_tok


class LoadFailed(Exception):
    """The model cannot be served; the text is one sentence that names the fix."""


def too_large(need_tok: int, limit_tok: int) -> Refusal:
    """Prompt plus output exceed the context."""
    return Refusal(
        "too_large",
        f"{need_tok} tokens needed, {limit_tok} fit into the context",
        need_tok=need_tok,
        limit_tok=limit_tok,
    )


@dataclass
class StepReport:
    """What one step changed.

    `stepped` is false for a turn that ran no step, a load for example. `raw` is sent as it is,
    behind the rest: the scripted faults.
    """

    outputs: list[Output] = field(default_factory=list)
    prefilled: list[Prefilled] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    snapshot: EngineSnapshot | None = None
    pools_changed: bool = False
    stepped: bool = True
    raw: bytes = b""

    def __bool__(self) -> bool:
        return bool(self.outputs or self.prefilled or self.ended or self.freed or self.snapshot)


class HostEngine(Protocol):
    """One engine inside the host. Single-threaded: nothing here is called during a `step`.

    There are engines that compute in `step`, and engines that compute elsewhere, in threads or
    processes of their own, and tell in `step` what has come of it. Those have a `wake`.
    """

    kind: str
    version: str

    @property
    def busy(self) -> bool:
        """Whether anything is in it: a request, a load, a seat that is not free yet."""

    @property
    def due(self) -> bool:
        """Whether `step` has something to do now: whatever `busy` says, for an engine that computes
        in it."""

    @property
    def wake(self) -> int | None:
        """A file descriptor that can be read while `step` has something to tell; None for an
        engine that computes in it."""

    def pools(self) -> list[PoolInfo]:
        """Every pool as it is now."""

    def look_again(self) -> None:
        """Nothing runs, and what was loaded may have been replaced where it came from: compare,
        and begin to load what is there now. `step` does it; looking never takes long."""

    def load(self, model: str) -> None:
        """Begin to bring a pool into memory; `step` does it and reports the pool when it is there.

        Raises Refusal for an unknown pool, or when no other pool can make room.
        """

    def unload(self, model: str) -> None:
        """Free a pool's memory now; the loop has seen to it that nothing of it runs."""

    def submit(self, request: EngineRequest) -> AcceptedMsg:
        """Give the request a seat, or raise Refusal. Never runs the model."""

    def abort(self, id: int) -> None:
        """Stop a request; `step` reports its seat as freed. Unknown ids are ignored."""

    def running(self, model: str) -> list[int]:
        """Ids of the requests that hold a seat of this pool."""

    def count(self, call: CountCall) -> tuple[int, bool]:
        """Tokens of a prompt, and whether that is exact. Raises Refusal."""

    def step(self) -> StepReport:
        """Advance everything by one step. An exception means that the engine is broken."""

    def close(self) -> None:
        """The process is about to end: end what would outlive it, within two seconds."""
