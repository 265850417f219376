"""The routes that go through the gate: asked there in the client's name, and written down as the
dialect has it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from aiohttp import web
from msgspec import UNSET

from onegate import AsyncClient
from onegate.client.errors import OnegateError, RequestError
from onegate.client.reply import Reply
from onegate.client.request import RequestOptions
from onegate.clock import monotonic_ns
from onegate.protocol.content import Usage
from onegate.protocol.messages import ClassLimits, Embeddings, ModelInfo
from onegate.tasks import Tasks
from onegate_ollama_proxy.answer import TextWriter
from onegate_ollama_proxy.answering import Answering
from onegate_ollama_proxy.ask import (
    EmbedAsk,
    EmbedExchange,
    LoadExchange,
    Route,
    TextAsk,
    TextExchange,
)
from onegate_ollama_proxy.bodies import Bodies
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.caller import Caller
from onegate_ollama_proxy.config import Config, WaitingConfig
from onegate_ollama_proxy.fit import (
    fit_limits,
    options_of,
    served_model,
    shorter,
    shorter_texts,
)
from onegate_ollama_proxy.no import no_of
from onegate_ollama_proxy.refused import Refused
from onegate_ollama_proxy.told import Told

# A request is made smaller that often: for a bound on its answer, for the count of the engine,
# and for what was guessed from text.
MAX_TRIES = 6
# Of vectors with some thousand figures that many fit into one answer of the gate; and the others'
# turns come in between.
TEXTS_AT_ONCE = 64
JSON = "application/json; charset=utf-8"


class Inference:
    """Answers requests of the routes that dialects parse."""

    def __init__(self, config: Config, *, boundary: Boundary, bodies: Bodies, tasks: Tasks) -> None:
        self._waiting = config.waiting
        self._aliases: Mapping[str, str] = config.models
        self._boundary = boundary
        self._bodies = bodies
        self._tasks = tasks

    async def answer(
        self, request: web.BaseRequest, route: Route, caller: Caller, told: Told
    ) -> web.StreamResponse:
        """Raises BadAsk, Refused and the client library's errors while nothing has been sent."""
        async with self._bodies.of(request, caller.name) as body:
            exchange = route.parse(body)
            told.notices += exchange.ask.notices
            match exchange:
                case TextExchange():
                    return await self._text(request, exchange, caller, told)
                case EmbedExchange():
                    return await self._embed(exchange, caller, told)
                case LoadExchange():
                    return await self._load(exchange, caller, told)

    async def _find(
        self, asked: str, caller: Caller, told: Told
    ) -> tuple[AsyncClient, ModelInfo, str]:
        """Client, model and class of a request."""
        await self._boundary.check(asked)
        client = await caller.client()
        class_, notices = caller.class_for(client)
        told.class_ = class_
        told.notices += notices
        model = served_model(asked, client.welcome.models, self._aliases)
        told.model = model.model
        return client, model, class_

    async def _text(
        self, request: web.BaseRequest, exchange: TextExchange, caller: Caller, told: Told
    ) -> web.StreamResponse:
        client, model, class_ = await self._find(exchange.ask.model, caller, told)
        limits = client.welcome.limits.classes[class_]
        waiting = self._waiting(class_)
        ask = fit_limits(exchange.ask, model, class_, limits)
        told.notices += ask.notices[len(exchange.ask.notices) :]
        run = _Run(
            client=client,
            ask=ask,
            options=options_of(ask, model=model.model, class_=class_),
            truncate=waiting.truncate,
            told=told,
        )
        if (timeout_s := ttft_timeout_s(waiting, limits)) is not None:
            run.options["ttft_timeout"] = timeout_s
        writer = exchange.writer
        async with Answering(
            request,
            writer,
            stream=ask.stream,
            pad_after_s=waiting.pad_after_s,
            tasks=self._tasks,
        ) as answering:
            try:
                reply = await run.to_the_end(writer, answering)
                told.notices += [f"{one.code}: {one.detail}" for one in reply.notices]
                last = writer.end(reply) if ask.stream else writer.whole(reply)
            except (OnegateError, Refused) as error:
                no = no_of(error, class_)
                told.reason = str(no.reason)
                return await answering.fail(no)
            return await answering.end(last)

    async def _embed(
        self, exchange: EmbedExchange, caller: Caller, told: Told
    ) -> web.StreamResponse:
        began_ns = monotonic_ns()
        client, model, class_ = await self._find(exchange.ask.model, caller, told)
        ask = exchange.ask
        vectors: list[list[float]] = []
        prompt_tok = 0
        for at in range(0, len(ask.inputs), TEXTS_AT_ONCE):
            some = replace(ask, inputs=ask.inputs[at : at + TEXTS_AT_ONCE])
            part = await _embedded(client, some, model.model, class_, told)
            vectors += part.vectors
            prompt_tok += part.usage.prompt_tok
        if ask.dimensions is not None:
            vectors = [cut_vector(vector, ask.dimensions) for vector in vectors]
        usage = Usage(prompt_tok=prompt_tok, output_tok=0)
        body = exchange.writer.whole(vectors, usage, monotonic_ns() - began_ns)
        return web.Response(body=body, headers={"Content-Type": exchange.writer.document_type})

    async def _load(self, exchange: LoadExchange, caller: Caller, told: Told) -> web.StreamResponse:
        began_ns = monotonic_ns()
        client, model, _ = await self._find(exchange.ask.model, caller, told)
        if exchange.ask.unload:
            if not await client.unload(model.model):
                told.notices.append("the model is in use, or was not loaded: it stays as it is")
        else:
            await client.load(model.model)
        body = exchange.document(monotonic_ns() - began_ns)
        return web.Response(body=body, headers={"Content-Type": JSON})


@dataclass(slots=True)
class _Run:
    """One request for text at the gate, made smaller as often as it helps."""

    client: AsyncClient
    ask: TextAsk
    options: RequestOptions
    truncate: bool
    told: Told

    async def to_the_end(self, writer: TextWriter, answering: Answering) -> Reply:
        """The whole answer, of which a stream has been written but for its end."""
        for left in reversed(range(MAX_TRIES)):
            try:
                return await self._once(writer, answering)
            except RequestError as error:
                smaller = None if answering.spoken else self._smaller(error)
                if smaller is None or not left:
                    raise
                self.told.notices.append(smaller.notices[-1])
                self.ask = smaller
        raise AssertionError("the last try returns or raises")

    async def _once(self, writer: TextWriter, answering: Answering) -> Reply:
        if not self.ask.stream:
            return await self.client.generate(self.ask.prompt, **self.options)
        async with self.client.stream(self.ask.prompt, **self.options) as stream:
            async for chunk in stream:
                await answering.say(writer.chunk(chunk))
        assert stream.reply is not None
        return stream.reply

    def _smaller(self, error: RequestError) -> TextAsk | None:
        smaller = shorter(self.ask, error, truncate=self.truncate)
        if smaller is not None:
            if smaller.messages is not None:
                self.options["messages"] = list(smaller.messages)
            if smaller.params.max_tokens is not UNSET:
                self.options["max_tokens"] = smaller.params.max_tokens
        return smaller


async def _embedded(
    client: AsyncClient, ask: EmbedAsk, model: str, class_: str, told: Told
) -> Embeddings:
    for left in reversed(range(MAX_TRIES)):
        try:
            return await client.embed(ask.inputs, model=model, class_=class_)
        except RequestError as error:
            smaller = shorter_texts(ask, error)
            if smaller is None or not left:
                raise
            told.notices.append(smaller.notices[-1])
            ask = smaller
    raise AssertionError("the last try returns or raises")


def ttft_timeout_s(waiting: WaitingConfig, limits: ClassLimits) -> float | None:
    """Seconds for the first token of a request whose client would rather be refused than wait;
    None where the class's own bound holds. Never more than the class allows."""
    wanted_s, most_ms = waiting.refuse_after_s, limits.ttft_timeout_ms_max
    if wanted_s is None:
        return None
    return wanted_s if most_ms is None else min(wanted_s, most_ms / 1000)


def cut_vector(vector: list[float], dimensions: int) -> list[float]:
    """The first figures of a vector, scaled to length 1, as Ollama does it."""
    if dimensions >= len(vector):
        return vector
    kept = vector[:dimensions]
    length = math.sqrt(sum(figure * figure for figure in kept))
    return [figure / length for figure in kept] if length else kept
