"""What a chunk of a streamed answer costs the daemon: CPU of the openai adapter, per chunk.

    python -m tests.perf.http_chunks [STREAMS]

The server that sends them is a process of its own; the time is this process's CPU time.
"""

import asyncio
import multiprocessing
import resource
import sys
from multiprocessing.connection import Connection

import uvloop
from tests.contract.standin import StandIn

from onegate.config import EngineConfig, OpenAiConfig
from onegate.engines.base import EngineChunk, EngineRequest, PoolState
from onegate.engines.registry import build_engine

_TOKENS = 400
_TOKEN_S = 0.02


def serve(pipe: Connection, streams: int) -> None:
    """The server, until it is told to end."""

    async def run() -> None:
        server = StandIn(flavour="none", width=streams, token_s=_TOKEN_S)
        await server.start()
        pipe.send(server.url)
        await asyncio.to_thread(pipe.recv)
        await server.close()

    asyncio.run(run())


def crashed(name: str, error: BaseException) -> None:
    raise SystemExit(f"{name} crashed: {error!r}")


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(url: str, streams: int) -> tuple[float, int]:
    """CPU seconds, and chunks."""
    config = EngineConfig(kind="openai", openai=OpenAiConfig(base_url=url, max_seqs=streams))
    engine = build_engine(config, log=sys.stderr.write, crashed=crashed)
    await engine.start(lambda event: None)
    async with asyncio.timeout(30):
        while not any(  # noqa: ASYNC110 - the sink of a measurement is nobody
            pool.state is PoolState.READY for pool in engine.pools()
        ):
            await asyncio.sleep(0.05)

    async def one(id: int) -> int:
        request = EngineRequest(id=id, model="stand-in", max_tokens=_TOKENS, prompt="x")
        return sum([isinstance(item, EngineChunk) async for item in engine.generate(request)])

    began_s = cpu_s()
    counts = await asyncio.gather(*(one(id) for id in range(streams)))
    took_s = cpu_s() - began_s
    await engine.aclose(5.0)
    return took_s, sum(counts)


def chunk_us(streams: int) -> tuple[float, int]:
    """Microseconds of CPU for a chunk, and how many came."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(there, streams))
    process.start()
    took_s, chunks = uvloop.run(measure(here.recv(), streams))
    here.send("end")
    process.join()
    return took_s / chunks * 1e6, chunks


def main() -> None:
    streams = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    cost_us, chunks = chunk_us(streams)
    sys.stdout.write(f"{streams} streams, {chunks} chunks: {cost_us:.1f} us of CPU per chunk\n")


if __name__ == "__main__":
    main()
