"""What the core of a real daemon decided is decided again from its event log."""

import random
import stat
from pathlib import Path

import pytest
from tests.integration.conftest import running_daemon
from tests.integration.daemon import Observed, scripted
from tests.sim.replay import replay

from onegate.server.event_lines import Began, Step, read

SECRET = "the-words-of-a-prompt"


def busy(gate: Observed, seats: int) -> None:
    """Requests of all classes, some of which end otherwise, and a class that is closed."""
    dice = random.Random(seats)
    with gate.greeted() as raw, gate.greeted() as leaves:
        for id in range(100, 101 + seats):  # the last finds no seat, and leaves while it waits
            raw.ask(id, f"[[tokens:400]] {SECRET}", params={"max_tokens": 400})
        raw.say("cancel", id=id)
        assert raw.end(id)["reason"] == "cancelled"
        for id in range(60):
            tok = dice.randint(1, 40)
            link = leaves if id % 7 == 0 else raw
            link.ask(
                id,
                f"[[tokens:{tok}]] {SECRET}" + " x" * dice.randint(0, 400),
                params={"max_tokens": tok},
                **{"class": dice.choice(["interactive", "loop", "batch"])},
            )
            if id % 11 == 0:
                raw.say("cancel", id=id)
            if id == 30:
                raw.say("pause", id=900, **{"class": "batch"})
        leaves.close()
        raw.say("unpause", id=901, **{"class": "batch"})
        for id in range(60):
            if id % 7:
                raw.end(id)


@pytest.mark.parametrize("seats", [1, 4])
def test_it_decides_the_same_again(tmp_path: Path, timeout_factor: float, seats: int) -> None:
    path = tmp_path / "events.jsonl"
    config = scripted(
        max_seqs=seats, max_step_tok=256, a_ms=1.0, rest=f'[log]\nevents_path = "{path}"'
    )
    with running_daemon(tmp_path / "d", config, 60 * timeout_factor) as daemon:
        busy(Observed(daemon), seats)
    lines = list(read(str(path)))
    assert isinstance(lines[0], Began)
    steps = [line for line in lines if isinstance(line, Step)]
    assert len(steps) == len(lines) - 1
    kinds = {type(step.event).__name__ for step in steps}
    assert kinds >= {
        *("Arrived", "Withdrawn", "Counted", "Produced", "Settled", "SeatFreed"),
        *("PoolChanged", "ClassClosed", "ClassOpened", "DrainStarted"),
    }
    done = replay(lines)
    assert (done.steps, done.lost) == (len(steps), 0)
    assert SECRET not in path.read_text(encoding="utf-8")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
