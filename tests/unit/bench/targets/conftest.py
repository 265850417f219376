"""An HTTP server that a test plays, without a socket."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from onegate.bench.targets.base import TargetError


class PlayedServer:
    """Takes the place of `http.HttpServer`. `answers` is what each path gives; an exception is
    raised, a list is streamed."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.url = ""
        self.left = 0
        self.closed = False
        self.hangs = False

    def __call__(self, url: str, *, ready_s: float) -> "PlayedServer":
        self.url = url
        return self

    def _answer(self, path: str) -> Any:
        answer = self.answers[path]
        found = answer.pop(0) if isinstance(answer, list) else answer
        if isinstance(found, Exception):
            raise found
        return found

    async def get(self, path: str) -> Any:
        return self._answer(path)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        self.asked.append((path, body))
        return self._answer(path)

    async def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        self.asked.append((path, body))
        try:
            if self.hangs:
                await asyncio.Event().wait()
            for line in self.answers["stream"]:
                if isinstance(line, Exception):
                    raise line
                yield line
        finally:
            self.left += 1

    async def aclose(self) -> None:
        self.closed = True


class Watched:
    """What a target told of one attempt."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bool]] = []

    def started(self, queue_ms: float | None) -> None:
        raise AssertionError("no HTTP server says so")

    def piece(self, n_tok: int, *, visible: bool) -> None:
        self.pieces.append((n_tok, visible))


@pytest.fixture
def server() -> PlayedServer:
    return PlayedServer()


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.fixture
def unavailable() -> TargetError:
    return TargetError("does not answer")
