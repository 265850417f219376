"""From other threads to the host's own: messages, and a descriptor to wait for them by."""

import contextlib
import os
from collections import deque
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Mailbox(Generic[_T]):
    """Any thread posts, one takes. `fd` can be read while there is something to take."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._messages: deque[_T] = deque()

    def __bool__(self) -> bool:
        return bool(self._messages)

    def post(self, *messages: _T) -> None:
        """Hand messages over, in this order and together."""
        self._messages.extend(messages)
        os.eventfd_write(self.fd, 1)

    def take(self) -> list[_T]:
        """Everything that has been posted."""
        # First the descriptor: what is posted from here on makes it readable again.
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)
        taken = []
        while self._messages:
            taken.append(self._messages.popleft())
        return taken
