"""`onegate demo`: a flood and a question on a daemon that exists for that only."""

import asyncio
import os
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from onegate.cli.endings import Endings
from onegate.cli.exits import Exit, UsageError
from onegate.cli.flood import BATCH, INTERACTIVE, Figures, Flood, Job, ask, figures, prompts
from onegate.cli.private_daemon import DaemonEnded, PrivateDaemon
from onegate.cli.terminal import Progress, complain, console, say, visible
from onegate.cli.wait_ready import POLL_S, look
from onegate.client.aio import AsyncClient
from onegate.clock import monotonic_ns
from onegate.config import ConfigError, check
from onegate.config.engine_tables import EngineChoice, engine_text
from onegate.protocol.status import Status

if TYPE_CHECKING:
    from rich.table import Table

QUESTION = "Why is the sky blue? Answer in two sentences."
ANSWER_TOK = 80
JOB_TOK = 64
# Loading the embedded model takes seconds; a machine that needs minutes should say so instead.
READY_TIMEOUT_S = 120.0
# What the engine calls itself unable to serve for this long is not mended by waiting.
DOWN_TIMEOUT_S = 15.0
SETTLE_TIMEOUT_S = 5.0


def demo(
    *,
    engine: Annotated[
        Literal["openvino", "scripted", "ollama", "openai"],
        Parameter(
            help="What generates: the embedded model, a stand-in without a model, or a server that "
            "runs on this machine."
        ),
    ] = "openvino",
    model: Annotated[
        str | None, Parameter(help="A model of that server, or the embedded engine's.")
    ] = None,
    base_url: Annotated[str | None, Parameter(help="Where that server is.")] = None,
    jobs: Annotated[int, Parameter(help="How many batch jobs are sent at once.")] = 60,
) -> int:
    """Start a private daemon, flood it with batch jobs, and ask it a question meanwhile.

    The daemon listens in a directory that only you can enter. At the end, or when you press
    Ctrl-C, it is stopped and the directory removed.

    **Examples**

    ```
    onegate demo
    onegate demo --engine ollama --model llama3.2
    ```
    """
    if jobs < 1:
        raise UsageError("--jobs takes a number from 1")
    if base_url is not None and engine not in ("ollama", "openai"):
        raise UsageError(f"--base-url is a server's, and engine {engine} is none")
    choice = EngineChoice(engine, () if model is None else (model,), base_url)
    text = configuration(choice, os.getuid())
    try:
        check(text)
    except ConfigError as error:
        raise UsageError(str(error.errors[0])) from error
    try:
        # The event loop comes first: a signal that arrives while one is made leaves half of it.
        with (
            Endings() as endings,
            asyncio.Runner() as runner,
            PrivateDaemon(text) as daemon,
        ):
            say(f"A private daemon is starting at {daemon.socket}")
            model = wait_for_model(daemon)
            say(f"Its engine is ready: {model}\n")
            table = endings.run(runner, lambda: show(daemon.socket, jobs))
            console().print(table)
    except DaemonEnded as error:
        complain(str(error))
        return Exit.UNAVAILABLE
    say("The daemon is stopped and its directory removed. To go on:\n")
    usual = choice == EngineChoice("openvino")
    if not usual:
        say(f"With this in onegate.toml:\n\n{engine_text(choice)}")
    for command, what in next_commands("" if usual else " --config onegate.toml"):
        say(f"  {command:<44} {what}")
    return Exit.DONE


def configuration(choice: EngineChoice, uid: int) -> str:
    """For a daemon that serves whoever started it, in every class."""
    return (
        f'{engine_text(choice)}\n[[grant]]\nuid = {uid}\nceiling = "{INTERACTIVE}"\nadmin = true\n'
    )


def wait_for_model(daemon: PrivateDaemon) -> str:
    """The name of the model, once it is loaded. Raises DaemonEnded, also when it takes too long."""
    progress = Progress()
    begun_ns = up_ns = monotonic_ns()
    try:
        while True:
            ready, why, down = look(daemon.socket, None)
            if ready is not None:
                return ready
            daemon.check()
            now_ns = monotonic_ns()
            if not down:
                up_ns = now_ns
            waited_s, down_s = (now_ns - begun_ns) / 1e9, (now_ns - up_ns) / 1e9
            if waited_s > READY_TIMEOUT_S or down_s > DOWN_TIMEOUT_S:
                raise DaemonEnded(f"no model after {waited_s:.0f} s: {why}")
            progress.show(why if down else f"loading the model, {waited_s:.0f} s")
            time.sleep(POLL_S)
    finally:
        progress.clear()


async def show(socket: str, n_jobs: int) -> "Table":
    """Flood, question, end of the flood; returns the table of what each class got."""
    question = Job(INTERACTIVE, 0)
    async with AsyncClient(socket, app="onegate demo") as person:
        flood = Flood(AsyncClient(socket, app="onegate demo flood", class_=BATCH))
        try:
            flood.begin(prompts(n_jobs), JOB_TOK)
            await flood.moving.wait()
            before = busy(await person.status())
            say(f"One client sent {n_jobs} batch jobs at once: {before}.")
            say(f"Another client asks: {QUESTION}\n")
            question.sent_ns = monotonic_ns()
            await ask(person, question, QUESTION, ANSWER_TOK, lambda chunk: say(chunk.text, end=""))
            if question.ttft_ms is not None:
                say(f"\n\nThe first word came after {question.ttft_ms / 1000:.2f} s.")
        finally:
            await flood.end()
        status = await settled(person)
    say("The batch client hung up, and what it still had waiting or running was cancelled.\n")
    everything = [question, *flood.jobs]
    cancelled = {cls.name: cls.cancelled for cls in status.classes}
    return table([figures(name, everything) for name in (INTERACTIVE, BATCH)], cancelled)


def busy(status: Status) -> str:
    """What the daemon does at this moment."""
    return f"{status.gate.in_flight} run, {status.gate.queued} wait"


async def settled(person: AsyncClient) -> Status:
    """The status once nothing runs any more, or the last one before waiting gets long."""
    ends_ns = monotonic_ns() + round(SETTLE_TIMEOUT_S * 1e9)
    while True:
        status = await person.status()
        if status.gate.in_flight + status.gate.queued == 0 or monotonic_ns() > ends_ns:
            return status
        await asyncio.sleep(POLL_S)


def table(rows: list[Figures], cancelled: dict[str, int]) -> "Table":
    """Refusals as the clients saw them, cancellations as the daemon counted them."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("class")
    for column in ("requests", "queue p50", "TTFT p50", "tokens/s", "refused", "cancelled"):
        made.add_column(column, justify="right")
    for row in rows:
        made.add_row(
            visible(row.class_),
            str(row.requests),
            _ms(row.queue_ms),
            _ms(row.ttft_ms),
            "-" if row.tok_per_s is None else f"{row.tok_per_s:.0f}",
            str(row.refused),
            str(cancelled.get(row.class_, "-")),
        )
    return made


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def next_commands(options: str) -> list[tuple[str, str]]:
    """What to type next, spelled as it works from here; the daemon's with these options."""
    daemon, client = (_command(name) for name in ("onegated", "onegate"))
    return [
        (f"{daemon}{options} &", "your own daemon"),
        (f"{client} wait-ready", "until its model is loaded"),
        (f'{client} ask "Why is the sky blue?"', "an answer, streamed"),
        (f"{client} status", "what runs and what waits"),
        (f"{client} --help", "everything else"),
    ]


def _command(name: str) -> str:
    if shutil.which(name):
        return name
    beside = Path(sys.executable).with_name(name)
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
