"""The conductor, with generators that a test plays."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from onegate.bench import conduct, machine
from onegate.bench.conduct import Conductor, Settings, Tell, command, lanes_of
from onegate.bench.guards import Bounds
from onegate.bench.prompts import Rule
from onegate.bench.record import Outcome, Record
from onegate.bench.scenario import Arrivals
from onegate.bench.targets.base import Facts, TargetError
from onegate.bench.targets.spec import Spec
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
    ToGenerator,
)


class PlayedLane:
    """A generator that finishes everything 100 ms after its moment, or nothing at all."""

    finishes = True

    def __init__(self, spec: Spec, uid: int | None, shard: int) -> None:
        self.spec, self.uid, self.shard = spec, uid, shard
        self.answers: list[FromGenerator] = []
        self.prepared: list[Prepare] = []
        self.stopped: bool | None = None

    async def start(self) -> None: ...

    async def send(self, message: ToGenerator) -> None:
        match message:
            case Open():
                facts = Facts(model="tiny", context_tok=64, seats=4)
                self.answers.append(Opened(facts, Rule("words", 0, True)))
            case Prepare():
                self.prepared.append(message)
                self.answers.append(Prepared())
            case Go():
                self.answers.append(Going(1))
                self.answers.append(PartDone(self._records(), Effort(**EASY)))

    def _records(self) -> list[Any]:
        outcome = Outcome.FINISHED if self.finishes else Outcome.FAILED
        return [
            MADE.record(a.at_ns / 1e6, (100,), cls=a.cls, serial=a.serial, outcome=outcome)
            for a in self.prepared[-1].arrivals
        ]

    async def hear(self) -> FromGenerator:
        return self.answers.pop(0)

    async def stop(self, *, at_once: bool) -> None:
        self.stopped = at_once


REAL_LANE = conduct.Lane
EASY = {"cpu_s": 0.1, "wall_s": 1.0, "lag_ms": 1.0}
MADE: Any = None


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    monkeypatch.setattr(conduct, "Lane", PlayedLane)
    monkeypatch.setattr(sys.modules[__name__], "MADE", made)
    monkeypatch.setattr(machine, "peer_pid", lambda path: None)


# What the machine does beside these tests is not what they are about.
ANY_MACHINE = Bounds(steal_share=1.0, memory_full=1.0, io_full=1.0, foreign_share=1.0)


def conductor(scenario: Any, tell: Any = lambda now: None, **settings: Any) -> Conductor:
    settings = {"bounds": ANY_MACHINE, **settings}
    return Conductor(scenario, {"A": Spec("gate", "/s")}, Settings(**settings), tell)


async def test_every_part_is_run_and_told(made: Any) -> None:
    heard: list[Tell] = []
    scenario = made.scenario(isolate=["chat"], duration_s=2.0)
    made_conductor = conductor(scenario, heard.append, repeats=2)
    async with made_conductor as running:
        run = await running.run()
    assert [(r.part.only, r.part.repeat) for r in run.results] == [
        ("chat", 0),
        (None, 0),
        ("chat", 1),
        (None, 1),
    ]
    assert [len(r.records) for r in run.results] == [4] * 4
    assert run.rates == {"chat": 2.0}
    assert (heard[0].number, heard[0].of, heard[0].requests) == (0, 4, 4)
    assert heard[-1].done == 1
    assert [lane.stopped for lane in made_conductor._lanes["A"]] == [False]  # type: ignore[attr-defined]


async def test_a_run_that_is_broken_off_does_not_wait_for_its_generators(made: Any) -> None:
    made_conductor = conductor(made.scenario())
    with pytest.raises(ZeroDivisionError):
        async with made_conductor:
            raise ZeroDivisionError
    assert [lane.stopped for lane in made_conductor._lanes["A"]] == [True]  # type: ignore[attr-defined]


async def test_prompts_of_each_part_have_a_salt_of_their_own(made: Any) -> None:
    made_conductor = conductor(made.scenario(duration_s=1.0), repeats=2)
    async with made_conductor as running:
        await running.run()
    (lane,) = made_conductor._lanes["A"]
    salts = [prepare.salt for prepare in lane.prepared]  # type: ignore[attr-defined]
    assert len(set(salts)) == 2


@pytest.mark.parametrize(
    ("other", "same"),
    [(Spec("gate", "/t"), True), (Spec("host"), True), (Spec("gate", "/s"), False)],
)
async def test_sides_get_the_same_prompts_unless_they_are_one_server(
    made: Any, other: Spec, same: bool
) -> None:
    sides = {"A": Spec("gate", "/s"), "B": other}
    settings = Settings(repeats=2, noise=True)
    scenario = made.scenario(isolate=["chat"], duration_s=1.0)
    made_conductor = Conductor(scenario, sides, settings, lambda now: None)
    async with made_conductor as running:
        await running.run()
    a, b = (
        [prepare.salt for prepare in lane.prepared]  # type: ignore[attr-defined]
        for (lane,) in made_conductor._lanes.values()
    )
    assert len(a) == len(set(a)) == 8  # four for the noise, two repeats alone and two together
    assert len(b) == len(set(b)) == 4
    assert set(b) <= set(a) if same else not set(b) & set(a)


async def test_what_a_measured_rate_would_need_may_be_too_much(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onegate.bench.read.MAX_ARRIVALS", 700)
    cls = made.cls(arrivals=Arrivals(kind="deterministic", share=0.5))
    with pytest.raises(TargetError, match="rates that the target was measured to bear, more than"):
        async with conductor(made.scenario(cls), repeats=1) as running:
            await running.run()


async def test_prompts_are_bounded(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conduct, "MAX_PROMPTS_TOK", 319)
    with pytest.raises(TargetError, match=r"have 320 tokens, at most 319"):
        async with conductor(made.scenario(), repeats=1) as running:
            await running.run()


def test_a_trace_that_has_gone_is_one_sentence(made: Any, tmp_path: Path) -> None:
    arrivals = Arrivals(kind="trace", file=f"{tmp_path}/none", rate_per_s=1.0)
    with pytest.raises(TargetError, match="none: cannot be read: No such file"):
        conductor(made.scenario(made.cls(arrivals=arrivals)))


@pytest.mark.parametrize(
    ("code", "words"), [(-9, "killed by SIGKILL"), (1, "exit code 1: its last words are above")]
)
async def test_a_generator_that_is_gone_is_told_as_it_went(code: int, words: str) -> None:
    class Process:
        returncode = code

        class stdout:
            @staticmethod
            async def readexactly(n: int) -> bytes:
                raise asyncio.IncompleteReadError(b"", n)

        async def wait(self) -> int:
            return code

    lane = REAL_LANE(Spec("gate"), None, 0)
    lane._process = Process()  # type: ignore[assignment]
    with pytest.raises(TargetError, match=words):
        await lane.hear()


async def test_a_share_is_measured_before_it_is_asked_for(made: Any) -> None:
    cls = made.cls(arrivals=Arrivals(kind="deterministic", share=0.5))
    async with conductor(made.scenario(cls, duration_s=2.0), repeats=1) as running:
        run = await running.run()
    # 16 at once, all finished after 100 ms: 160 a second, of which half.
    assert run.rates == {"chat": pytest.approx(80.0)}
    assert len(run.results[0].records) == 160


async def test_a_calibration_is_judged_but_not_by_when_it_sends(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EASY, "cpu_s", 0.9)
    monkeypatch.setattr(Record, "lateness_ms", 99.0)
    chat = made.cls(arrivals=Arrivals(share=0.5), clients=2)
    async with conductor(made.scenario(chat), repeats=1) as running:
        run = await running.run()
    (calibrated,) = run.calibrations
    (text,) = calibrated.complaints
    assert "90% of a core" in text
    assert [len(result.complaints) for result in run.results] == [2]


@pytest.mark.parametrize(
    ("clients", "generators", "target", "helps"),
    [(2, 1, "gate", True), (1, 1, "gate", False), (2, 2, "gate", False), (2, 1, "host", False)],
)
async def test_more_generators_are_advised_where_clients_can_be_divided(
    made: Any,
    monkeypatch: pytest.MonkeyPatch,
    clients: int,
    generators: int,
    target: str,
    helps: bool,
) -> None:
    monkeypatch.setitem(EASY, "cpu_s", 0.9)
    scenario = made.scenario(made.cls(clients=clients))
    settings = Settings(repeats=1, generators=generators)
    async with Conductor(scenario, {"A": Spec(target)}, settings, lambda now: None) as running:
        run = await running.run()
    ((text, *_),) = [result.complaints for result in run.results]
    assert ("--generators" in text) is helps


async def test_a_target_that_finishes_nothing_has_no_share(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlayedLane, "finishes", False)
    cls = made.cls(arrivals=Arrivals(share=0.5))
    with pytest.raises(TargetError, match="nothing of chat finished"):
        async with conductor(made.scenario(cls), repeats=1) as running:
            await running.run()


async def test_generators_share_the_clients_and_records_come_together(made: Any) -> None:
    scenario = made.scenario(made.cls(clients=4), duration_s=4.0)
    made_conductor = conductor(scenario, repeats=1, generators=2)
    async with made_conductor as running:
        run = await running.run()
    one, two = made_conductor._lanes["A"]
    clients = [
        {a.client for a in lane.prepared[0].arrivals}  # type: ignore[attr-defined]
        for lane in (one, two)
    ]
    assert clients == [{0, 2}, {1, 3}]
    assert [r.serial for r in run.results[0].records] == list(range(8))


def test_each_user_has_a_generator_of_its_own(made: Any) -> None:
    scenario = made.scenario(made.cls("a"), made.cls("b", uid=1001))
    lanes = lanes_of(scenario, Spec("gate"), 2)
    assert [(lane.uid, lane.shard) for lane in lanes] == [
        (None, 0),
        (None, 1),
        (1001, 0),
        (1001, 1),
    ]
    with pytest.raises(TargetError, match=r"host has no callers of another user, as b is"):
        lanes_of(scenario, Spec("host"), 2)
    assert len(lanes_of(made.scenario(made.cls(uid=os.getuid())), Spec("host"), 2)) == 1


def test_other_users_are_entered_through_setpriv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(conduct.shutil, "which", lambda name: f"/bin/{name}")
    words = command(1001)
    assert words[:2] == ["/bin/setpriv", "--reuid=1001"]
    assert "--clear-groups" in words
    assert command(None)[0] == sys.executable


def test_other_users_need_root_and_setpriv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 7)
    assert command(7)[0] == sys.executable
    with pytest.raises(TargetError, match="need root"):
        command(1001)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setattr(conduct.shutil, "which", lambda name: None)
    with pytest.raises(TargetError, match="setpriv"):
        command(1001)
