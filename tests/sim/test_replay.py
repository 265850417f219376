"""A log of what the core was told is enough to have every decision again."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from tests.sim.clients import Crowd
from tests.sim.profiles import slots
from tests.sim.replay import Differs, Replayed, replay, replay_file
from tests.sim.run import standard
from tests.sim.workload import papers, people
from tests.sim.world import SECOND, Box

from onegate.admission.effects import Grant
from onegate.admission.events import Arrived, Produced
from onegate.admission.model import Resume
from onegate.server.event_lines import Began, Line, Lost, Step, WentOn, decode, encode, read


@pytest.fixture(scope="module")
def log() -> list[Line]:
    """Some seconds of a box that is full of everything."""
    machine = slots(3)
    setup = standard(machine)
    lines: list[Line] = []
    box = Box(
        setup.classes,
        {"m": machine},
        setup.limits,
        record=lambda now_ns, event, effects: lines.append(Step(now_ns, event, tuple(effects))),
    )
    lines.append(Began(setup.limits, setup.classes, (box.spec("m"),)))
    crowd = Crowd(box)
    crowd.come(people(1, seconds=12, load=3))
    crowd.backlog(6, papers(1, Resume.EXACT))
    rng = Random(1)
    for at_s in range(1, 12):
        box.at(at_s * SECOND, lambda: box.cancel(rng.choice(list(box.jobs.values()))))
    box.run_until(12 * SECOND)
    return lines


def test_every_decision_comes_out_the_same(log: list[Line]) -> None:
    assert len(log) > 1000
    assert replay(decode(encode(line)) for line in log) == Replayed(len(log) - 1, 0)


def test_a_file_is_read_with_the_earlier_one(log: list[Line], tmp_path) -> None:
    half = len(log) // 2
    (tmp_path / "events.1").write_bytes(b"".join(map(encode, log[:half])))
    (tmp_path / "events").write_bytes(b"".join(map(encode, [WentOn(), *log[half:]])))
    assert replay(read(str(tmp_path / "events"))).steps == len(log) - 1


def test_another_decision_is_found(log: list[Line]) -> None:
    place = next(i for i, line in enumerate(log) if isinstance(line, Step) and line.effects)
    other = replace(log[place], effects=(Grant(999),))
    with pytest.raises(Differs, match="Grant"):
        replay([*log[:place], other])


def test_another_event_is_found(log: list[Line]) -> None:
    """Somebody who never came is missed, at the latest when his answer grows."""
    steps = [(i, line) for i, line in enumerate(log) if isinstance(line, Step)]
    place = next(i for i, step in steps if isinstance(step.event, Arrived))
    with pytest.raises(Differs):
        replay([*log[:place], *log[place + 1 :]])


def test_a_file_that_no_daemon_wrote_is_said_to_be_none(
    log: list[Line], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line is one, and together they are nothing that can have happened."""
    place, arrived = next(
        (i, line)
        for i, line in enumerate(log)
        if isinstance(line, Step) and isinstance(line.event, Arrived)
    )
    assert isinstance(arrived.event, Arrived)
    nobody = replace(arrived.event.request, class_="nobody")
    stranger = replace(arrived, event=Produced(-1, 1))
    path = tmp_path / "events"
    for bad in (
        [*log[:place], replace(arrived, event=Arrived(nobody))],
        [*log[:place], stranger],
        [*log[: place + 1], arrived],
    ):
        path.write_bytes(b"".join(map(encode, bad)))
        assert replay_file(str(path)) == 1
        assert f"step {len(bad) - 1} at " in capsys.readouterr().out


def test_what_is_missing_ends_it(log: list[Line]) -> None:
    assert replay([*log[:100], Lost(3), *log[200:]]) == Replayed(99, 3)


def test_a_log_without_a_beginning_is_none(log: list[Line]) -> None:
    with pytest.raises(Differs, match="middle"):
        replay(log[5:])
