"""The asynchronous client: the same names and the same behaviour as the blocking one."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from onegate.client.aio_link import Loop
from onegate.client.call import Call
from onegate.client.connect import socket_path
from onegate.client.core import Core, Options
from onegate.client.errors import OnegateError
from onegate.client.lease import Holding
from onegate.client.reply import Reply
from onegate.client.request import RequestOptions, Retry
from onegate.client.verbs import OnNotice, Verbs
from onegate.protocol import messages as m
from onegate.protocol.content import Message, Tool, Usage
from onegate.protocol.status import RequestStatus, Status


class AsyncClient:
    """An asynchronous client of the daemon. Settings and errors are those of `Client`.

    Connects on `async with`, on `await connect()` or with the first request; that is where
    WrongModel is raised. Any number of tasks of one event loop may use it at the same time, over
    one connection. Cancelling a task cancels its request on the daemon.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        model: str | None = None,
        class_: str | None = None,
        app: str = "",
        retry: Retry = "restart",
        connect_timeout: float = 45.0,
        restart_timeout: float = 60.0,
        answer_timeout: float = 30.0,
        on_behalf: m.OnBehalf | None = None,
    ) -> None:
        options = Options(
            path=socket_path(socket),
            app=app,
            model=model,
            class_=class_,
            retry=retry,
            connect_timeout=connect_timeout,
            restart_timeout=restart_timeout,
            answer_timeout=answer_timeout,
            on_behalf=on_behalf,
        )
        self._transport = Loop()
        self._core = Core(self._transport, options)
        self._verbs = Verbs(self._core)

    async def connect(self) -> m.Welcome:
        """Connect unless connected; returns who you are here, what you get, and why."""
        await self._core.link()
        return self.welcome

    @property
    def welcome(self) -> m.Welcome:
        """What the daemon said at the last handshake. Raises Unavailable before the first."""
        return self._core.greeting()

    async def generate(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> Reply:
        """The whole answer. Keywords are those of RequestOptions.

        Raises Rejected (or what is below it) before it started, Failed after, Unavailable.
        """
        return await Call(self._core, prompt, options, stream=False).finish()

    def stream(self, prompt: str | None = None, **options: Unpack[RequestOptions]) -> "AsyncStream":
        """The answer in pieces, as they come. Keywords and errors are those of `generate`.

        Nothing is sent before iteration begins.
        """
        return AsyncStream(Call(self._core, prompt, options, stream=True))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        class_: str | None = None,
        timeout: float | None = None,
    ) -> m.Embeddings:
        """One vector per text. Raises Unsupported where the engine has none."""
        return await self._verbs.embed(texts, model, class_, timeout)

    def lease(
        self,
        prompt_tok: int,
        max_tok: int,
        *,
        model: str | None = None,
        class_: str | None = None,
        ttft_timeout: float | None = None,
    ) -> "AsyncLease":
        """Delegates: hold a permit and a seat, by `async with`, for work on the engine that the
        daemon does not carry out. `ttft_timeout`: seconds to wait for it.
        """
        return AsyncLease(
            Holding(
                self._core,
                prompt_tok,
                max_tok,
                model=model,
                class_=class_,
                ttft_timeout=ttft_timeout,
            )
        )

    async def load(self, model: str, *, timeout: float | None = None) -> None:
        """Delegates: bring a model into memory, in its turn; returns once it is there.

        `timeout`: seconds to wait for that, by default without end.
        """
        await self._verbs.load(model, timeout)

    async def unload(self, model: str, *, timeout: float | None = None) -> bool:
        """Delegates: free a model's memory. Returns false where it stays, because it is used or was
        not loaded."""
        return await self._verbs.unload(model, timeout)

    async def count(
        self,
        prompt: str | None = None,
        *,
        messages: Sequence[Mapping[str, Any] | Message] | None = None,
        model: str | None = None,
        tools: Sequence[Mapping[str, Any] | Tool] | None = None,
    ) -> m.Counted:
        """Tokens of a prompt, or of a conversation with its tools: `n_tok`, and whether that is
        `exact`."""
        return await self._verbs.count(prompt, messages, model, tools)

    async def capacity(
        self,
        prompt_tok: int = 0,
        max_tok: int | None = None,
        *,
        model: str | None = None,
        class_: str | None = None,
    ) -> m.CapacityReport:
        """Would such a request be taken now, and when would it start? Advice, never a promise."""
        return await self._verbs.capacity(prompt_tok, max_tok, model, class_)

    async def status(self) -> Status:
        """The daemon's state."""
        return await self._verbs.status()

    async def requests(self) -> list[RequestStatus]:
        """The live requests that you may see: your own; an administrator sees all."""
        return await self._verbs.requests()

    async def whoami(self) -> m.WhoamiReport:
        """Who the daemon takes you for, your class, and the rules that decided."""
        return await self._verbs.whoami()

    async def metrics(self) -> str:
        """The daemon's metrics in Prometheus text format."""
        return await self._verbs.metrics()

    async def pause(
        self, class_: str, *, until: float | None = None, on_notice: OnNotice = None
    ) -> bool:
        """Administrators: close a class, until a Unix time, at most 30 days ahead, or until
        `unpause`.

        Returns whether that changed anything. `on_notice`, here and in the verbs that undo it and
        that release the device, is called with what does not hold all the same, such as over a
        restart of the daemon.
        """
        return await self._verbs.pause(class_, until, on_notice)

    async def unpause(self, class_: str, *, on_notice: OnNotice = None) -> bool:
        """Administrators: open a class again. Returns whether that changed anything."""
        return await self._verbs.unpause(class_, on_notice)

    async def usage(self, *, since: float | None = None) -> m.UsageReport:
        """What was used per principal, class and day (UTC), from the day of a Unix time on.

        Your own rows; an administrator gets everybody's.
        """
        return await self._verbs.usage(since)

    async def release_engine(
        self,
        *,
        until: float | None = None,
        now: bool = False,
        timeout: float | None = None,
        on_notice: OnNotice = None,
    ) -> bool:
        """Administrators: unload the models, and refuse newcomers, until a Unix time, at most 30
        days ahead, or until `take_back`. Returns once the device is free: true, or false where
        somebody took it back before that.

        What runs may end first; `now` ends it. `timeout`: seconds to wait for that, by default
        without end; the device stays released also when the waiting is given up.
        """
        return await self._verbs.release_engine(until, now, timeout, on_notice)

    async def take_back(self, *, on_notice: OnNotice = None) -> bool:
        """Administrators: end a release early. Returns whether there was one."""
        return await self._verbs.take_back(on_notice)

    async def cancel_any(self, rid: str) -> bool:
        """End a request by its daemon-wide id. Returns whether it was still there."""
        return await self._verbs.cancel_any(rid)

    async def close(self) -> None:
        """Close the connection; whatever runs on it is cancelled. Safe to call twice."""
        self._core.close()
        await self._transport.wait_closed()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class AsyncStream:
    """One answer in pieces. Breaking out of the loop, or leaving the `async with`, cancels.

    `reply` holds the whole answer, usage and timings included, once the loop came to its end.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    async def __aiter__(self) -> AsyncIterator[m.Chunk]:
        try:
            while (chunk := await self._call.next_chunk()) is not None:
                yield chunk
        finally:
            self.cancel()

    @property
    def reply(self) -> Reply | None:
        return self._call.reply

    @property
    def rid(self) -> str | None:
        """The daemon-wide id, once the daemon has named it."""
        return self._call.rid

    def cancel(self) -> None:
        """End the request; does nothing when it is over. The connection stays usable."""
        self._call.abandon()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cancel()


class AsyncLease:
    """A permit and a seat, while the `async with` lasts. Leaving it by an exception gives them back
    as given up; otherwise what was reserved counts as used, unless `settle` has said what was.
    """

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    @property
    def started(self) -> m.Started | None:
        """When it was granted, and after how long."""
        return self._holding.started

    async def ended(self) -> OnegateError:
        """Wait until the lease is taken back, and say why: the work under it has to stop then."""
        return await self._holding.ended()

    async def settle(self, usage: Usage | None = None) -> None:
        """The work is over and used this much. Raises Failed where it had been taken back."""
        await self._holding.settle(usage)

    async def __aenter__(self) -> Self:
        await self._holding.begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._holding.settle(None)
        else:
            self._holding.abandon()
