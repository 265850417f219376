"""What comes back, before a dialect writes it down.

Pieces of text are the wire's own `Chunk`; the end is the client library's `Reply`, which is the
whole answer; everything else is a `No`.
"""

from dataclasses import dataclass
from typing import Protocol

from onegate.client.reply import Reply
from onegate.protocol.content import Usage
from onegate.protocol.errors import Reason
from onegate.protocol.messages import Chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class No:
    """Why there is no answer, or no more of it.

    status          HTTP's, for an answer that has not begun
    sentence        for a person: what, why, and when to come back
    retry_after_ms  None where nobody knows
    path            the offending field in the dialect's own words, where there is one
    """

    reason: Reason
    status: int
    sentence: str
    retryable: bool = False
    retry_after_ms: int | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A `No` as an HTTP answer. `Retry-After` and the like are added for all dialects alike."""

    status: int
    body: bytes
    content_type: str = "application/json; charset=utf-8"


class Frame(Protocol):
    """What goes around an answer, whoever writes it."""

    content_type: str  # of a stream
    document_type: str  # of a whole answer
    padding: bytes  # says nothing, and may be sent before anything else, any number of times

    def broken(self, no: No) -> bytes:
        """The end of an answer that did not finish: what every client takes for an error. For a
        whole one it is the document, since there is none but after padding."""


class TextWriter(Frame, Protocol):
    """Writes one answer. Made by the dialect with the request, used for one answer only."""

    def chunk(self, chunk: Chunk) -> bytes:
        """What a stream says for a piece; empty where it says nothing."""

    def end(self, reply: Reply) -> bytes:
        """The end of a stream that finished."""

    def whole(self, reply: Reply) -> bytes:
        """The answer in one document."""


class EmbedWriter(Protocol):
    """Writes the answer to a request for vectors: one document."""

    document_type: str

    def whole(self, vectors: list[list[float]], usage: Usage, took_ns: int) -> bytes:
        """`took_ns`: from the request's arrival."""
