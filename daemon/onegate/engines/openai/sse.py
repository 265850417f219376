"""Server-sent events, from lines."""

from onegate.engines.base import EngineMalformed
from onegate.engines.http.documents import short
from onegate.engines.http.lines import MAX_LINE_BYTES

_FIELDS = (b"data", b"event", b"id", b"retry")


class Events:
    """Gives the data of each event as its lines come; comments and the other fields are skipped.

    An event of several `data` lines is no longer than one line may be. A line that is no event's
    raises EngineMalformed with its first words.
    """

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._n_bytes = 0

    def line(self, line: bytes) -> bytes | None:
        """The data of the event that this line ends, None where it ends none."""
        if line.startswith(b"data:"):
            data = line[5:]
            if data.startswith(b" "):
                data = data[1:]
            self._n_bytes += len(data) + 1  # an empty one is kept as well
            if self._n_bytes > MAX_LINE_BYTES:
                raise EngineMalformed(f"an event is longer than {MAX_LINE_BYTES} bytes")
            self._data.append(data)
            return None
        if not line:
            return self.rest()
        if line.startswith(b":") or line.partition(b":")[0] in _FIELDS:
            return None
        raise EngineMalformed(f"the answer is no event stream: {short(line)}")

    def rest(self) -> bytes | None:
        """The data of an event that the end of the connection has cut off, None without one."""
        if not self._data:
            return None
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        self._data.clear()
        self._n_bytes = 0
        return data
