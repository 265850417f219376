"""Sends every request at its moment, whatever became of the others, and writes down what came."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import accumulate

from onegate.bench.attempt import Attempt
from onegate.bench.comeback import Comeback, comeback
from onegate.bench.record import END_OF_RUN, Outcome, Record
from onegate.bench.scenario import LoadClass
from onegate.bench.schedule import Arrival
from onegate.bench.targets.base import Ask, Broke, Expired, Refused, Target, Usage
from onegate.clock import monotonic_ns
from onegate.tasks import Tasks

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
# By then a connection is made and the request on its way, and hardly anything more.
_SENT_S = 0.005
# A target may count what has no text, and may answer at length; beyond this it counts wrongly.
_MOST_TIMES = 16
_MOST_TOK = 100_000_000
# Between two clocks that measure the same wait.
_QUEUE_SLACK_MS = 1000.0


class Driver:
    """Drives one target through one part of a run. `done` counts the requests that are over."""

    def __init__(
        self,
        target: Target,
        classes: Sequence[LoadClass],
        *,
        on_crash: Callable[[str, BaseException], None],
    ) -> None:
        self._target = target
        self._classes = classes
        # Clients of all classes in one row: the first number of each class.
        self._first_client = [0, *accumulate(cls.clients for cls in classes)]
        self._tasks = Tasks(on_crash)
        self._cut: list[asyncio.Task[None]] = []
        self._start_ns = 0
        self._over = asyncio.Event()
        self.done = 0

    async def run(
        self,
        arrivals: Sequence[Arrival],
        texts: Sequence[str],
        *,
        start_ns: int,
        window_ns: int,
        end_ns: int,
    ) -> list[Record]:
        """Send all `arrivals`; `start_ns` is the start of the window on the machine's clock.

        What is not over `end_ns` after it is left, of a class that is cut after `window_ns`. One
        record for each arrival, in their order.
        """
        self._start_ns = start_ns
        records = [_blank(arrival) for arrival in arrivals]
        for arrival, text, record in zip(arrivals, texts, records, strict=True):
            wait_ns = arrival.at_ns - self._now_ns()
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / _NS_PER_S)
            self._spawn(arrival, text, record)
        await asyncio.sleep(max(0, window_ns - self._now_ns()) / _NS_PER_S)
        for task in self._cut:
            task.cancel()
        try:
            async with asyncio.timeout(max(0.0, (end_ns - self._now_ns()) / _NS_PER_S)):
                while self.done < len(records):
                    self._over.clear()
                    await self._over.wait()
        except TimeoutError:
            pass  # the rest is left, as `_blank` has written down
        await self._tasks.aclose()
        return records

    def _spawn(self, arrival: Arrival, text: str, record: Record) -> None:
        task = self._tasks.spawn(self._one(arrival, text, record), name=f"request {arrival.serial}")
        # Not in the task itself: one that is cancelled before its first step never runs.
        task.add_done_callback(lambda _: self._over_with(record))
        if self._classes[arrival.cls].cut:
            self._cut.append(task)

    def _over_with(self, record: Record) -> None:
        record.ended_ns = self._now_ns()
        self.done += 1
        self._over.set()

    def _now_ns(self) -> int:
        return monotonic_ns() - self._start_ns

    async def _one(self, arrival: Arrival, text: str, record: Record) -> None:
        ticket = None
        while (again := await self._attempt(arrival, text, record, ticket)) is not None:
            ticket = again.ticket
            await asyncio.sleep(again.wait_ms / 1000)

    async def _attempt(
        self, arrival: Arrival, text: str, record: Record, ticket: str | None
    ) -> Comeback | None:
        """One attempt; returns the next one if there is to be one."""
        cls = self._classes[arrival.cls]
        record.attempts += 1
        # Whatever became of an earlier attempt: until this one has ended, the end of the run is it.
        record.outcome, record.reason = Outcome.LEFT, END_OF_RUN
        record.last_sent_ns = self._now_ns()
        if record.sent_ns is None:
            record.sent_ns = record.last_sent_ns
        ask = Ask(
            text=text,
            output_tok=arrival.output_tok,
            client=self._first_client[arrival.cls] + arrival.client,
            class_=cls.asks,
            ttft_timeout_ms=cls.ttft_timeout_ms,
            timeout_ms=cls.timeout_ms,
            ticket=ticket,
            # Of all others it is enough to hear at the end how long they waited.
            follow=arrival.leave in ("arrival", "queued", "prefill"),
            own_connection=cls.leave is not None and cls.leave.by == "close",
        )
        loop = asyncio.get_running_loop()
        scope = asyncio.timeout(self._patience_s(arrival))
        watch = Attempt(
            record,
            self._now_ns,
            lambda: scope.reschedule(loop.time()),
            phase=arrival.leave,
            rule=cls.leave,
        )
        try:
            async with scope:
                usage = await self._target.ask(ask, watch)
        except TimeoutError:
            if scope.expired():
                record.outcome, record.reason = Outcome.LEFT, _gone(arrival, watch)
            else:  # the kernel's, of a connection
                record.outcome, record.reason = Outcome.FAILED, "timed_out"
        except Refused as refusal:
            return self._refused(record, cls, refusal)
        except Expired as expiry:
            record.outcome, record.reason = Outcome.EXPIRED, str(expiry)
        except Broke as failure:
            record.outcome, record.reason = Outcome.FAILED, str(failure)
        else:
            if _plausible(record, usage, self._now_ns()):
                record.outcome, record.reason = Outcome.FINISHED, ""
                _counted(record, usage)
            else:
                record.outcome, record.reason = Outcome.FAILED, "malformed"
        return None

    def _patience_s(self, arrival: Arrival) -> float | None:
        """When a caller leaves that neither a grant nor text makes leave."""
        rule = self._classes[arrival.cls].leave
        match arrival.leave:
            case "arrival":
                return _SENT_S
            case "queued":
                assert rule is not None
                return rule.after_ms / 1000
            case _:
                return None

    def _refused(self, record: Record, cls: LoadClass, refusal: Refused) -> Comeback | None:
        record.outcome, record.reason = Outcome.REFUSED, refusal.reason
        if record.hinted_ns is None and refusal.retry_after_ms is not None:
            record.hinted_ns = self._now_ns() + round(refusal.retry_after_ms * _NS_PER_MS)
        return comeback(cls.retry, refusal, record.attempts)


def _gone(arrival: Arrival, watch: Attempt) -> str:
    """The phase in which a caller left: one that waits by the clock may be served meanwhile."""
    assert arrival.leave is not None
    by_clock = arrival.leave in ("arrival", "queued")
    return (by_clock and watch.reached) or arrival.leave


def _plausible(record: Record, usage: Usage, now_ns: int) -> bool:
    """Whether the target can have counted like this."""
    assert record.sent_ns is not None
    seen_tok = sum(record.pieces_tok)
    least_tok = 1 if record.pieces_ns else 0
    most_tok = _MOST_TIMES * max(record.asked_output_tok, seen_tok)
    most_ms = (now_ns - record.sent_ns) / _NS_PER_MS + _QUEUE_SLACK_MS
    return (
        (usage.prompt_tok is None or 0 <= usage.prompt_tok <= _MOST_TOK)
        and (usage.output_tok is None or least_tok <= usage.output_tok <= most_tok)
        and (usage.queue_ms is None or 0 <= usage.queue_ms <= most_ms)
    )


def _counted(record: Record, usage: Usage) -> None:
    record.prompt_tok, record.output_tok = usage.prompt_tok, usage.output_tok
    if record.started_ns is None and usage.queue_ms is not None:
        assert record.last_sent_ns is not None
        record.queue_ms = usage.queue_ms
        record.started_ns = record.last_sent_ns + round(usage.queue_ms * _NS_PER_MS)


def _blank(arrival: Arrival) -> Record:
    return Record(
        arrival.cls,
        arrival.serial,
        arrival.at_ns,
        reason=END_OF_RUN,
        asked_prompt_tok=arrival.prompt_tok,
        asked_output_tok=arrival.output_tok,
        shortened=arrival.shortened,
    )
