"""One running request as its reader sees it."""

import asyncio
from collections import deque
from collections.abc import Callable

from onegate.engines.base import EngineBroke, GenerateItem

# A reader this far behind has stopped reading: thousands of tokens are minutes of output.
MAX_ITEMS_BEHIND = 4096


class Stream:
    """A `Generation` over a bounded queue; one reader.

    `begin(stream)` is called at the first item and sends the request; `abandon(stream)` when the
    reader leaves before the end, by closing or by falling too far behind.
    """

    def __init__(
        self, id: int, *, begin: Callable[["Stream"], None], abandon: Callable[["Stream"], None]
    ) -> None:
        self.id = id
        self._begin = begin
        self._abandon = abandon
        self._items: deque[GenerateItem] = deque()
        self._begun = False
        self._ended = False
        self._error: Exception | None = None
        self._wake: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more may come: the end is queued, or the reader has left."""
        return self._ended

    def push(self, item: GenerateItem) -> None:
        """The next item for the reader; after the end it is for nobody."""
        if self._ended:
            return
        if len(self._items) >= MAX_ITEMS_BEHIND:
            self._items.clear()
            self.end(EngineBroke(f"its reader is {MAX_ITEMS_BEHIND} pieces of output behind"))
            self._abandon(self)
            return
        self._items.append(item)
        self._wake_reader()

    def end(self, error: Exception | None = None) -> None:
        """Nothing more comes; `error` is raised once what is queued has been read."""
        if not self._ended:
            self._ended = True
            self._error = error
            self._wake_reader()

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> GenerateItem:
        if not self._begun and not self._ended:
            self._begun = True
            self._begin(self)
        while not self._items:
            if self._ended:
                error, self._error = self._error, None
                raise error or StopAsyncIteration
            self._wake = asyncio.get_running_loop().create_future()
            try:
                await self._wake
            finally:
                self._wake = None
        return self._items.popleft()

    async def aclose(self) -> None:
        """See `Generation.aclose`. A reader that waits elsewhere sees the end."""
        self._items.clear()
        self._error = None
        if self._ended:
            return
        self.end()
        if self._begun:
            self._abandon(self)

    def _wake_reader(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)
