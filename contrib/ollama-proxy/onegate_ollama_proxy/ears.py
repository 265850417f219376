"""Reading along with answers given under a lease: whether they ended, and what they used.

Nothing is held back and nothing changed; what can't be followed is let pass.
"""

from typing import Annotated

import aiohttp
import msgspec
from msgspec import Meta

from onegate.protocol.content import Usage

_Tokens = Annotated[int, Meta(ge=0, le=2**32 - 1)]

# Longer documents, and longer lines of a stream, are carried all the same and not read.
_MAX_BYTES = 4 << 20
_USAGE = b'"usage"'


class _Used(msgspec.Struct):
    input_tokens: _Tokens = 0
    output_tokens: _Tokens = 0


class _Holder(msgspec.Struct):
    usage: _Used | None = None


class _Said(msgspec.Struct):
    """A document, or what an event of either route says: the counts lie in one of three places."""

    type: str = ""
    usage: _Used | None = None
    response: _Holder | None = None  # of /v1/responses
    message: _Holder | None = None  # of /v1/messages


_read = msgspec.json.Decoder(_Said)


class LeasedEar:
    """Of one answer. `ends` are the types of the events after which a stream is whole."""

    def __init__(self, ends: frozenset[str]) -> None:
        self._ends = ends
        self._rest = bytearray()
        self._lost = False
        self._status = 200
        self._is_stream = False
        self._prompt_tok = self._output_tok = 0
        self._counted = False
        self._answer: aiohttp.ClientResponse | None = None
        self.is_whole = False

    def begin(self, answer: aiohttp.ClientResponse, *, is_stream: bool) -> None:
        """The answer is there."""
        self._answer, self._status, self._is_stream = answer, answer.status, is_stream

    def stop(self) -> bool:
        """End the answer now; whether there was one."""
        if self._answer is None:
            return False
        self._answer.close()
        return True

    def hear(self, data: bytes) -> None:
        """The next piece."""
        if self._lost:
            return
        self._rest += data
        if self._is_stream:
            *lines, rest = self._rest.split(b"\n")
            self._rest = bytearray(rest)
            for line in lines:
                self._line(bytes(line))
        if len(self._rest) > _MAX_BYTES:
            self._lost = True
            self._rest.clear()

    def end(self) -> bool:
        """The connection ended in good order; whether the answer did."""
        if not self._is_stream:
            self._learn(bytes(self._rest))
            return True
        return self.is_whole or self._lost

    def usage(self) -> Usage | None:
        """What was used as far as was said; None: not known."""
        if self._status != 200:
            return Usage(prompt_tok=0, output_tok=0)  # refused before anything ran
        if not self._counted:
            return None
        return Usage(prompt_tok=self._prompt_tok, output_tok=self._output_tok)

    def _line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._learn(line[5:])

    def _learn(self, data: bytes) -> None:
        # Most events are a word of the answer, which is not read for that.
        if _USAGE not in data and not any(end.encode() in data for end in self._ends):
            return
        try:
            said = _read.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        self.is_whole = self.is_whole or said.type in self._ends
        for holder in (said, said.response, said.message):
            if holder is not None and holder.usage is not None:
                self._counted = True
                # They only grow: the later event has the prompt, or has it as 0.
                self._prompt_tok = max(self._prompt_tok, holder.usage.input_tokens)
                self._output_tok = max(self._output_tok, holder.usage.output_tokens)
