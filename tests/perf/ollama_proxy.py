"""Through Ollama's API, beside a bare Ollama: python -m tests.perf.ollama_proxy [--quick] [--print]

Puts a section into RESULTS.md. Takes some minutes, and a real Ollama: the one that the tests
prepare, or one of your own (--ollama URL --model NAME) that runs one request at a time and that
nobody else uses meanwhile.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from tests.live.ollama_server import OllamaServer, prepare
from tests.live.prepared import prepared
from tests.perf.results import keep, section
from tests.perf.rigs import Row

from onegate.clock import monotonic_ns
from onegate.config import OllamaModel
from onegate.tasks import Tasks
from onegate_ollama_proxy.demo import BATCH, PERSON, Asker, free_port, gate_config, stage

JOBS = 10
_STREAM_TOK = 100
_MODEL = "tiny"
_CONTEXT_TOK = OllamaModel(model=_MODEL).context_tok


class Measured(Asker):
    """Asks one server, and takes the time. With the gate's own context in every request: two
    clients with different ones make Ollama load the model anew for each of them."""

    def _body(self, text: str, max_tok: int, *, stream: bool) -> dict[str, Any]:
        body = super()._body(text, max_tok, stream=stream)
        body["options"]["num_ctx"] = _CONTEXT_TOK
        return body

    async def short_ms(self) -> float:
        """One token, in one piece."""
        began_ns = monotonic_ns()
        status, said = await self._once()
        assert status == 200, said
        return (monotonic_ns() - began_ns) / 1e6

    async def tok_per_s(self) -> float:
        """Of a long stream, after its first word."""
        body = self._body("Tell me a long story.", _STREAM_TOK, stream=True)
        # Greedy, a small model comes to repeat a blank, and Ollama ends that without a word.
        body["options"] |= {"temperature": 1, "top_k": 0, "seed": 2}
        first_ns, n_lines = 0, 0
        async with self._session.post(f"{self._url}/api/chat", json=body) as answer:
            assert answer.status == 200, await answer.text()
            async for line in answer.content:
                said = msgspec.json.decode(line)
                assert "error" not in said, said
                if said["done"]:
                    break
                n_lines += 1
                first_ns = first_ns or monotonic_ns()
        return (n_lines - 1) / ((monotonic_ns() - first_ns) / 1e9)

    async def after_leaving_s(self, headers: dict[str, str]) -> float:
        """A person's first word after somebody, and ten who waited behind him, have hung up."""
        tasks = Tasks(lambda name, error: None)
        body = self._body("Tell me a long story.", 2000, stream=True)
        async with self._session.post(
            f"{self._url}/api/chat", json=body, headers=headers
        ) as answer:
            await answer.content.readline()
            for number in range(JOBS):
                tasks.spawn(self.job(number, headers), name=f"job {number}")
            await asyncio.sleep(1.0)
        await tasks.aclose()
        await asyncio.sleep(1.0)
        return await self.first_word_s()


@contextmanager
def relay(url: str, port: int) -> Iterator[str]:
    """The bare relay, as a process."""
    process = subprocess.Popen([sys.executable, "-m", "tests.perf.bare_relay", str(port), url])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@asynccontextmanager
async def asking(url: str, model: str) -> AsyncIterator[Measured]:
    """One client of one server; every request has a connection of its own, as most clients do."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        asker = Measured(session, url, model)
        await asker.ready(lambda: None)
        yield asker


def middle(values: list[float], digits: int = 2) -> str:
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


async def in_turn(times: int, *each: Callable[[], Awaitable[float]]) -> list[list[float]]:
    """So many figures of each, taken in turn."""
    found: list[list[float]] = [[] for _ in each]
    for _ in range(times):
        for values, take in zip(found, each, strict=True):
            values.append(await take())
    return found


class Rows(list[Row]):
    """Said as they come: a later one may fail."""

    def append(self, row: Row) -> None:
        sys.stderr.write(f"{row.figure}: {row.measured} {row.noise}\n")
        super().append(row)


async def figures(ollama: str, bare: str, gate: str, model: str, repeats: int) -> list[Row]:
    """All of them; `bare` is the bare relay before the same Ollama."""
    rows = Rows()
    async with AsyncExitStack() as stack:
        direct, relayed, gated = [
            await stack.enter_async_context(asking(url, model)) for url in (ollama, bare, gate)
        ]
        for name, asker, jobs, bar in (
            ("bare Ollama", direct, PERSON, None),
            ("through proxy and gate", gated, BATCH, 3.0),
        ):
            alone, behind = await in_turn(
                repeats,
                lambda asker=asker: asker.first_word_s(),
                lambda asker=asker, jobs=jobs: asker.behind_s(JOBS, jobs),
            )
            ratio = statistics.median(behind) / statistics.median(alone)
            rows.append(
                Row(
                    f"a chat's TTFT behind {JOBS} batch requests ÷ alone: {name}",
                    f"{ratio:.1f}: {middle(behind)} s, alone {middle(alone, 3)} s",
                    "",
                    "" if bar is None else f"≤ {bar:g}",
                    None if bar is None else ratio <= bar,
                    True,
                )
            )
        for name, asker, jobs in (("bare", direct, PERSON), ("gate", gated, BATCH)):
            left, alone = await in_turn(
                repeats,
                lambda asker=asker, jobs=jobs: asker.after_leaving_s(jobs),
                lambda asker=asker: asker.first_word_s(),
            )
            ratio = statistics.median(left) / statistics.median(alone)
            rows.append(
                Row(
                    f"a chat's TTFT one second after one who was answered and {JOBS} who waited "
                    f"have left ÷ alone: {name}",
                    f"{ratio:.2f}: {middle(left, 3)} s",
                    "",
                    "",
                    None,
                    True,
                )
            )
        times = 40 * repeats
        one, other, through = await in_turn(
            times, relayed.short_ms, relayed.short_ms, gated.short_ms
        )
        more_ms = statistics.median(through) - statistics.median(one)
        rows.append(
            Row(
                f"one request of one token: proxy and gate less a bare relay, p50 of {times}",
                f"{more_ms:+.1f} ms, of {statistics.median(one):.1f} ms",
                f"{statistics.median(other) - statistics.median(one):+.1f} ms",
                "aim ≤ 10 ms",
                more_ms <= 10.0,
                True,
            )
        )
        plain, again, streamed = await in_turn(
            repeats, direct.tok_per_s, direct.tok_per_s, gated.tok_per_s
        )
        ratio = statistics.median(streamed) / statistics.median(plain)
        rows.append(
            Row(
                f"a stream of {_STREAM_TOK} tokens: tokens/s through proxy and gate ÷ bare Ollama",
                f"{ratio:.3f}: {middle(streamed, 1)}, bare {middle(plain, 1)}",
                f"{statistics.median(again) / statistics.median(plain):.3f}",
                "≥ 0.95",
                ratio >= 0.95,
                True,
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ollama", metavar="URL", help="one of your own")
    parser.add_argument("--model", default=_MODEL)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--repeats", type=int, help="how many, instead")
    parser.add_argument("--print", action="store_true", help="do not write the file")
    given = parser.parse_args()
    repeats = given.repeats or (2 if given.quick else 5)
    with tempfile.TemporaryDirectory(prefix="onegate-perf-") as folder:
        server = None
        if not given.ollama:
            server = OllamaServer(prepared("ollama", prepare), Path(folder))
        url = given.ollama or server.url
        try:
            with (
                stage(gate_config(url, given.model), url) as gate,
                relay(url, free_port()) as bare,
            ):
                rows = asyncio.run(figures(url, bare, gate.url, given.model, repeats))
        finally:
            if server is not None:
                server.close()
    # Ollama itself takes every core; more than as much again is somebody else.
    quiet = os.getloadavg()[1] <= 2 * (os.cpu_count() or 1)
    rows = [row._replace(believed=quiet) for row in rows]
    text = section(rows, f"{repeats} repeats, real Ollama, model {given.model}")
    if given.print:
        sys.stdout.write(text)
    else:
        keep("Through Ollama's API", text)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
