"""A server that is none: a dialect and a link that do as a test says."""

import asyncio
from contextlib import asynccontextmanager

from onegate.engines.base import (
    Accepted,
    EmbedResult,
    EngineBroke,
    EngineCapacity,
    EngineChunk,
    EngineUnavailable,
    Finished,
    PoolInfo,
    PoolState,
    Progress,
    Reservation,
)
from onegate.engines.http.dialect import Call, Overlong, Watched
from onegate.engines.http.link import NobodyThere
from onegate.engines.http.settings import HttpSettings
from onegate.protocol.content import FinishReason, Usage

SETTINGS = HttpSettings(
    first_s=60.0,
    idle_s=60.0,
    confirm_s=60.0,
    watch_s=60.0,
    backoff_first_ms=1,
    backoff_max_ms=1,
    backoff_reset_s=60.0,
)


def pool_of(model="m", max_seqs=2, state=PoolState.READY, **given) -> PoolInfo:
    capacity = EngineCapacity(max_seqs=max_seqs, max_context_tok=100, reservation=Reservation.GROW)
    return PoolInfo(model=model, state=state, capacity=capacity, **given)


class FakeLink:
    """Gives each request the lines that the test puts into `lines`; None ends it, an error is
    raised."""

    def __init__(self):
        self.lines = asyncio.Queue()
        self.refusal = None
        self.refusals = []
        self.open_now = 0
        self.opened = 0

    @asynccontextmanager
    async def open(self, method, path, body, headers):
        if self.refusal is not None:
            raise self.refusal
        if self.refusals:
            raise self.refusals.pop(0)
        self.open_now += 1
        self.opened += 1
        try:
            yield self
        finally:
            self.open_now -= 1

    async def chunks(self):
        while (line := await self.lines.get()) is not None:
            if isinstance(line, Exception):
                raise line
            yield line + b"\n"

    async def aclose(self):
        """Nothing is held."""


class FakeDecoder:
    """`a` accepts, `f` finishes, `!` raises what the test wants, `%5` says that five tokens of the
    prompt are read; anything else is one token."""

    def __init__(self, dialect):
        self.dialect = dialect

    def line(self, line):
        if line == b"a":
            yield Accepted()
        elif line == b"f":
            usage = Usage(prompt_tok=1, output_tok=1)
            yield Finished(finish_reason=FinishReason.STOP, usage=usage)
        elif line.startswith(b"%"):
            yield Progress(prefilled_tok=int(line[1:]))
        elif line == b"!":
            raise self.dialect.decoder_error
        else:
            yield EngineChunk(n_tok=1, text=line.decode())

    def end(self):
        raise EngineBroke("no end")
        yield


class FakeDialect:
    name = "fake"
    confirm_first_s = 0.0
    confirm_every_s = 0.0
    frees_in_decode = False

    def __init__(self, *pools):
        self.pools = list(pools) or [pool_of()]
        self.there = True
        self.gone = True
        self.probes = 0
        self.decoder_error = None
        self.watched = Watched()
        self.confirmed = []
        self.called = []
        self.embeds = self.most_embeds = 0
        self.embed_tok = 1
        self.embed_go = asyncio.Event()

    async def probe(self, link):
        self.probes += 1
        if not self.there:
            raise NobodyThere("nobody is there")
        return self.pools

    async def watch(self, link):
        if not self.there:
            raise NobodyThere("nobody is there")
        return self.watched

    def call(self, request, pool):
        self.called.append(request)
        return Call("/x", b"{}")

    def decoder(self, request, pool):
        return FakeDecoder(self)

    def refusal(self, status, body, retry_after_ms):
        if status == 400:
            return Overlong(need_tok=11, limit_tok=10, prompt_tok=int(body))
        return EngineUnavailable("busy", retry_after_ms=retry_after_ms)

    async def confirm(self, link, leaving):
        self.confirmed.append(leaving)
        return self.gone

    async def embed(self, link, request):
        self.embeds += 1
        self.most_embeds = max(self.most_embeds, self.embeds)
        await self.embed_go.wait()
        self.embeds -= 1
        return EmbedResult(vectors=[[1.0]], usage=Usage(prompt_tok=self.embed_tok, output_tok=0))

    async def load(self, link, model):
        raise EngineBroke("it does not load")

    async def unload(self, link, model):
        """Done."""


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
