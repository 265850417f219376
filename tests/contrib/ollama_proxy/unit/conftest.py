"""An HTTP request without its socket, and what was written as its answer."""

import asyncio
from typing import Any

import pytest
from aiohttp import streams, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.base_protocol import BaseProtocol
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict


class Written(AbstractStreamWriter):
    """What goes out. `broken`: the client has gone."""

    def __init__(self) -> None:
        self.status = ""
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.pieces: list[bytes] = []
        self.ended = False
        self.broken = False
        self.tries = 0
        self._tried = asyncio.Event()
        self.output_size = 0
        self.length = None

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)

    async def until_tried(self, times: int) -> None:
        """Wait until something was written, or could not be, so many times."""
        while self.tries < times:
            self._tried.clear()
            await self._tried.wait()

    async def write(self, chunk: Any) -> None:
        self.tries += 1
        self._tried.set()
        if self.broken:
            raise ConnectionResetError("gone")
        self.pieces.append(bytes(chunk))
        self.output_size += len(chunk)

    async def write_eof(self, chunk: bytes = b"") -> None:
        if chunk:
            await self.write(chunk)
        self.ended = True

    async def drain(self) -> None:
        pass

    def enable_compression(self, *given: Any, **more: Any) -> None:
        pass

    def enable_chunking(self) -> None:
        pass

    async def write_headers(self, status_line: str, headers: "CIMultiDict[str]") -> None:
        assert not self.status, "headers are written once"
        self.status, self.headers = status_line, headers
        self.output_size += len(status_line)

    def send_headers(self) -> None:
        pass


class Asked:
    """A request, and what was written."""

    def __init__(self, *pieces: bytes, path: str = "/api/chat", **headers: str) -> None:
        self.written = Written()
        protocol = BaseProtocol(loop=asyncio.get_running_loop())
        protocol.transport = asyncio.Transport()  # it is there, and nothing is done with it
        self.payload = streams.StreamReader(protocol, 2**16, loop=protocol._loop)
        for piece in pieces:
            self.payload.feed_data(piece)
        self.request: web.BaseRequest = make_mocked_request(
            "POST", path, headers=headers, writer=self.written, payload=self.payload
        )

    def end(self) -> "Asked":
        self.payload.feed_eof()
        return self


@pytest.fixture
def asked() -> type[Asked]:
    return Asked
