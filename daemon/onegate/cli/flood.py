"""A batch client that asks for more than fits, a person who asks one thing, and what each got."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from onegate.client.aio import AsyncClient
from onegate.client.errors import OnegateError, Rejected
from onegate.client.request import Progress
from onegate.clock import monotonic_ns
from onegate.protocol import messages as m
from onegate.protocol.content import ChunkKind
from onegate.tasks import Tasks

BATCH, INTERACTIVE = "batch", "interactive"

_TASKS = (
    "Explain in three sentences to a child",
    "List the four most important facts about",
    "Write a short and friendly advertisement for",
    "Name one common mistake people make about",
)
_TOPICS = (
    *("the tides", "glass", "honey bees", "volcanoes", "bread", "the moon", "bicycles", "paper"),
    *("thunder", "salt", "libraries", "lighthouses", "coffee", "bridges", "compost"),
)


def prompts(n: int) -> list[str]:
    """`n` prompts; the first sixty differ from each other."""
    pairs = [f"{task} {topic}." for topic in _TOPICS for task in _TASKS]
    return [pairs[i % len(pairs)] for i in range(n)]


@dataclass(slots=True)
class Job:
    """One request as its client saw it; times of `monotonic_ns`, None where it did not happen."""

    class_: str
    sent_ns: int
    queue_ms: float | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    output_tok: int = 0
    refused: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_ns is None else (self.first_ns - self.sent_ns) / 1e6

    def progressed(self, message: Progress) -> None:
        if isinstance(message, m.Started):
            self.queue_ms = message.queue_ms

    def got(self, chunk: m.Chunk) -> None:
        self.last_ns = monotonic_ns()
        self.first_ns = self.first_ns or self.last_ns
        self.output_tok += chunk.n_tok


@dataclass(frozen=True, slots=True)
class Figures:
    """One row of the table. None: nothing to compute it from."""

    class_: str
    requests: int
    queue_ms: float | None
    ttft_ms: float | None
    tok_per_s: float | None
    refused: int


def figures(class_: str, jobs: Iterable[Job]) -> Figures:
    """Medians over the jobs that came so far, tokens a second over the class's whole activity."""
    found = [job for job in jobs if job.class_ == class_]
    queue = [job.queue_ms for job in found if job.queue_ms is not None]
    ttft = [job.ttft_ms for job in found if job.ttft_ms is not None]
    firsts = [job.first_ns for job in found if job.first_ns is not None]
    lasts = [job.last_ns for job in found if job.last_ns is not None]
    active_ns = max(lasts) - min(firsts) if firsts and lasts else 0
    total_tok = sum(job.output_tok for job in found)
    return Figures(
        class_=class_,
        requests=len(found),
        queue_ms=median(queue) if queue else None,
        ttft_ms=median(ttft) if ttft else None,
        tok_per_s=total_tok / (active_ns / 1e9) if active_ns else None,
        refused=sum(job.refused is not None for job in found),
    )


class Flood:
    """Many requests of one batch client at once, until its connection is closed."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._tasks = Tasks(self._crashed)
        self._crash: BaseException | None = None
        self._outstanding = 0
        self.jobs: list[Job] = []
        self.moving = asyncio.Event()  # the first job got its first text, or there is none left

    def begin(self, texts: Iterable[str], max_tokens: int) -> None:
        """Send everything now; the daemon does the queueing."""
        for i, text in enumerate(texts):
            job = Job(BATCH, monotonic_ns())
            self.jobs.append(job)
            self._outstanding += 1
            self._tasks.spawn(self._run(job, text, max_tokens), name=f"job {i}")

    async def _run(self, job: Job, text: str, max_tokens: int) -> None:
        try:
            await ask(self._client, job, text, max_tokens, lambda chunk: self.moving.set())
        except Rejected as error:
            job.refused = error.reason
        except OnegateError:
            return  # the flood was ended; the daemon counts what it cancelled
        finally:
            self._outstanding -= 1
            if self._outstanding == 0:
                self.moving.set()

    async def end(self) -> None:
        """Close the connection, which cancels what waits and what runs. Raises a job's bug."""
        await self._client.close()
        await self._tasks.aclose()
        if self._crash is not None:
            raise self._crash

    def _crashed(self, name: str, error: BaseException) -> None:
        self._crash = error
        self.moving.set()


async def ask(
    client: AsyncClient,
    job: Job,
    text: str,
    max_tokens: int,
    on_chunk: Callable[[m.Chunk], None],
) -> None:
    """One streamed question; `job` learns what came when. Raises what the client raises."""
    stream = client.stream(
        messages=[{"role": "user", "content": text}],
        class_=job.class_,
        max_tokens=max_tokens,
        progress=job.progressed,
    )
    async for chunk in stream:
        job.got(chunk)
        if chunk.kind == ChunkKind.TEXT:
            on_chunk(chunk)
