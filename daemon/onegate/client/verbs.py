"""Everything that is one question and one answer, the same for both clients."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from onegate.client.core import Core
from onegate.client.errors import invalid
from onegate.client.request import MAX_S, convert, count_message, embed_message
from onegate.protocol import messages as m
from onegate.protocol.content import Message, Tool
from onegate.protocol.status import RequestStatus, Status

# An embedding waits in the queue like any other work.
EMBED_TIMEOUT_S = 600.0

OnNotice = Callable[[m.Notice], None] | None


class Verbs:
    """The control side of a client. All raise RequestError, Unavailable or ProtocolError."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def embed(
        self, texts: Sequence[str], model: str | None, class_: str | None, timeout: float | None
    ) -> m.Embeddings:
        message = embed_message(texts, model=model, class_=class_, timeout=timeout)
        return await self._core.ask(
            _with_id(message),
            m.Embeddings,
            EMBED_TIMEOUT_S if timeout is None else timeout + self._core.options.answer_timeout,
            cancel=True,
        )

    async def count(
        self,
        prompt: str | None,
        messages: Sequence[Mapping[str, Any] | Message] | None,
        model: str | None,
        tools: Sequence[Mapping[str, Any] | Tool] | None,
    ) -> m.Counted:
        message = count_message(prompt, messages, model, tools)
        return await self._core.ask(_with_id(message), m.Counted)

    async def capacity(
        self, prompt_tok: int, max_tok: int | None, model: str | None, class_: str | None
    ) -> m.CapacityReport:
        fields = {
            "id": 0,
            "prompt_tok": prompt_tok,
            "max_tok": max_tok,
            "model": model,
            "class": class_,
        }
        return await self._core.ask(_with_id(convert(fields, m.Capacity)), m.CapacityReport)

    async def status(self) -> Status:
        return (await self._core.ask(lambda i: m.GetStatus(id=i), m.StatusReport)).status

    async def requests(self) -> list[RequestStatus]:
        report = await self._core.ask(lambda i: m.GetStatus(id=i, detail=True), m.StatusReport)
        return list(report.requests or ())

    async def whoami(self) -> m.WhoamiReport:
        return await self._core.ask(lambda i: m.Whoami(id=i), m.WhoamiReport)

    async def metrics(self) -> str:
        return (await self._core.ask(lambda i: m.Metrics(id=i), m.MetricsReport)).text

    async def pause(self, class_: str, until: float | None, on_notice: OnNotice) -> bool:
        until_ms = None if until is None else _unix_ms(until, "until")
        message = convert({"id": 0, "class": class_, "until_ms": until_ms}, m.Pause)
        return _applied(await self._core.ask(_with_id(message), m.Ack), on_notice)

    async def unpause(self, class_: str, on_notice: OnNotice) -> bool:
        message = convert({"id": 0, "class": class_}, m.Unpause)
        return _applied(await self._core.ask(_with_id(message), m.Ack), on_notice)

    async def load(self, model: str, timeout: float | None) -> None:
        message = convert({"id": 0, "model": model}, m.Load)
        limit_s = MAX_S if timeout is None else timeout
        await self._core.ask(_with_id(message), m.Ack, limit_s, cancel=True)

    async def unload(self, model: str, timeout: float | None) -> bool:
        message = convert({"id": 0, "model": model}, m.Unload)
        limit_s = MAX_S if timeout is None else timeout
        return (await self._core.ask(_with_id(message), m.Ack, limit_s, cancel=True)).applied

    async def usage(self, since: float | None) -> m.UsageReport:
        since_ms = None if since is None else _unix_ms(since, "since")
        message = convert({"id": 0, "since_ms": since_ms}, m.GetUsage)
        return await self._core.ask(_with_id(message), m.UsageReport)

    async def release_engine(
        self, until: float | None, now: bool, timeout: float | None, on_notice: OnNotice
    ) -> bool:
        until_ms = None if until is None else _unix_ms(until, "until")
        message = convert({"id": 0, "until_ms": until_ms, "now": now}, m.ReleaseEngine)
        limit_s = MAX_S if timeout is None else timeout
        ack = await self._core.ask(_with_id(message), m.Ack, limit_s, cancel=True)
        return _applied(ack, on_notice)

    async def take_back(self, on_notice: OnNotice) -> bool:
        ack = await self._core.ask(lambda i: m.ReleaseEngine(id=i, end=True), m.Ack)
        return _applied(ack, on_notice)

    async def cancel_any(self, rid: str) -> bool:
        message = convert({"id": 0, "rid": rid}, m.CancelAny)
        return (await self._core.ask(_with_id(message), m.Ack)).applied


def _applied(ack: m.Ack, on_notice: OnNotice) -> bool:
    if on_notice is not None:
        for notice in ack.notices:
            on_notice(notice)
    return ack.applied


def _unix_ms(moment: float, name: str) -> int:
    if not 0 <= moment < 2**43:
        raise invalid(f"{name} is a Unix time in seconds, got {moment}", name)
    return round(moment * 1000)


def _with_id(message: m.ClientMessage) -> Callable[[int], m.ClientMessage]:
    return lambda call_id: structs.replace(message, id=call_id)
