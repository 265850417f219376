"""Tool calls, put together from their pieces."""

from onegate.engines.base import EngineMalformed
from onegate.engines.openai.shapes import CallPiece
from onegate.protocol.content import FunctionCall, ToolCall

_MAX_CALLS = 256
_MAX_BYTES = 1 << 20
_MAX_NAME = 256


class ToolCalls:
    """One call at a time is unfinished; a piece of the next one, or the end, finishes it."""

    def __init__(self) -> None:
        self._index: int | None = None
        self._id = ""
        self._name = ""
        self._arguments: list[str] = []
        self._n_bytes = 0
        self._n_calls = 0

    def add_all(self, pieces: list[CallPiece]) -> list[ToolCall]:
        """The calls that the pieces of one event finish. Raises EngineMalformed."""
        if len(pieces) > _MAX_CALLS:
            raise EngineMalformed(f"an event has more than {_MAX_CALLS} pieces of tool calls")
        return [call for piece in pieces for call in self.add(piece)]

    def add(self, piece: CallPiece) -> list[ToolCall]:
        """The call that this piece of another one finishes, if any. Raises EngineMalformed."""
        done = self.rest() if self._index not in (None, piece.index) else []
        if self._index is None:
            self._n_calls += 1
            if self._n_calls > _MAX_CALLS:
                raise EngineMalformed(f"the engine calls more than {_MAX_CALLS} tools")
        self._index = piece.index
        self._id = self._id or (piece.id or "")[:_MAX_NAME]
        if piece.function is not None:
            self._name = self._name or (piece.function.name or "")
            arguments = piece.function.arguments or ""
            self._n_bytes += len(arguments)
            if self._n_bytes > _MAX_BYTES:
                raise EngineMalformed(f"a tool call is longer than {_MAX_BYTES} bytes")
            self._arguments.append(arguments)
        return done

    def rest(self) -> list[ToolCall]:
        """The call that the end finishes, if any. Raises EngineMalformed."""
        if self._index is None:
            return []
        if not 0 < len(self._name) <= _MAX_NAME:
            raise EngineMalformed("the engine calls a tool without a name")
        call = ToolCall(
            id=self._id or f"call_{self._index}",
            function=FunctionCall(name=self._name, arguments="".join(self._arguments)),
        )
        self._index, self._id, self._name, self._arguments = None, "", "", []
        self._n_bytes = 0
        return [call]
