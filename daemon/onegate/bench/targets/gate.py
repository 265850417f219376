"""The daemon, over its socket, as any program reaches it."""

import asyncio
from typing import Any

from onegate.bench.targets.base import (
    Ask,
    Broke,
    Expired,
    Facts,
    Refused,
    TargetError,
    Usage,
    Watch,
    check_named,
)
from onegate.client.aio import AsyncClient
from onegate.client.errors import Failed, OnegateError, Rejected, Unsupported
from onegate.client.request import Progress, RequestOptions
from onegate.protocol import messages as m
from onegate.protocol.content import ChunkKind
from onegate.protocol.errors import Reason

_APP = "onegate bench"
_POLL_S = 0.2
_EXPIRIES = {Reason.TTFT_DEADLINE_EXCEEDED, Reason.DEADLINE_EXCEEDED}


class GateTarget:
    """See `base.Target`. Every client of the scenario is a connection of its own."""

    def __init__(self, socket: str, model: str | None, *, ready_s: float) -> None:
        self._socket = socket
        self._model = model
        self._ready_s = ready_s
        self._clients: dict[int, AsyncClient] = {}
        self._ignore_eos = True

    async def open(self) -> Facts:
        client = self._client(0)
        try:
            async with asyncio.timeout(self._ready_s):
                await client.connect()
            pool = await self._ready_pool(client)
            async with asyncio.timeout(self._ready_s):
                await self._learn_end(client)
        except OnegateError as error:
            raise TargetError(f"{self._socket}: {error}") from error
        except TimeoutError:
            raise TargetError(
                f"{self._socket} answered no request within {self._ready_s:.0f} s"
            ) from None
        return pool

    async def _ready_pool(self, client: AsyncClient) -> Facts:
        try:
            async with asyncio.timeout(self._ready_s):
                while True:
                    pools = (await client.status()).pools
                    names, states = [p.model for p in pools], [p.state for p in pools]
                    check_named(self._socket, self._model, names, ready="ready" in states)
                    for pool in pools:
                        if self._model in (None, pool.model) and pool.state == "ready":
                            engine = pool.identity.engine if pool.identity is not None else ""
                            return Facts(
                                model=pool.model,
                                engine=engine,
                                context_tok=pool.max_context_tok,
                                seats=pool.seats,
                            )
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise TargetError(
                f"{self._socket}: no model was ready within {self._ready_s:.0f} s; "
                "`onegate status` says why"
            ) from None

    async def _learn_end(self, client: AsyncClient) -> None:
        """Whether answers can be made exactly as long as the scenario wants them."""
        try:
            await client.generate("One.", **self._length(1))
        except Unsupported:
            self._ignore_eos = False
            await client.generate("One.", **self._length(1))

    def _length(self, n_tok: int) -> RequestOptions:
        options: RequestOptions = {"max_tokens": n_tok}
        if self._ignore_eos:
            options["ignore_eos"] = True
        if self._model is not None:
            options["model"] = self._model
        return options

    async def count(self, text: str) -> int:
        try:
            async with asyncio.timeout(self._ready_s):
                return await self._count(self._client(0), text)
        except OnegateError as error:
            raise TargetError(f"{self._socket} cannot count tokens: {error}") from error
        except TimeoutError:
            raise TargetError(
                f"{self._socket} counted no tokens within {self._ready_s:.0f} s"
            ) from None

    async def _count(self, client: AsyncClient, text: str) -> int:
        try:
            return (await client.count(text, model=self._model)).n_tok
        except Unsupported:
            # An engine that does not count says it with an answer.
            reply = await client.generate(text, **self._length(1))
            return reply.usage.prompt_tok

    async def ask(self, ask: Ask, watch: Watch) -> Usage:
        client = self._client(None if ask.own_connection else ask.client)
        try:
            return await self._ask(client, ask, watch)
        except Rejected as error:
            raise _refusal(error) from error
        except Failed as error:
            raise _failure(error) from error
        except OnegateError as error:
            raise Broke(type(error).__name__.lower()) from error
        finally:
            if ask.own_connection:
                await client.close()

    async def _ask(self, client: AsyncClient, ask: Ask, watch: Watch) -> Usage:
        def progressed(message: Progress) -> None:
            if isinstance(message, m.Started):
                watch.started(message.queue_ms)

        options: dict[str, Any] = {
            "class_": ask.class_,
            "ticket": ask.ticket,
            "ttft_timeout": _seconds(ask.ttft_timeout_ms),
            "timeout": _seconds(ask.timeout_ms),
        }
        given = self._length(ask.output_tok)
        if ask.follow:
            given["progress"] = progressed
        given.update({k: v for k, v in options.items() if v is not None})  # type: ignore[typeddict-item]
        async with client.stream(ask.text, **given) as stream:
            async for chunk in stream:
                visible = bool(chunk.text) or chunk.kind == ChunkKind.TOOL_CALL
                watch.piece(chunk.n_tok, visible=visible)
        assert stream.reply is not None
        usage, timings = stream.reply.usage, stream.reply.timings
        return Usage(usage.prompt_tok, usage.output_tok, timings.queue_ms)

    def _client(self, number: int | None) -> AsyncClient:
        if number is not None and number in self._clients:
            return self._clients[number]
        client = AsyncClient(self._socket, app=_APP, retry="never")
        if number is not None:
            self._clients[number] = client
        return client

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.close()


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _refusal(error: Rejected) -> Refused | Expired:
    if error.reason in _EXPIRIES:
        return Expired(error.reason.value)
    after_ms = None if error.retry_after is None else error.retry_after * 1000
    return Refused(error.reason.value, retry_after_ms=after_ms, ticket=error.ticket)


def _failure(error: Failed) -> Expired | Broke:
    reason = error.reason.value
    return Expired(reason) if error.reason in _EXPIRIES else Broke(reason)
