"""Lines of an answer that comes in pieces, bounded."""

from onegate.engines.base import EngineMalformed

# Far above any event of a stream that is one; below what would hurt.
MAX_LINE_BYTES = 1 << 20
# An empty line costs as much time as a short one: so many bytes are reckoned for each.
_LINE_COST_BYTES = 32


class Lines:
    """Cuts bytes into lines at CR, LF or CRLF, whatever the pieces are.

    A line is at most `max_line_bytes` long and all of them together `max_total_bytes`, each with
    some for its reading; beyond that `feed` raises EngineMalformed, before it has kept more than
    one line and one piece.
    """

    def __init__(self, *, max_total_bytes: int, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_line_bytes = max_line_bytes
        self._left_bytes = max_total_bytes
        self._max_total_bytes = max_total_bytes
        self._rest = bytearray()
        # The last piece ended in CR: an LF that comes first belongs to it.
        self._after_cr = False

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends."""
        self._spend(len(data))
        if self._after_cr and data:
            self._after_cr = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = data.split(b"\n")
        self._rest += first
        if not others:
            self._check(len(self._rest))
            return []
        self._spend(_LINE_COST_BYTES * len(others))
        lines = [bytes(self._rest), *others]
        self._rest = bytearray(lines.pop())
        for line in lines:
            self._check(len(line))
        self._check(len(self._rest))
        return lines

    def rest(self) -> bytes:
        """What came behind the last line end."""
        return bytes(self._rest)

    def _spend(self, n_bytes: int) -> None:
        self._left_bytes -= n_bytes
        if self._left_bytes < 0:
            raise EngineMalformed(f"the answer is longer than {self._max_total_bytes} bytes")

    def _check(self, length: int) -> None:
        if length > self._max_line_bytes:
            raise EngineMalformed(
                f"a line of the answer is longer than {self._max_line_bytes} bytes"
            )
