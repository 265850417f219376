"""Questions that clients ask all the time, answered without waiting for anything but Ollama.

Many that ask the same at once share one question. Ollama's own small answers can be stuck behind a
disk; then the last answer is given, with its age. An Ollama that is not there is never made up.
"""

import asyncio
import logging
from dataclasses import dataclass

from onegate.clock import monotonic_ns
from onegate.tasks import Tasks
from onegate_ollama_proxy.upstream import Document, Upstream, UpstreamError, UpstreamStuck

_log = logging.getLogger(__name__)

# Open WebUI gives a list of models ten seconds.
_WITHIN_S = 2.0
_STALE_NS = 300_000_000_000
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, and for one from before how many seconds ago that was."""

    document: Document
    age_s: int | None = None


class Probes:
    """The answers to `GET`s of a few fixed paths."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._tasks = Tasks(self._crashed)
        self._asked: dict[str, asyncio.Task[Document | UpstreamError]] = {}
        self._last: dict[str, tuple[int, Document]] = {}
        self._changes = 0

    async def get(self, path: str) -> Told:
        """Raises UpstreamErrors; UpstreamStuck only where there is no recent answer either."""
        task = self._asked.get(path)
        if task is None:
            task = self._tasks.spawn(self._ask(path), name=f"probe {path}")
            self._asked[path] = task
            task.add_done_callback(lambda done: self._forget(path, done))
        # Whoever asked first may leave; the others still wait for the same answer.
        answer = await asyncio.shield(task)
        if isinstance(answer, Document):
            return Told(answer)
        if isinstance(answer, UpstreamStuck) and (last := self._recent(path)) is not None:
            return last
        raise answer

    def changed(self) -> None:
        """Something was pulled, made or deleted: who asks from now on must see it."""
        self._asked.clear()
        self._last.clear()
        self._changes += 1

    async def aclose(self) -> None:
        """End what is asked."""
        await self._tasks.aclose()

    async def _ask(self, path: str) -> Document | UpstreamError:
        asked_ns, changes = monotonic_ns(), self._changes
        try:
            document = await self._upstream.ask("GET", path, within_s=_WITHIN_S)
        except UpstreamError as error:
            return error
        if document.status == 200 and changes == self._changes:
            self._last[path] = (asked_ns, document)
        return document

    def _recent(self, path: str) -> Told | None:
        if (last := self._last.get(path)) is None:
            return None
        age_ns = monotonic_ns() - last[0]
        return Told(last[1], age_s=age_ns // _NS_PER_S) if age_ns < _STALE_NS else None

    def _forget(self, path: str, task: "asyncio.Task[Document | UpstreamError]") -> None:
        if self._asked.get(path) is task:
            del self._asked[path]

    def _crashed(self, name: str, error: BaseException) -> None:
        _log.error("%s broke", name, exc_info=error)
