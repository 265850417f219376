"""One HTTP answer that is begun as late as possible and kept alive while it waits.

Until something of it has been sent, a failure is a status of its own. Where a client would hang up
for lack of bytes, headers go out early and then bytes that mean nothing; from then on the status is
200, and a failure is said in the answer.
"""

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from aiohttp import web

from onegate.tasks import Tasks
from onegate_ollama_proxy.answer import Frame, No
from onegate_ollama_proxy.refused import Refused

# Far below every client's and every middle box's patience, and nothing in bytes.
PAD_EVERY_S = 20.0


class Answering:
    """The answer to one request for text. To be used as a context, in which it may be padded.
    `spoken`: something of the answer itself has been sent."""

    def __init__(
        self,
        request: web.BaseRequest,
        frame: Frame,
        *,
        stream: bool,
        pad_after_s: float | None,
        tasks: Tasks,
    ) -> None:
        self._request = request
        self._frame = frame
        self._stream = stream
        self._pad_after_s = pad_after_s
        self._tasks = tasks
        self._response: web.StreamResponse | None = None
        self.spoken = False
        self._timer: asyncio.TimerHandle | None = None
        self._padding: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Is the status out?"""
        return self._response is not None

    async def __aenter__(self) -> Self:
        if self._pad_after_s is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._pad_after_s, self._start_padding)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stop_padding()

    async def say(self, data: bytes) -> None:
        """A piece of a stream."""
        if data:
            self.spoken = True
            await self._stop_padding()
            await (await self._open()).write(data)

    async def end(self, data: bytes) -> web.StreamResponse:
        """The last piece, or the whole answer."""
        await self._stop_padding()
        if self._response is None and not self._stream:
            headers = {"Content-Type": self._frame.document_type}
            return web.Response(body=data, headers=headers)
        response = await self._open()
        await response.write_eof(data)
        return response

    async def take(self) -> web.StreamResponse | None:
        """The answer where it has begun, for somebody else to write on: nothing is padded from now
        on."""
        await self._stop_padding()
        return self._response

    async def fail(self, no: No) -> web.StreamResponse:
        """The end of an answer that has begun. Raises Refused for one that has not.

        A whole one has a status that says it went well, and libraries look no further: so it is
        the error's document, and cut before its end.
        """
        await self._stop_padding()
        if self._response is None:
            raise Refused(no)
        broken = self._frame.broken(no)
        if self._stream:
            await self._response.write_eof(broken)
            return self._response
        await self._response.write(broken)
        if self._request.transport is not None:
            self._request.transport.close()  # what is written still goes out
        return self._response

    async def _open(self) -> web.StreamResponse:
        if self._response is None:
            frame = self._frame
            kind = frame.content_type if self._stream else frame.document_type
            response = web.StreamResponse(headers={"Content-Type": kind})
            await response.prepare(self._request)
            self._response = response
        return self._response

    def _start_padding(self) -> None:
        self._timer = None
        self._padding = self._tasks.spawn(self._pad(), name="padding")

    async def _pad(self) -> None:
        try:
            response = await self._open()
            while not self._enough.is_set():
                await response.write(self._frame.padding)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PAD_EVERY_S):
                        await self._enough.wait()
        except ConnectionError:
            return  # the client has gone, and the request ends with its connection

    async def _stop_padding(self) -> None:
        """Nothing is written by two at a time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._padding is not None:
            # Never cut off in the middle of a header. Whoever is cancelled here leaves it to the
            # next one to wait.
            self._enough.set()
            await asyncio.wait([self._padding])
            self._padding = None
