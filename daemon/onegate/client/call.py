"""One request for text, from the first attempt to the last chunk, the same for both clients."""

from collections.abc import Callable

from msgspec import structs

from onegate.client.core import GRACE_S, NS_PER_S, Core, Link, cancel_now
from onegate.client.errors import OnegateError, Rejected, Unavailable, error_of
from onegate.client.reply import Collector, Reply
from onegate.client.request import Progress, RequestOptions, generate_message, ms_of
from onegate.client.retry import Patience
from onegate.clock import monotonic_ns
from onegate.protocol import messages as m
from onegate.protocol.errors import Reason


class Call:
    """Nothing is sent before the first `next_chunk`. `reply` is set once that returns None."""

    def __init__(
        self, core: Core, prompt: str | None, options: RequestOptions, *, stream: bool
    ) -> None:
        self._core = core
        self._message = generate_message(prompt, options, stream=stream)
        self._ttft_timeout = options.get("ttft_timeout")
        self._timeout = options.get("timeout")
        ms_of(self._ttft_timeout, "ttft_timeout")
        ms_of(self._timeout, "timeout")
        self._progress: Callable[[Progress], None] | None = options.get("progress")
        self._begun_ns: int | None = None
        self._patience: Patience | None = None
        self._attempt: _Attempt | None = None
        self._over = False
        self.reply: Reply | None = None
        self.rid: str | None = None

    async def next_chunk(self) -> m.Chunk | None:
        """The next piece of the answer, None after the last.

        However this is left other than by returning, the request is over on the daemon too.
        """
        if self._over:
            return None
        if self._begun_ns is None:
            self._begun_ns = monotonic_ns()
        try:
            chunk = await self._insist()
            if chunk is None:
                self.abandon()
            return chunk
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """End the request: cancelled on the daemon if it still runs there. Safe to call twice."""
        self._over = True
        self._close_attempt()

    async def finish(self) -> Reply:
        """The whole answer."""
        while await self.next_chunk() is not None:
            pass
        assert self.reply is not None
        return self.reply

    async def _insist(self) -> m.Chunk | None:
        """The next piece from as many attempts as patience allows."""
        while True:
            try:
                attempt = self._attempt = self._attempt or await self._begin()
            except _Lost as lost:
                await self._wait_for_another(lost.error)
                continue
            try:
                return await self._advance(attempt)
            except Rejected as error:
                await self._wait_after(error)
            except _Lost as lost:
                await self._wait_for_another(lost.error)

    async def _begin(self) -> "_Attempt":
        """Find a daemon and send the request to it."""
        link = None
        while link is None:
            try:
                link = await self._core.link()
            except OnegateError as error:
                await self._sleep(self._patient().wait_s(error, monotonic_ns(), connecting=True))
        attempt = _Attempt(link, self._guard_s())
        try:
            message = structs.replace(
                self._message,
                id=attempt.call_id,
                ttft_timeout_ms=self._left_ms(self._ttft_timeout),
                timeout_ms=self._left_ms(self._timeout),
            )
            data = link.session.encode(message)
            attempt.open = True
            await link.send(data, attempt.deadline_ns())
        except TimeoutError:
            attempt.close(self._core)
            raise attempt.silent() from None
        except Unavailable as error:
            attempt.close(self._core)
            raise _Lost(error) from error
        except BaseException:
            attempt.close(self._core)
            raise
        return attempt

    async def _advance(self, attempt: "_Attempt") -> m.Chunk | None:
        """Messages up to the next chunk; None: finished, and `reply` is there."""
        while True:
            try:
                message = await attempt.link.receive(attempt.call_id, attempt.deadline_ns())
            except TimeoutError:
                raise attempt.silent() from None
            except Unavailable as error:
                # What the caller has seen the beginning of can't be begun anew.
                if attempt.first:
                    raise
                raise _Lost(error) from error
            match message:
                case m.Chunk():
                    attempt.first = True
                    attempt.collector.add(message)
                    return message
                case m.Done():
                    attempt.open = False
                    self.rid = message.rid
                    self.reply = attempt.collector.finish(message)
                    return None
                case m.Failed():
                    attempt.open = False
                    raise error_of(message, started=attempt.started)
                case m.Queued() | m.Started() | m.Paused() | m.Resumed():
                    if isinstance(message, m.Started | m.Queued):
                        self.rid = message.rid
                    attempt.started = attempt.started or not isinstance(message, m.Queued)
                    if self._progress is not None:
                        self._progress(message)
                case _:
                    continue  # an answer to something else, such as a cancellation

    async def _wait_after(self, error: Rejected) -> None:
        """Wait as long as the refusal says, or raise it."""
        assert self._attempt is not None
        if error.reason is Reason.SHUTTING_DOWN:
            self._core.retire(self._attempt.link)
        held_ns = self._attempt.held_ns()
        self._close_attempt()
        wait_s = self._patient().wait_s(error, monotonic_ns(), held_ns=held_ns)
        if error.ticket is not None:
            self._message = structs.replace(self._message, ticket=error.ticket)
        await self._sleep(wait_s)

    async def _wait_for_another(self, error: Unavailable) -> None:
        """Wait for the daemon after the one that took the request with it, or raise."""
        held_ns = 0 if self._attempt is None else self._attempt.held_ns()
        self._close_attempt()
        await self._sleep(self._patient().wait_s(error, monotonic_ns(), held_ns=held_ns))

    async def _sleep(self, wait_s: float) -> None:
        await self._core.transport.sleep(wait_s)

    def _patient(self) -> Patience:
        if self._patience is None:
            assert self._begun_ns is not None
            ends_ns = (
                None if self._timeout is None else self._begun_ns + round(self._timeout * NS_PER_S)
            )
            options = self._core.options
            self._patience = Patience(
                options.retry, restart_timeout=options.restart_timeout, deadline_ns=ends_ns
            )
        return self._patience

    def _left_ms(self, timeout: float | None) -> int | None:
        """What is left of a timeout that began with the first attempt."""
        if timeout is None:
            return None
        assert self._begun_ns is not None
        used_ms = (monotonic_ns() - self._begun_ns) // 1_000_000
        return max(1, round(timeout * 1000) - used_ms)

    def _guard_s(self) -> tuple[float | None, float | None]:
        """Seconds after which a silent daemon counts as gone: until the first chunk, and in all.

        The class's default timeout stands in for one that the caller did not give.
        """
        ttft_ms, whole_ms = self._left_ms(self._ttft_timeout), self._left_ms(self._timeout)
        welcome = self._core.greeting()
        if whole_ms is None:
            limits = welcome.limits.classes.get(self._message.class_ or welcome.class_)
            whole_ms = limits.timeout_ms if limits is not None else None
        whole_s = None if whole_ms is None else whole_ms / 1000 + GRACE_S
        return (whole_s if ttft_ms is None else ttft_ms / 1000 + GRACE_S), whole_s

    def _close_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.close(self._core)
            self._attempt = None


class _Lost(Exception):
    """The connection ended before anything of the answer was there: `error` says how."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(error)
        self.error = error


class _Attempt:
    """The request on one connection. `open`: sent, and not ended by the daemon."""

    def __init__(self, link: Link, guard_s: tuple[float | None, float | None]) -> None:
        self.link = link
        self.call_id = link.session.begin()
        self.collector = Collector()
        self.open = False
        self.started = False
        self.first = False
        self._guard_s = guard_s
        self._sent_ns = monotonic_ns()

    def _limit_s(self) -> float | None:
        before_first, whole = self._guard_s
        return whole if self.first else before_first

    def held_ns(self) -> int:
        return monotonic_ns() - self._sent_ns

    def deadline_ns(self) -> int | None:
        limit_s = self._limit_s()
        return None if limit_s is None else self._sent_ns + round(limit_s * NS_PER_S)

    def silent(self) -> Unavailable:
        return Unavailable(
            f"the daemon did not answer within {self._limit_s():.1f} s, its own deadline included"
        )

    def close(self, core: Core) -> None:
        self.link.session.finish(self.call_id)
        if self.open:
            self.open = False
            cancel_now(self.link, self.call_id)
        core.settle(self.link)
