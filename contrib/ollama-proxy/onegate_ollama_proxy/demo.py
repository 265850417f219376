"""A question behind ten jobs, without classes and with them: what `demo.sh` runs.

Unmodified requests of Ollama's API; the jobs say with a header that they are no person. Without
classes means: straight at Ollama where there is one, else through the same gate with everybody in
one class and one seat, which is how an Ollama serves them.
"""

import argparse
import asyncio
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from onegate.clock import monotonic_ns
from onegate.tasks import Tasks
from onegate_ollama_proxy.config import OLLAMA_PORT

EMBEDDED = "smollm2-135m-instruct"
BATCH = {"X-Onegate-Class": "batch"}
PERSON: dict[str, str] = {}
QUESTION = "Why is the sky blue? Answer in two sentences."
# All of it is to be over within a minute, on two cores that have something else to do, too.
JOB_TOK = 32
ANSWER_TOK = 16
_READY_S = 120.0
_STOP_S = 30.0
# All of the jobs are inside by then; none of them has ended.
_SETTLE_S = 0.5
_NS_PER_S = 1_000_000_000
_NOT_READY = (404, 500, 502, 503, 504)


class DemoEnded(Exception):
    """It cannot be shown; the text says why."""


def gate_config(ollama: str | None, model: str) -> str:
    """The private gate's configuration: one seat, and no bound on what one program does, and for
    how long it waits."""
    engine = f'[engine]\nkind = "openvino"\nmodel = "{model}"\nmax_seqs = 1\n'
    if ollama is not None:
        engine = (
            f'[engine]\nkind = "ollama"\n[engine.ollama]\nbase_url = "{ollama}"\n'
            f'[[engine.ollama.models]]\nmodel = "{model}"\nmax_seqs = 1\n'
        )
    free = "".join(
        f'{key} = "none"\n'
        for key in (
            *("behaviour_live", "behaviour_starts_per_min"),
            *("ttft_timeout_ms", "ttft_timeout_ms_max"),
        )
    )
    classes = "".join(
        f'[[class]]\nname = "{name}"\n{free}' for name in ("interactive", "loop", "batch")
    )
    who = f'[[grant]]\nuid = {os.getuid()}\ndelegate = true\nceiling = "interactive"\n'
    return engine + classes + who


@dataclass(frozen=True, slots=True)
class Stage:
    """A gate and a proxy that run. `url` is where an Ollama would be."""

    url: str
    running: list["subprocess.Popen[bytes]"]
    logs: list[Path]

    def check(self) -> None:
        """Raises DemoEnded where one of them does not run any more."""
        for process, log in zip(self.running, self.logs, strict=True):
            if process.poll() is not None:
                said = log.read_text(encoding="utf-8", errors="replace").strip()
                raise DemoEnded(f"{log.stem} has ended: {said[-500:]}")


@contextmanager
def stage(gate: str, ollama: str | None) -> Iterator[Stage]:
    """A private gate with the configuration `gate`, and a private proxy."""
    with tempfile.TemporaryDirectory(prefix="onegate-") as folder:
        place = Path(folder)
        (place / "onegate.toml").write_text(gate, encoding="utf-8")
        port = free_port()
        upstream = "" if ollama is None else f'upstream = "{ollama}"\n'
        listener = f'[[listener]]\naddress = "127.0.0.1:{port}"\n'
        (place / "proxy.toml").write_text(upstream + listener, encoding="utf-8")
        daemon = ["onegate.server.main", "--config", f"{folder}/onegate.toml"]
        proxy = ["onegate_ollama_proxy", "--config", f"{folder}/proxy.toml"]
        commands = [[*daemon, "--socket", f"{folder}/s"], [*proxy, "--gate", f"{folder}/s"]]
        running: list[subprocess.Popen[bytes]] = []
        logs = [place / f"{command[0]}.log" for command in commands]
        try:
            for command, path in zip(commands, logs, strict=True):
                with path.open("wb") as log:
                    running.append(
                        # In this process's group: Ctrl-C ends them, however often it is pressed.
                        subprocess.Popen(
                            [sys.executable, "-m", *command],
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                        )
                    )
            yield Stage(f"http://127.0.0.1:{port}", running, logs)
        finally:
            for process in reversed(running):
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(_STOP_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def free_port() -> int:
    """A port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Asker:
    """Asks one server, as any client of Ollama's would."""

    def __init__(self, session: aiohttp.ClientSession, url: str, model: str) -> None:
        self._session = session
        self._url = url
        self._model = model

    async def ready(self, check: Callable[[], None]) -> None:
        """Until it has answered once. `check` raises where that can't be any more. Raises
        DemoEnded."""
        ends_ns = monotonic_ns() + round(_READY_S * _NS_PER_S)
        said = "nobody answers"
        while monotonic_ns() < ends_ns:
            check()
            try:
                status, said = await self._once()
            except aiohttp.ClientError as error:
                status, said = 503, str(error)
            if status == 200:
                return
            if status not in _NOT_READY:
                break
            await asyncio.sleep(0.2)
        raise DemoEnded(f"{self._url} does not answer for {self._model}: {said[:300]}")

    async def _once(self) -> tuple[int, str]:
        body = self._body("Hi", 1, stream=False)
        async with self._session.post(f"{self._url}/api/chat", json=body) as answer:
            return answer.status, await answer.text()

    async def first_word_s(self) -> float:
        """Seconds until the first word of an answer. Raises DemoEnded where there is none."""
        body = self._body(QUESTION, ANSWER_TOK, stream=True)
        began_ns, word_ns = monotonic_ns(), None
        async with self._session.post(f"{self._url}/api/chat", json=body) as answer:
            if answer.status != 200:
                raise DemoEnded(f"the question was refused: {(await answer.text())[:300]}")
            async for line in answer.content:
                if word_ns is None and (msgspec.json.decode(line).get("message") or {})["content"]:
                    word_ns = monotonic_ns()
        if word_ns is None:
            raise DemoEnded("the question was answered without a word")
        return (word_ns - began_ns) / _NS_PER_S

    async def job(self, number: int, headers: dict[str, str]) -> None:
        """One of the jobs, from its beginning to its end."""
        body = self._body(f"Summarise document {number}.", JOB_TOK, stream=False)
        async with self._session.post(
            f"{self._url}/api/chat", json=body, headers=headers
        ) as answer:
            await answer.read()

    async def behind_s(self, jobs: int, headers: dict[str, str]) -> float:
        """Seconds until the first word while so many jobs are under way, which then hang up."""
        tasks = Tasks(lambda name, error: None)  # a job that is refused is one less to wait for
        try:
            for number in range(jobs):
                tasks.spawn(self.job(number, headers), name=f"job {number}")
            await asyncio.sleep(_SETTLE_S)
            return await self.first_word_s()
        finally:
            await tasks.aclose()

    def _body(self, text: str, max_tok: int, *, stream: bool) -> dict[str, Any]:
        options = {"num_predict": max_tok, "temperature": 0}
        turns = [{"role": "user", "content": text}]
        return {"model": self._model, "messages": turns, "stream": stream, "options": options}


async def compare(
    sides: dict[str, tuple[str, dict[str, str]]],
    model: str,
    jobs: int,
    check: Callable[[], None],
) -> None:
    """Ask each side alone and behind the jobs. A side is its URL and the jobs' headers."""
    say(f"{'':24}{'alone':>12}{f'behind {jobs} jobs':>18}{'':>4}")
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        for name, (url, batch) in sides.items():
            asker = Asker(session, url, model)
            await asker.ready(check)
            alone_s = statistics.median([await asker.first_word_s() for _ in range(3)])
            behind_s = await asker.behind_s(jobs, batch)
            ratio = f"{behind_s / alone_s:.1f} times as long"
            say(f"{name:24}{alone_s * 1000:9.0f} ms{behind_s * 1000:15.0f} ms    {ratio}")
            await asker.ready(check)  # what the jobs left behind is over


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main() -> None:
    """Show it; the exit code follows sysexits."""
    parser = argparse.ArgumentParser(prog="demo.sh", description=__doc__)
    parser.add_argument("--ollama", metavar="URL", help=f"such as http://127.0.0.1:{OLLAMA_PORT}")
    parser.add_argument("--model", default=EMBEDDED, help="which of its models")
    parser.add_argument("--jobs", type=int, default=10)
    given = parser.parse_args()
    say(f"Time to the first word of an answer, {given.model}:")
    try:
        with stage(gate_config(given.ollama, given.model), given.ollama) as running:
            sides = {
                "without classes": (given.ollama or running.url, PERSON),
                "through the gate": (running.url, BATCH),
            }
            asyncio.run(compare(sides, given.model, given.jobs, running.check))
    except DemoEnded as error:
        sys.stderr.write(f"demo.sh: {error}\n")
        sys.exit(os.EX_UNAVAILABLE)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
