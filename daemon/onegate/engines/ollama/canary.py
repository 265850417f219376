"""Small questions that prove something: that a model still answers, and that a seat is free.

`/api/tags` stays healthy through everything that can hang inside Ollama, and older versions go on
with an abandoned prefill to its end while the server says nothing of it. What can be believed is a
token. Each answer is read to its end: a connection that is closed just as Ollama has one more token
for it can cost it the seat until it is restarted (seen with 0.9.3, once in 150 single tokens).
"""

import asyncio

from onegate.engines.base import EngineMalformed
from onegate.engines.http.documents import document, encode, short
from onegate.engines.http.lines import Lines
from onegate.engines.http.link import HttpLink
from onegate.engines.ollama.model import Known
from onegate.engines.ollama.request import EMBED, GENERATE, pinned
from onegate.engines.ollama.shapes import EmbedAnswer, Line
from onegate.tasks import Tasks

_PROMPT = "a"
# Each of a group runs long enough to be seen together with the others.
_GROUP_TOK = 32
# One that is past this may have ended before the news of it is read.
_STILL_RUNS_TOK = _GROUP_TOK // 2
_MAX_ANSWER_BYTES = 1 << 20


async def has_free_seat(
    link: HttpLink, known: Known, keep_alive_s: float | None, *, others: int, within_s: float
) -> bool:
    """Whether a seat beside the `others` is free, of which an abandoned request may hold one.

    As many questions are sent as there would be seats without it, and one more: only when all of
    them are seen to run at the same time has it let go. With one seat that is a single token,
    which also shows that the model answers at all. Raises EngineErrors.
    """
    group = _Group(link, known, keep_alive_s, known.config.max_seqs - others)
    try:
        async with asyncio.timeout(within_s):
            if not known.generates:
                return await _embeds(link, known, keep_alive_s, within_s)
            await group.run()
    except TimeoutError:
        pass  # what was seen until then was seen
    return group.proven


async def _embeds(
    link: HttpLink, known: Known, keep_alive_s: float | None, within_s: float
) -> bool:
    """One vector; such a model has one seat."""
    body = {**pinned(known, keep_alive_s), "input": _PROMPT}
    answer = await link.post(EMBED, encode(body), timeout_s=within_s)
    return len(document(answer, EmbedAnswer).embeddings) == 1


class _Group:
    """Questions that have to run at the same time; `proven` once they have been seen to."""

    def __init__(self, link: HttpLink, known: Known, keep_alive_s: float | None, size: int) -> None:
        self._link = link
        self._size = max(1, size)
        body = pinned(known, keep_alive_s)
        body["options"] |= {"num_predict": 1 if self._size == 1 else _GROUP_TOK, "temperature": 0}
        self._body = encode({**body, "prompt": _PROMPT, "raw": True, "stream": True})
        self._running = 0
        self._unread = self._size
        self._over = asyncio.Event()
        self._error: BaseException | None = None
        self.proven = False

    async def run(self) -> None:
        """Ask, and return when all answers have ended. Raises EngineErrors."""
        tasks = Tasks(self._failed)
        try:
            for i in range(self._size):
                tasks.spawn(self._ask(), name=f"canary {i}")
            await self._over.wait()
        finally:
            await tasks.aclose()
        if self._error is not None:
            raise self._error

    async def _ask(self) -> None:
        n_tok = 0
        lines = Lines(max_total_bytes=_MAX_ANSWER_BYTES)
        async with self._link.open("POST", GENERATE, self._body) as answer:
            async for data in answer.chunks():
                for line in filter(bytes.strip, lines.feed(data)):
                    _check(document(line, Line))
                    n_tok += 1
                    self._runs(n_tok)
        self._unread -= 1
        if not self._unread:
            self._over.set()

    def _runs(self, n_tok: int) -> None:
        if n_tok == 1:
            self._running += 1
        elif n_tok == _STILL_RUNS_TOK:
            self._running -= 1
        if self._running == self._size:
            self.proven = True

    def _failed(self, _name: str, error: BaseException) -> None:
        self._error = self._error or error
        self._over.set()


def _check(line: Line) -> None:
    if line.error is not None:
        raise EngineMalformed(f"Ollama cannot say one token: {short(line.error)}")
