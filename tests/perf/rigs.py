"""Daemons and hosts that are measured, and what is asked of their figures.

All of them are the caller's own and gone at its end.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from onegate import Client, OnegateError
from onegate.bench.compare import Ratio
from onegate.bench.conduct import Conductor, Settings
from onegate.bench.figures import ClassFigures
from onegate.bench.read import check_scenario
from onegate.bench.report import Document, document
from onegate.bench.scenario import Scenario
from onegate.bench.stats import Spread
from onegate.bench.targets.spec import Spec
from onegate.clock import monotonic_ns

READY_S = 60.0
# Both loops are started the same way, so that nothing else differs.
LOOPS = {
    "uvloop": "from onegate.server.main import main; main()",
    "asyncio": (
        "import asyncio, uvloop; uvloop.run = asyncio.run; "
        "from onegate.server.main import main; main()"
    ),
}


class Row(NamedTuple):
    """One line of the table. `believed`: the machine was quiet."""

    figure: str
    measured: str
    noise: str
    bar: str
    met: bool | None
    believed: bool


def engine(**pool: float) -> str:
    """A configuration with the scripted engine, whose keys are `pool`'s."""
    keys = {
        "kv_tok": 1_000_000,
        "context_tok": 8192,
        "max_step_tok": 8192,
        "b_ms_per_prefill_tok": 0.0,
        "c_ms_per_seq": 0.0,
    } | pool
    lines = "\n".join(f"{key} = {value}" for key, value in keys.items())
    grant = f'[[grant]]\nuid = {os.getuid()}\nceiling = "interactive"\nadmin = true\n'
    gate = "[gate]\nmax_in_flight = 128\nsessions_per_uid = 2000\nsessions_total = 2000\n"
    # Nothing but the engine's seats may limit: one caller takes the whole class, and stays in it.
    cls = '[[class]]\nname = "interactive"\nper_principal_share = 1.0\nmax_queued_tok = 1000000\n'
    cls += 'behaviour_live = "none"\nbehaviour_starts_per_min = "none"\n'
    return f'[engine]\nkind = "scripted"\n[[engine.scripted.pools]]\n{lines}\n{gate}{cls}{grant}'


@contextmanager
def daemon(config: str, loop: str = "uvloop") -> Iterator[Spec]:
    """A daemon on this loop, with its model loaded."""
    with tempfile.TemporaryDirectory(prefix="onegate-perf-") as folder:
        file, path = Path(folder) / "onegate.toml", f"{folder}/s"
        file.write_text(config, encoding="utf-8")
        with (Path(folder) / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", LOOPS[loop], "--config", file, "--socket", path],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_ready(path, process)
            yield Spec("gate", path, label=f"gate on {loop}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(READY_S)


def wait_ready(path: str, process: "subprocess.Popen[bytes]") -> None:
    """Until a model is loaded."""
    ends_ns = monotonic_ns() + round(READY_S * 1e9)
    while monotonic_ns() < ends_ns and process.poll() is None:
        try:
            with Client(path) as gate:
                if any(pool.state == "ready" for pool in gate.status().pools):
                    return
        except OnegateError:
            # It does not listen yet.
            pass
        subprocess.run(["sleep", "0.1"], check=True)
    raise SystemExit(f"the daemon did not come up: {Path(path).with_name('log').read_text()}")


@contextmanager
def host(config: str) -> Iterator[Spec]:
    """A bare host of the same engine."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(config)
        file.flush()
        yield Spec("host", file.name, label="bare host")


def measure(text: str, sides: dict[str, Spec], repeats: int, *, noise: bool = True) -> Document:
    """Run a scenario."""
    return asyncio.run(conduct(check_scenario(text), sides, repeats, noise=noise))


async def conduct(
    scenario: Scenario, sides: dict[str, Spec], repeats: int, *, noise: bool
) -> Document:
    settings = Settings(repeats=repeats, noise=noise)
    async with Conductor(scenario, sides, settings, lambda now: None) as running:
        return document(await running.run())


def of(found: list[Ratio], cls: str, measure: str) -> Ratio:
    return next(row for row in found if (row.cls, row.measure) == (cls, measure))


def together(doc: Document, side: str) -> list[ClassFigures]:
    return next(report.together for report in doc.loads if report.side == side)


def spread(value: Spread | None) -> str:
    if value is None:
        return ""
    return f"{value.median:.3f} ({value.low:.3f} to {value.high:.3f})"
