"""Carries out a plan: generators in processes of their own, one part after the other."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, field

from onegate.bench import machine
from onegate.bench.guards import Bounds, complaints
from onegate.bench.plan import AGAIN, Part, calibration, calibration_arrivals, plan
from onegate.bench.prompts import Rule
from onegate.bench.read import excess
from onegate.bench.record import Outcome, Record
from onegate.bench.scenario import Scenario
from onegate.bench.schedule import Arrival, schedule
from onegate.bench.targets.base import Facts, TargetError
from onegate.bench.targets.spec import Spec, server_of
from onegate.bench.traces import Trace, TraceError, read_trace
from onegate.bench.wire import (
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
    from_generator,
    packed,
)
from onegate.client.connect import socket_path
from onegate.clock import monotonic_ns
from onegate.protocol.framing import HEADER_BYTES

# From the word to go to the first request: every generator has heard it by then.
_LEAD_NS = 300_000_000
_NS_PER_S = 1_000_000_000
# A calibration ends when all have finished; this is for a target that never does.
_CALIBRATE_S = 300.0
_QUIT_S = 15.0
_ENDED_S = 5.0
# The words of one part: some 300 MB of text, which is held twice while it is sent.
MAX_PROMPTS_TOK = 50_000_000


class Settings(Struct, frozen=True, kw_only=True):
    """How to run a scenario. `generators` is the number of processes for each side and user."""

    repeats: int = 3
    noise: bool = False
    generators: int = 1
    ready_s: float = 120.0
    bounds: Bounds = Bounds()


class PartResult(Struct, frozen=True, kw_only=True):
    """One part as it went."""

    part: Part
    records: list[Record]
    efforts: list[Effort]
    use: machine.Use
    complaints: list[str]


class Run(Struct, kw_only=True):
    """Everything that was measured. `rates` are requests a second by class at load 1."""

    scenario: Scenario
    sides: dict[str, Spec]
    settings: Settings
    machine: machine.Facts
    facts: dict[str, Facts] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    calibrations: list[PartResult] = field(default_factory=list)
    results: list[PartResult] = field(default_factory=list)


class Tell(Struct, frozen=True):
    """Progress: part `number` of `of`, and requests that are over in it."""

    number: int
    of: int
    part: Part
    done: int
    requests: int


class Lane:
    """One generator: a side of the run, one user, one share of the clients."""

    def __init__(self, spec: Spec, uid: int | None, shard: int) -> None:
        self.spec = spec
        self.uid = uid
        self.shard = shard
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Raises TargetError."""
        self._process = await asyncio.create_subprocess_exec(
            *command(self.uid),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # The terminal's Ctrl-C is for the conductor, which then ends its generators.
            start_new_session=True,
        )

    async def send(self, message: ToGenerator) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(packed(message))
            await self._process.stdin.drain()
        except ConnectionError:
            raise await self._ended() from None

    async def hear(self) -> FromGenerator:
        """The next message. Raises TargetError when the generator is in trouble, or gone."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            header = await self._process.stdout.readexactly(HEADER_BYTES)
            payload = await self._process.stdout.readexactly(int.from_bytes(header, "big"))
        except asyncio.IncompleteReadError:
            raise await self._ended() from None
        message: FromGenerator = from_generator.decode(payload)
        if isinstance(message, Trouble):
            raise TargetError(f"{self.spec}: {message.message}")
        return message

    async def _ended(self) -> TargetError:
        """Why it is silent for good."""
        assert self._process is not None
        try:
            async with asyncio.timeout(_ENDED_S):
                code = await self._process.wait()
        except TimeoutError:
            return TargetError("a generator fell silent")
        if code >= 0:
            return TargetError(f"a generator ended with exit code {code}: its last words are above")
        return TargetError(f"a generator was killed by {signal.Signals(-code).name}")

    async def stop(self, *, at_once: bool) -> None:
        """Ask it to leave, or do not ask; what it drives sees its connections close either way."""
        if self._process is None or self._process.returncode is not None:
            return
        try:
            async with asyncio.timeout(0 if at_once else _QUIT_S):
                await self.send(Quit())
                await self._process.communicate()
        except (TimeoutError, TargetError):
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()


def command(uid: int | None) -> list[str]:
    """How a generator is started, for the user `uid`. Raises TargetError."""
    own = [sys.executable, "-P", "-m", "onegate.bench.generator"]
    if uid is None or uid == os.getuid():
        return own
    if os.getuid() != 0:
        raise TargetError(f"callers of uid {uid} need root: run as root, or leave uid out")
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        raise TargetError(f"callers of uid {uid} need the program setpriv (util-linux)")
    return [setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", *own]


class Conductor:
    """Use as `async with Conductor(...) as conductor: run = await conductor.run()`.

    Raises TargetError where a scenario's trace has gone since it was checked, and where callers are
    to be users that a side cannot have.

    `tell` hears of progress. Whatever happens, no generator is left when the block is.
    """

    def __init__(
        self,
        scenario: Scenario,
        sides: dict[str, Spec],
        settings: Settings,
        tell: Callable[[Tell], None],
    ) -> None:
        self._scenario = scenario
        self._settings = settings
        self._tell = tell
        self._lanes: dict[str, list[Lane]] = {
            side: lanes_of(scenario, spec, settings.generators) for side, spec in sides.items()
        }
        self._run = Run(
            scenario=scenario, sides=dict(sides), settings=settings, machine=machine.facts()
        )
        self._roots = {"bench": os.getpid()}
        self._traces = {
            cls.name: _trace(cls.arrivals.file)
            for cls in scenario.classes
            if cls.arrivals.file is not None
        }
        # What one side was asked, the other may still have in its cache where both are one server.
        servers = [server_of(spec) for spec in sides.values()]
        self._apart = None not in servers and len(set(servers)) < len(servers)

    async def __aenter__(self) -> "Conductor":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        lanes = [lane for side in self._lanes.values() for lane in side]
        await asyncio.gather(*(lane.stop(at_once=kind is not None) for lane in lanes))

    async def run(self) -> Run:
        """Measure. Raises TargetError."""
        for side, lanes in self._lanes.items():
            await self._open(side, lanes)
        run = self._run
        run.rates = {
            cls.name: cls.arrivals.rate_per_s
            for cls in self._scenario.classes
            if cls.arrivals.rate_per_s is not None
        }
        calibrations = calibration(self._scenario)
        parts = plan(
            self._scenario,
            sides=list(self._lanes),
            repeats=self._settings.repeats,
            noise=self._settings.noise,
        )
        total = len(calibrations) + len(parts)
        for number, part in enumerate(calibrations):
            await self._calibrate(part, number, total)
        for number, part in enumerate(parts, len(calibrations)):
            run.results.append(await self._part(part, number, total))
        return run

    async def _open(self, side: str, lanes: list[Lane]) -> None:
        scenario = msgspec.to_builtins(self._scenario)
        for lane in lanes:
            await lane.start()
            await lane.send(Open(lane.spec, scenario, self._settings.ready_s))
            answer = await lane.hear()
            assert isinstance(answer, Opened)
            self._run.facts[side], self._run.rules[side] = answer.facts, answer.rule
        spec = self._run.sides[side]
        if spec.kind == "gate" and (pid := machine.peer_pid(socket_path(spec.where))) is not None:
            self._roots[side] = pid

    def _arrivals(self, part: Part) -> list[Arrival]:
        contexts = [f.context_tok for f in self._run.facts.values() if f.context_tok is not None]
        if text := excess(self._scenario, self._run.rates):
            raise TargetError(f"at the rates that the target was measured to bear, {text}")
        return schedule(
            self._scenario,
            repeat=part.repeat,
            load=part.load,
            rates=self._run.rates,
            traces=self._traces,
            only=None if part.only is None else {part.only},
            least_tok=1 + max(rule.overhead_tok for rule in self._run.rules.values()),
            context_tok=min(contexts, default=None),
        )

    async def _calibrate(self, part: Part, number: int, total: int) -> None:
        assert part.only is not None
        self._run.rates[part.only] = 1.0
        arrivals = calibration_arrivals(
            self._scenario,
            part.only,
            self._arrivals(part) or _one(self._scenario, part.only),
            self._run.facts["A"].seats,
        )
        result = await self._watched(part, arrivals, 0.0, _CALIBRATE_S, number, total)
        self._run.calibrations.append(result)
        records = result.records
        ends = [r.ended_ns for r in records if r.outcome is Outcome.FINISHED and r.ended_ns]
        if not ends:
            why = ", ".join(sorted({r.reason for r in records}))
            raise TargetError(f"nothing of {part.only} finished, so its rate is not known: {why}")
        capacity_per_s = len(ends) / (max(ends) / _NS_PER_S)
        cls = next(c for c in self._scenario.classes if c.name == part.only)
        assert cls.arrivals.share is not None
        self._run.rates[part.only] = capacity_per_s * cls.arrivals.share

    async def _part(self, part: Part, number: int, total: int) -> PartResult:
        window_s = self._scenario.duration_s
        end_s = window_s + self._scenario.drain_s
        return await self._watched(part, self._arrivals(part), window_s, end_s, number, total)

    async def _watched(
        self,
        part: Part,
        arrivals: list[Arrival],
        window_s: float,
        end_s: float,
        number: int,
        total: int,
    ) -> PartResult:
        before = machine.sample(self._roots)
        records, efforts = await self._drive(part, arrivals, window_s, end_s, number, total)
        after = machine.sample(self._roots)
        use = machine.use(before, after, self._run.machine.cores, self._known())
        return PartResult(
            part=part,
            records=records,
            efforts=efforts,
            use=use,
            complaints=complaints(
                # All of a calibration are due at the same moment, and cannot be sent at it.
                [] if part.role == "calibrate" else records,
                efforts,
                use,
                self._settings.bounds,
                divisible=self._divisible(part.side),
            ),
        )

    def _divisible(self, side: str) -> bool:
        spec = self._run.sides["A" if side == AGAIN else side]
        clients = max(cls.clients for cls in self._scenario.classes)
        return not spec.one_process and self._settings.generators < clients

    def _known(self) -> Sequence[str] | None:
        """Trees that are the measurement, if they are all known. A private daemon's is within
        that of this process already."""
        for side, spec in self._run.sides.items():
            if spec.kind != "host" and side not in self._roots:
                return None
        ours = machine.tree(os.getpid(), machine.parents())
        return ["bench", *(s for s, pid in self._roots.items() if s != "bench" and pid not in ours)]

    async def _drive(
        self,
        part: Part,
        arrivals: list[Arrival],
        window_s: float,
        end_s: float,
        number: int,
        total: int,
    ) -> tuple[list[Record], list[Effort]]:
        prompts_tok = sum(arrival.prompt_tok for arrival in arrivals)
        if prompts_tok > MAX_PROMPTS_TOK:
            raise TargetError(
                f"the prompts of {part} have {prompts_tok} tokens, at most {MAX_PROMPTS_TOK}: "
                "shorten them, or the window"
            )
        side = "A" if part.side == AGAIN else part.side
        lanes = self._lanes[side]
        shares = [self._share(lane, arrivals) for lane in lanes]
        salt = self._salt(part)
        for lane, share in zip(lanes, shares, strict=True):
            await lane.send(Prepare(salt, self._run.rules[side], share))
        for lane in lanes:
            assert isinstance(await lane.hear(), Prepared)
        first_ns = min([0, *(a.at_ns for a in arrivals)])
        start_ns = monotonic_ns() + _LEAD_NS - first_ns
        done = [0] * len(lanes)

        async def follow(i: int, lane: Lane) -> PartDone:
            await lane.send(Go(start_ns, round(window_s * _NS_PER_S), round(end_s * _NS_PER_S)))
            while True:
                answer = await lane.hear()
                if isinstance(answer, PartDone):
                    return answer
                assert isinstance(answer, Going)
                done[i] = answer.done
                self._tell(Tell(number, total, part, sum(done), len(arrivals)))

        self._tell(Tell(number, total, part, 0, len(arrivals)))
        answers = await asyncio.gather(*(follow(i, lane) for i, lane in enumerate(lanes)))
        records = [record for answer in answers for record in answer.records]
        records.sort(key=lambda r: (r.scheduled_ns, r.cls, r.serial))
        return records, [answer.effort for answer in answers]

    def _salt(self, part: Part) -> str:
        """Sides that are compared get the same prompts, parts of one server different ones."""
        side = part.side if part.role == "noise" or self._apart else ""
        return f"{part.role}/{side}/{part.repeat}/{part.load:g}/{part.only or ''}"

    def _share(self, lane: Lane, arrivals: list[Arrival]) -> list[Arrival]:
        if lane.spec.one_process:
            return arrivals
        classes = self._scenario.classes
        n = self._settings.generators
        return [
            a for a in arrivals if classes[a.cls].uid == lane.uid and a.client % n == lane.shard
        ]


def lanes_of(scenario: Scenario, spec: Spec, generators: int) -> list[Lane]:
    """The generators of one side: for each user that its callers are, so many.

    Raises TargetError.
    """
    if spec.one_process:
        refuse_users(scenario, spec)
        return [Lane(spec, None, 0)]
    uids = list(dict.fromkeys(cls.uid for cls in scenario.classes))
    return [Lane(spec, uid, shard) for uid in uids for shard in range(generators)]


def refuse_users(scenario: Scenario, spec: Spec) -> None:
    """Raises TargetError where a caller is another user: what has no door cannot tell them apart,
    and the door of a private daemon is its owner's alone."""
    for cls in scenario.classes:
        if cls.uid not in (None, os.getuid()):
            raise TargetError(
                f"{spec} has no callers of another user, as {cls.name} is (uid = {cls.uid}): start "
                "a daemon with a socket_mode that lets them in, and measure gate:SOCKET"
            )


def _trace(path: str) -> Trace:
    try:
        return read_trace(path)
    except TraceError as error:
        raise TargetError(f"{path}: {str(error).splitlines()[0]}") from error


def _one(scenario: Scenario, name: str) -> list[Arrival]:
    number = next(i for i, cls in enumerate(scenario.classes) if cls.name == name)
    cls = scenario.classes[number]
    return [Arrival(0, number, 0, 0, cls.prompt.tok, cls.output.tok)]
