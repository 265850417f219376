"""A generator: a process of its own that drives one target, and is told what to send when.

Standard input and output carry the frames of `wire`; what a target writes goes to standard error.
"""

import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Any

import msgspec

from onegate.bench.drive import Driver
from onegate.bench.prompts import PromptTooShort, learn, prompt
from onegate.bench.scenario import Scenario
from onegate.bench.schedule import Arrival
from onegate.bench.targets.base import Target, TargetError
from onegate.bench.targets.spec import build
from onegate.bench.wire import (
    MAX_FRAME_BYTES,
    Effort,
    FromGenerator,
    Go,
    Going,
    Open,
    Opened,
    PartDone,
    Prepare,
    Prepared,
    Quit,
    ToGenerator,
    Trouble,
    packed,
    to_generator,
)
from onegate.clock import monotonic_ns
from onegate.protocol.framing import HEADER_BYTES
from onegate.tasks import Tasks

_TELL_S = 0.5
_LAG_PROBE_S = 0.02


class Generator:
    """Carries out the conductor's messages one after the other. `send` writes an answer."""

    def __init__(self, writer: "Out") -> None:
        self._out = writer
        self._target: Target | None = None
        self._scenario: Scenario | None = None
        self._arrivals: list[Arrival] = []
        self._texts: list[str] = []
        self._crash: BaseException | None = None
        self._going: asyncio.Task[Any] | None = None
        self._lag_ns = 0

    async def take(self, message: ToGenerator) -> FromGenerator:
        """Carry out one message; returns its answer. Raises TargetError, PromptTooShort."""
        match message:
            case Open():
                return await self._open(message)
            case Prepare():
                return self._prepare(message)
            case Go():
                return await self._go(message)
            case Quit():
                raise AssertionError("leaving is the loop's")

    async def _open(self, message: Open) -> Opened:
        self._scenario = msgspec.convert(message.scenario, Scenario)
        self._target = build(message.spec, ready_s=message.ready_s, log=_log)
        facts = await self._target.open()
        return Opened(facts, await learn(self._target.count))

    def _prepare(self, message: Prepare) -> Prepared:
        assert self._scenario is not None
        self._arrivals = message.arrivals
        self._texts = texts(self._scenario, message)
        return Prepared()

    async def _go(self, message: Go) -> PartDone:
        self._going = asyncio.current_task()
        try:
            return await self._run(message)
        except asyncio.CancelledError:
            if self._crash is None:
                raise
            raise self._crash from None

    async def _run(self, message: Go) -> PartDone:
        assert self._target is not None
        assert self._scenario is not None
        driver = Driver(self._target, self._scenario.classes, on_crash=self._crashed)
        tasks = Tasks(self._crashed)
        tasks.spawn(self._tell(driver), name="progress")
        # The budget is for the run, not for the wait before it.
        first_ns = min([a.at_ns for a in self._arrivals], default=0)
        await asyncio.sleep((message.start_ns + first_ns - monotonic_ns()) / 1e9 - _LAG_PROBE_S)
        self._lag_ns = 0
        tasks.spawn(self._probe_lag(), name="lag")
        cpu_s, began_ns = time.process_time(), monotonic_ns()
        records = await driver.run(
            self._arrivals,
            self._texts,
            start_ns=message.start_ns,
            window_ns=message.window_ns,
            end_ns=message.end_ns,
        )
        effort = Effort(
            cpu_s=time.process_time() - cpu_s,
            wall_s=(monotonic_ns() - began_ns) / 1e9,
            lag_ms=self._lag_ns / 1e6,
        )
        await tasks.aclose()
        return PartDone(records, effort)

    async def _tell(self, driver: Driver) -> None:
        while True:
            await asyncio.sleep(_TELL_S)
            self._out.send(Going(driver.done))

    async def _probe_lag(self) -> None:
        while True:
            due_ns = monotonic_ns() + round(_LAG_PROBE_S * 1e9)
            await asyncio.sleep(_LAG_PROBE_S)
            self._lag_ns = max(self._lag_ns, monotonic_ns() - due_ns)

    def _crashed(self, name: str, error: BaseException) -> None:
        # A request's bug, or a conductor that is gone: either way what runs is worth nothing.
        self._crash = self._crash or error
        if self._going is not None:
            self._going.cancel()

    async def aclose(self) -> None:
        """Leave nothing of the target behind."""
        if self._target is not None:
            await self._target.aclose()


def texts(scenario: Scenario, message: Prepare) -> list[str]:
    """The prompt of every arrival. Raises PromptTooShort."""
    made = []
    for arrival in message.arrivals:
        cls = scenario.classes[arrival.cls]
        made.append(
            prompt(
                message.rule,
                arrival.prompt_tok,
                f"{scenario.seed}/{message.salt}/{cls.name}/{arrival.serial}",
                shared_tok=cls.shared_prefix_tok,
                shared_key=f"{scenario.seed}/{cls.name}",
            )
        )
    return made


def _log(line: str) -> None:
    # An engine's own words, on what may be a terminal, which obeys control characters.
    shown = "".join(ch if ch.isprintable() or ch == "\t" else "\ufffd" for ch in line)
    sys.stderr.write(f"{shown}\n")


class Out:
    """Standard output as a place for frames."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def send(self, message: FromGenerator) -> None:
        """Write all of it; the conductor reads all the time, so this is short."""
        data = memoryview(packed(message))
        while data:
            data = data[os.write(self._fd, data) :]


async def serve(reader: asyncio.StreamReader, out: Out) -> int:
    """Until the conductor says so, or is gone; the exit code."""
    generator = Generator(out)
    try:
        while True:
            try:
                header = await reader.readexactly(HEADER_BYTES)
                payload = await reader.readexactly(int.from_bytes(header, "big"))
            except asyncio.IncompleteReadError:
                return 0
            message = to_generator.decode(payload)
            if isinstance(message, Quit):
                return 0
            out.send(await generator.take(message))
    except (TargetError, PromptTooShort) as error:
        with suppress(BrokenPipeError):
            out.send(Trouble(str(error)))
        return 1
    except BrokenPipeError:
        return 0  # the conductor is gone, as above
    finally:
        await generator.aclose()


async def _main(in_fd: int, out_fd: int) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_FRAME_BYTES)
    with os.fdopen(in_fd, "rb") as pipe:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            return await serve(reader, Out(out_fd))
        finally:
            transport.close()


def main() -> None:
    """Entry point of `python -m onegate.bench.generator`."""
    # Whatever prints to standard output must not get between the frames.
    out_fd = os.dup(1)
    os.dup2(2, 1)
    sys.exit(asyncio.run(_main(os.dup(0), out_fd)))


if __name__ == "__main__":
    main()
