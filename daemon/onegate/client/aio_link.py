"""The asynchronous transport: a protocol of the event loop, and no task of its own."""

import asyncio
import socket
from typing import cast

from onegate.client.connect import Waits, try_connect
from onegate.client.errors import Unavailable
from onegate.client.session import Session
from onegate.clock import monotonic_ns
from onegate.protocol import messages as m


class Loop:
    """Connects and sleeps on the running event loop, and knows its open connections."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._open: set[LoopLink] = set()

    async def connect(self, path: str, deadline_ns: int) -> "LoopLink":
        waits = Waits(path, deadline_ns)
        while (sock := try_connect(path)) is None:
            await self.sleep(waits.next_s())
        return await self._adopt(sock)

    async def _adopt(self, sock: socket.socket) -> "LoopLink":
        try:
            loop = asyncio.get_running_loop()
            _, link = await loop.create_unix_connection(lambda: LoopLink(self._open), sock=sock)
        except BaseException:
            sock.close()
            raise
        return link

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def lock(self) -> asyncio.Lock:
        return self._lock

    async def wait_closed(self) -> None:
        for link in tuple(self._open):
            await link.closed.wait()


class LoopLink(asyncio.Protocol):
    """One connection of the running event loop, for any number of waiting tasks."""

    def __init__(self, links: "set[LoopLink]") -> None:
        self.session = Session()
        self.closed = asyncio.Event()
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, asyncio.Event] = {}
        self._writable = asyncio.Event()
        self._writable.set()

    # --- what the event loop calls ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._links.add(self)

    def data_received(self, data: bytes) -> None:
        for call_id in self.session.feed(data):
            if (event := self._waiting.get(call_id)) is not None:
                event.set()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None:
            self.session.end(Unavailable(f"the connection to the daemon broke: {error}"))
        self.session.feed(b"")
        self._wake_all()
        self._links.discard(self)
        self.closed.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # --- what the client calls ---

    async def send(self, data: bytes, deadline_ns: int | None) -> None:
        self._raise_if_ended()
        self._write(data)
        async with asyncio.timeout(_seconds_to(deadline_ns)):
            await self._writable.wait()
        self._raise_if_ended()

    def send_now(self, data: bytes) -> None:
        self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._transport is not None
        # Once a write has failed, each further one would only be a line in the caller's log.
        if not self._transport.is_closing():
            self._transport.write(data)

    async def receive(self, call_id: int, deadline_ns: int | None) -> m.DaemonMessage:
        while (message := self.session.take(call_id)) is None:
            self._raise_if_ended()
            event = self._waiting.setdefault(call_id, asyncio.Event())
            event.clear()
            try:
                async with asyncio.timeout(_seconds_to(deadline_ns)):
                    await event.wait()
            finally:
                self._waiting.pop(call_id, None)
        return message

    def _raise_if_ended(self) -> None:
        if (ended := self.session.ended) is not None:
            raise ended

    def look(self) -> None:
        """Nothing to do: the event loop has delivered what arrived."""

    def close(self) -> None:
        self.session.end(Unavailable("this client is closed"))
        self._wake_all()
        if self._transport is not None:
            self._transport.abort()  # what was not written yet has no reader any more

    def _wake_all(self) -> None:
        self._writable.set()
        for event in self._waiting.values():
            event.set()


def _seconds_to(deadline_ns: int | None) -> float | None:
    return None if deadline_ns is None else max(0.0, (deadline_ns - monotonic_ns()) / 1e9)
