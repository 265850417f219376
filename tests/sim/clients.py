"""Clients: they send what a workload says, and come back, or do not, when they are refused."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.sim.job import Job
from tests.sim.workload import Ask
from tests.sim.world import Box

from onegate.admission.model import Refusal

# Nobody tries for ever.
MOST_ATTEMPTS = 20


class Retry(StrEnum):
    """What a client does when it is refused with a time to come back: nothing; come back then,
    with the ticket; the same without the ticket."""

    NEVER = "never"
    HONOUR = "honour"
    PLAIN = "plain"


@dataclass(slots=True, eq=False)
class Client:
    """One request and its attempts. `served_ns` is the first token's time."""

    ask: Ask
    jobs: list[Job] = field(default_factory=list)

    @property
    def last(self) -> Job:
        """The newest attempt."""
        return self.jobs[-1]

    @property
    def taken(self) -> bool:
        """Was its newest attempt let in?"""
        job = self.last
        return job.refusal is None or job.ended_ns != job.arrived_ns

    @property
    def hint(self) -> Refusal | None:
        """The first refusal that said when to come back."""
        refusal = self.jobs[0].refusal
        if refusal is None or refusal.retry_after_ns is None:
            return None
        return refusal


class Crowd:
    """Every client of a run. `one_principal` hides whose requests they are; `on_refused` is told of
    whoever is refused at once."""

    def __init__(
        self, box: Box, *, retry: Retry = Retry.NEVER, one_principal: bool = False
    ) -> None:
        self.box = box
        self.retry = retry
        self.one_principal = one_principal
        self.clients: list[Client] = []
        self.on_refused: Callable[[Client], None] | None = None

    def come(self, asks: Iterable[Ask]) -> None:
        """Let these arrive at their times."""
        for ask in asks:
            client = Client(ask)
            self.clients.append(client)
            self.box.at(ask.at_ns, lambda client=client: self._send(client, None))

    def backlog(self, live: int, asks: Iterator[Ask]) -> None:
        """Keep `live` of these in the box for ever."""

        def send(on_end: Callable[[Job], None]) -> Job:
            client = Client(next(asks))
            self.clients.append(client)
            return self._submit(client, None, on_end)

        self.box.backlog(live, send)

    def _send(self, client: Client, ticket: str | None) -> None:
        self._submit(client, ticket, lambda job: self._over(client, job))

    def _over(self, client: Client, job: Job) -> None:
        if job.refusal is not None:
            # In a turn of its own: no event is told within another.
            self.box.at(self.box.now, lambda: self._refused(client, job.refusal))

    def _refused(self, client: Client, refusal: Refusal) -> None:
        if self.on_refused is not None and not client.taken:
            self.on_refused(client)
        wait_ns = refusal.retry_after_ns
        if self.retry is Retry.NEVER or wait_ns is None or len(client.jobs) == MOST_ATTEMPTS:
            return
        again = refusal.ticket if self.retry is Retry.HONOUR else None
        self.box.at(self.box.now + wait_ns, lambda: self._send(client, again))

    def _submit(
        self, client: Client, ticket: str | None, on_end: Callable[[Job], None] | None
    ) -> Job:
        ask = client.ask
        job = self.box.submit(
            ask.class_,
            ask.prompt_tok,
            ask.output_tok,
            max_tok=ask.max_tok,
            principal="everybody" if self.one_principal else ask.principal,
            flow="everybody" if self.one_principal else ask.flow,
            who=ask.principal,
            ttft_ns=ask.ttft_ns,
            own=ask.ttft_is_own,
            timeout_ns=ask.timeout_ns,
            resume=ask.resume,
            ticket=ticket,
            on_end=on_end,
        )
        client.jobs.append(job)
        return job
