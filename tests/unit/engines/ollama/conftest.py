"""A link to nobody: it answers from a table, and remembers what was asked."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from onegate.engines.http.link import HttpStatus


class FakeAnswer:
    def __init__(self, pieces):
        self._pieces = pieces

    async def chunks(self):
        for piece in self._pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                yield piece


class FakeLink:
    """`documents` by path: a value, an error, or a list of values to be given one after another.
    `streams` are what `open` gives, in turn, pieces and events that are waited for."""

    def __init__(self):
        self.documents = {
            "/api/version": {"version": "0.33.0"},
            "/api/status": {"cloud": {"disabled": False}},
            "/api/tags": {"models": [{"name": "m:latest", "digest": "d1"}]},
            "/api/ps": {"models": None},
            "/api/show": {"capabilities": ["completion", "embedding"]},
        }
        self.streams = []
        self.asked = []

    async def get(self, path, *, timeout_s=0.0):
        return self._answer(path, None)

    async def post(self, path, body, *, timeout_s=0.0, max_bytes=0):
        return self._answer(path, json.loads(body))

    def _answer(self, path, body):
        self.asked.append((path, body))
        found = self.documents[path]
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(found, Exception):
            raise found
        return json.dumps(found).encode()

    @asynccontextmanager
    async def open(self, method, path, body, headers=None):
        self.asked.append((path, json.loads(body)))
        found = self.streams.pop(0)
        if isinstance(found, Exception):
            raise found
        yield FakeAnswer(found)

    def paths(self):
        return [path for path, _ in self.asked]

    def holds(self, *names, **given):
        """Say that these are in memory."""
        self.documents["/api/ps"] = {
            "models": [{"name": name, "digest": "d1"} | given for name in names] or None
        }


def failed(status, text):
    return HttpStatus(status, json.dumps({"error": text}).encode(), None)


@pytest.fixture
def link():
    return FakeLink()
