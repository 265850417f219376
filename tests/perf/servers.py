"""Somebody else's server behind the gate, and the same server bare.

Both are prepared from PyPI once, as for the tests of tests/live, and kept where these keep them.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.live import llama_server, ollama_server
from tests.live.prepared import prepared
from tests.perf.http_chunks import chunk_us
from tests.perf.rigs import Row, daemon, measure, of, together

from onegate import AsyncClient
from onegate.bench.report import Document
from onegate.bench.targets.spec import Spec
from onegate.clock import monotonic_ns
from onegate.protocol.messages import Started

# Of what waits, so much is there before the person comes.
WAITING = 10
CHUNK_STREAMS = 64
KILLS = 10

# The person comes a second after the batch, and the answers are long enough that it still waits.
SCENARIO = """
    duration_s = {window_s}
    drain_s = 300
    isolate = ["person"]
    [[class]]
    name = "batch"
    asks = "batch"
    clients = {size}
    arrivals = {{ kind = "burst", size = {size}, every_s = {window_s} }}
    prompt = {{ tok = 48 }}
    output = {{ tok = {output_tok} }}
    [[class]]
    name = "person"
    asks = "interactive"
    start_s = 1.0
    arrivals = {{ kind = "burst", size = 1, every_s = {window_s} }}
    prompt = {{ tok = 48 }}
    output = {{ tok = 8 }}
    """


def config(engine: str) -> str:
    """A daemon before that engine, to whom this program is many people with all the time there
    is: the bare server has no deadlines either."""
    grant = f'[[grant]]\nuid = {os.getuid()}\nceiling = "interactive"\nadmin = true\n'
    people = 'behaviour_live = "none"\nbehaviour_starts_per_min = "none"\n'
    people += 'ttft_timeout_ms = "none"\nttft_timeout_ms_max = "none"\n'
    return f'{engine}\n[[class]]\nname = "interactive"\n{people}{grant}'


def openai(url: str) -> str:
    return f'[engine]\nkind = "openai"\n[engine.openai]\nbase_url = "{url}"\nboundary = "local"\n'


def ollama(url: str) -> str:
    return (
        f'[engine]\nkind = "ollama"\n[engine.ollama]\nbase_url = "{url}"\nboundary = "local"\n'
        'models = [{model = "tiny"}]\n'
    )


def next_of(
    name: str,
    engine: str,
    bare: Spec,
    *,
    seats: int,
    output_tok: int,
    repeats: int,
    window_s: float,
) -> Iterator[Row]:
    """What a person waits for whom batch work is there first, on both sides."""
    size = seats + WAITING
    text = SCENARIO.format(window_s=window_s, size=size, output_tok=output_tok)
    with daemon(config(engine)) as gate:
        doc = measure(text, {"A": gate, "B": bare}, repeats, noise=False)
    service_ms = service(doc, seats)
    bar_ms = service_ms["A"] + alone(doc, "A")
    waits = of(doc.ratios, "person", "TTFT p50")
    ours, theirs = (person(doc, side) for side in "AB")
    yield Row(
        f"{name}, {seats} seats, {size} batch requests of {output_tok} tokens first: a person's "
        "wait for the first token, through the gate ÷ bare",
        f"{ours:.0f} ÷ {theirs:.0f} ms: {ours / service_ms['A']:.2f} ÷ "
        f"{theirs / service_ms['B']:.2f} service times",
        f"ratio {waits.ratio.low:.3f} to {waits.ratio.high:.3f}" if waits.ratio else "",
        f"≤ one service time and what it takes alone, {bar_ms:.0f} ms",
        ours <= bar_ms,
        doc.quiet,
    )
    took = {side: ms * size / seats / 1000 for side, ms in service_ms.items()}
    yield Row(
        f"{name}: until the last of the batch is done, through the gate ÷ bare",
        f"{took['A']:.1f} ÷ {took['B']:.1f} s",
        "",
        "",
        None,
        doc.quiet,
    )


def person(doc: Document, side: str) -> float:
    """Median of the waits for a first token, in milliseconds."""
    row = next(row for row in together(doc, side) if row.name == "person")
    assert row.ttft_ms.p50 is not None, f"nobody was answered: {row.outcomes} {row.reasons}"
    return row.ttft_ms.p50


def alone(doc: Document, side: str) -> float:
    report = next(report for report in doc.loads if report.side == side)
    row = next(row for row in report.alone if row.name == "person")
    assert row.ttft_ms.p50 is not None
    return row.ttft_ms.p50


def service(doc: Document, seats: int) -> dict[str, float]:
    """How long one batch request holds a seat: the slowest of them waited for all the others."""
    found = {}
    for side in "AB":
        row = next(row for row in together(doc, side) if row.name == "batch")
        assert row.e2e_ms.max is not None
        found[side] = row.e2e_ms.max * seats / (seats + WAITING)
    return found


def waits(repeats: int, window_s: float) -> Iterator[Row]:
    """Ollama with one seat, a llama.cpp server with four."""
    llama = prepared("llama", llama_server.prepare)
    ollama_home = prepared("ollama", ollama_server.prepare)
    with tempfile.TemporaryDirectory(prefix="onegate-perf-") as folder:
        with closing(ollama_server.OllamaServer(ollama_home, Path(folder))) as server:
            bare = Spec("ollama", server.url, model="tiny", label="bare Ollama")
            yield from next_of(
                "Ollama",
                ollama(server.url),
                bare,
                seats=1,
                output_tok=24,
                repeats=repeats,
                window_s=window_s,
            )
            yield from killed("Ollama", ollama(server.url))
    with closing(llama_server.LlamaServer(llama, parallel=4)) as server:
        bare = Spec("openai", server.url, label="bare llama-server")
        yield from next_of(
            "llama-server",
            openai(server.url + "/v1"),
            bare,
            seats=4,
            output_tok=24,
            repeats=repeats,
            window_s=window_s,
        )
    with closing(llama_server.LlamaServer(llama, parallel=1)) as server:
        yield from killed("llama-server", openai(server.url + "/v1"))


def killed(name: str, engine: str) -> Iterator[Row]:
    """A client is killed while it hears an answer, and the next one has the seat."""
    with daemon(config(engine)) as gate:
        found = [asyncio.run(next_after_a_kill(gate.where)) for _ in range(KILLS)]
    starts, tokens, alones = (sorted(times) for times in zip(*found, strict=True))
    yield Row(
        f"{name}, one seat: from the SIGKILL of a client in decode until the next has its seat",
        f"{starts[KILLS // 2]:.0f} ms ({starts[0]:.0f} to {starts[-1]:.0f}; {KILLS} times)",
        "",
        "≤ 300 ms",
        starts[KILLS // 2] <= 300.0,
        True,
    )
    yield Row(
        f"{name}: from the kill until the next one's first token; that alone",
        f"{tokens[KILLS // 2]:.0f} ms ({tokens[0]:.0f} to {tokens[-1]:.0f}); "
        f"{alones[KILLS // 2]:.0f} ms ({alones[0]:.0f} to {alones[-1]:.0f})",
        "",
        "",
        None,
        True,
    )


async def next_after_a_kill(path: str) -> tuple[float, float, float]:
    """Milliseconds until the next one has its seat, and until its first token; and how long the
    same takes alone."""
    victim = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("onegate"),
        *("ask", "A long story.", "--max-tokens", "2000", "--class", "batch", "--socket", path),
        stdout=subprocess.PIPE,
    )
    assert victim.stdout is not None
    started = asyncio.Event()

    def heard(message: object) -> None:
        if isinstance(message, Started):
            started.set()

    try:
        assert await victim.stdout.read(1), "no answer to be killed in"
        async with AsyncClient(path) as gate:
            pieces = aiter(gate.stream("Say hello.", class_="batch", max_tokens=2, progress=heard))
            first = asyncio.ensure_future(anext(pieces))  # noqa: TID251 - waits beside it
            while (await gate.status()).gate.queued != 1:  # noqa: ASYNC110 - it has no event
                await asyncio.sleep(0.01)
            killed_ns = monotonic_ns()
            victim.kill()
            await started.wait()
            seat_ms = (monotonic_ns() - killed_ns) / 1e6
            await first
            token_ms = (monotonic_ns() - killed_ns) / 1e6
            async for _ in pieces:
                pass
            asked_ns = monotonic_ns()
            async for _ in gate.stream("Say hallo.", class_="batch", max_tokens=1):
                break
            return seat_ms, token_ms, (monotonic_ns() - asked_ns) / 1e6
    finally:
        if victim.returncode is None:
            victim.kill()
        await victim.wait()


def chunks(_repeats: int, _window_s: float) -> Iterator[Row]:
    """What a chunk costs the daemon's loop."""
    cost_us, came = chunk_us(CHUNK_STREAMS)
    yield Row(
        f"CPU of the HTTP adapter for a chunk, {CHUNK_STREAMS} streams ({came} chunks came)",
        f"{cost_us:.0f} µs",
        "",
        "≤ 100 µs",
        cost_us <= 100.0,
        True,
    )
