"""What the threads around the library tell the host's own thread."""

from typing import NamedTuple


class Tokens(NamedTuple):
    """New tokens of a request."""

    id: int
    ids: list[int]


class Finished(NamedTuple):
    """The library's own end of a request, in its words: stop, length, cancelled, timeout."""

    id: int
    reason: str
    cached_tok: int | None


class Failed(NamedTuple):
    """The library failed a request; it holds nothing any more."""

    id: int
    text: str


class Gone(NamedTuple):
    """An aborted request that never answered, and is waited for no longer."""

    id: int


class Iteration(NamedTuple):
    """One step of the engine as its statistics have it; None for what they leave out."""

    latency_ms: float | None = None
    prompt_tok: int | None = None
    answers: int | None = None
    scheduled: int | None = None
    blocks: int | None = None
    blocks_used: int | None = None
    block_tok: int | None = None


class Iterations(NamedTuple):
    """The steps since the last message, oldest first."""

    steps: list[Iteration]


class Broken(NamedTuple):
    """Only a new process will do."""

    reason: str


Message = Tokens | Finished | Failed | Gone | Iterations | Broken
