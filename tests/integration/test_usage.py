"""What was used is counted for whoever used it, and outlives every kind of end of the daemon."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import running_daemon
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import Raw, strangers

TEN = "[[tokens:10]]"
ME = f"uid:{os.getuid()}"


def stored(directory: Path, *more: str) -> str:
    """A configuration that keeps what was used there, and writes it often."""
    lines = (f'directory = "{directory}"', "write_every_s = 0.05", *more)
    return scripted(max_seqs=4, a_ms=1.0, rest="\n".join(("[usage]", *lines)))


def rows(raw: Raw, id: int = 900, **fields: object) -> list[dict[str, Any]]:
    raw.say("usage", id=id, **fields)
    report = raw.expect("usage_report", id)
    found: list[dict[str, Any]] = report["rows"]
    return found


def total(found: list[dict[str, Any]], field: str, principal: str | None = None) -> int:
    return sum(row.get(field, 0) for row in found if principal in (None, row["principal"]))


def asked(gate: Observed, n: int, **fields: object) -> list[dict[str, Any]]:
    """`n` requests, one after the other; returns the table after them."""
    with gate.greeted(features=["v1", "usage"]) as raw:
        for id in range(n):
            raw.ask(id, TEN, **fields)
            assert raw.end(id)["t"] == "done"
        return rows(raw)


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def written(file: Path, finished: int) -> bool:
    """Whether the file says that so many have finished."""
    last = [json.loads(line.partition(" ")[2]) for line in lines(file)]
    return bool(last) and last[-1].get("finished") == finished


def test_a_request_counts_for_its_user_class_and_day(tmp_path: Path, timeout_factor: float) -> None:
    with observed(tmp_path / "d", scripted(max_seqs=4), 60 * timeout_factor) as gate:
        found = asked(gate, 2, class_="batch")
        (row,) = found
        assert (row["principal"], row["class"]) == (ME, "batch")
        assert (row["requests"], row["output_tok"]) == ({"finished": 2}, 20)
        assert row["prompt_tok"] > 0
        assert row["run_ms"] > 0
        with gate.greeted(features=["v1", "usage"]) as raw:
            raw.ask(1, "x", class_="batch", params={"max_tokens": 99_999})
            assert raw.end(1)["t"] == "failed"
            (row,) = rows(raw)
            assert row["requests"] == {"finished": 2, "rejected": 1}
            assert rows(raw, since_ms=2**53) == []
            raw.say("usage", id=2)
            assert "stored" not in raw.end(2)  # told where to listen, so in memory


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder below which other users reach what they may."""
    with tempfile.TemporaryDirectory(prefix="onegate-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "d"


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="not root: cannot be another user")
def test_everybody_sees_their_own_rows_and_administrators_all(
    open_path: Path, timeout_factor: float
) -> None:
    config = scripted(max_seqs=4, gate="socket_mode = 0o666")
    with observed(open_path, config, 60 * timeout_factor) as gate, ExitStack() as opened:
        open_path.chmod(0o711)
        uids = [31_001, 31_002]
        links = [
            opened.enter_context(strangers(gate.socket, uid, gate.timeout_s))[0] for uid in uids
        ]
        for link in links:
            link.greet(features=["v1", "usage", "release"])
            link.ask(1, TEN)
            assert link.end(1)["t"] == "done"
        for uid, link in zip(uids, links, strict=True):
            assert [row["principal"] for row in rows(link)] == [f"uid:{uid}"]
            link.say("release_engine", id=2)
            assert link.end(2)["reason"] == "permission"
        with gate.greeted(features=["v1", "usage"]) as admin:
            assert {row["principal"] for row in rows(admin)} == {f"uid:{uid}" for uid in uids}


def test_it_survives_a_kill_and_an_orderly_end(tmp_path: Path, timeout_factor: float) -> None:
    state, timeout_s = tmp_path / "state", 60 * timeout_factor
    file = state / "usage.jsonl"
    with running_daemon(tmp_path / "d", stored(state), timeout_s) as daemon:
        gate = Observed(daemon)
        asked(gate, 3)
        gate.wait(lambda: written(file, 3))
        daemon.process.kill()
        daemon.process.wait()
        with file.open("ab") as torn:
            torn.write(lines(file)[-1].encode()[:-20])  # what a crash of the machine leaves
        with observed(tmp_path / "d", stored(state), timeout_s) as heir:
            found = asked(heir, 2)
            assert total(found, "output_tok") == 50
            assert heir.lines("usage_problem")[0].count("count=1") == 1
        # Asked for a moment before the end, so written by the end itself.
        with observed(tmp_path / "d", stored(state), timeout_s) as third:
            assert total(asked(third, 0), "output_tok") == 50
            assert not third.lines("usage_problem")
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert oct(state.stat().st_mode & 0o777) == "0o700"


def test_two_daemons_do_not_write_one_table(tmp_path: Path, timeout_factor: float) -> None:
    config, timeout_s = stored(tmp_path / "state"), 60 * timeout_factor
    with (
        observed(tmp_path / "a", config, timeout_s) as first,
        observed(tmp_path / "b", config, timeout_s) as second,
    ):
        assert second.lines("state_problem")
        notices = second.status()["notices"]
        assert [n["code"] for n in notices] == ["usage_unwritten", "closed_unwritten"]
        assert all("another daemon" in n["detail"] for n in notices)
        asked(second, 1)  # served all the same
        assert total(asked(first, 1), "output_tok") == 10


def test_a_disk_that_cannot_be_written_stops_nothing(tmp_path: Path, timeout_factor: float) -> None:
    state = tmp_path / "state"
    with observed(tmp_path / "d", stored(state), 60 * timeout_factor) as gate:
        asked(gate, 1)
        gate.wait(lambda: written(state / "usage.jsonl", 1))
        (state / "usage.jsonl").unlink()
        away = tmp_path / "away"
        state.rename(away)  # for root, too, it is now in a place that is not there
        assert total(asked(gate, 2), "output_tok") == 30
        gate.wait(lambda: [n["code"] for n in gate.status()["notices"]] == ["usage_unwritten"])
        with gate.greeted() as raw:
            raw.say("metrics", id=1)
            text = raw.end(1)["text"]
        (line,) = [x for x in text.splitlines() if x.startswith("onegate_usage_write_failures_t")]
        assert float(line.split()[-1]) >= 1
        away.rename(state)
        gate.wait(lambda: gate.status()["notices"] == [])
        gate.wait(lambda: written(state / "usage.jsonl", 3))


def test_the_command_shows_it(tmp_path: Path, timeout_factor: float) -> None:
    with observed(tmp_path / "d", stored(tmp_path / "s"), 60 * timeout_factor) as gate:
        asked(gate, 2)

        def onegate(*arguments: str) -> str:
            command = [Path(sys.executable).with_name("onegate"), *arguments]
            done = subprocess.run(
                [*command, "--socket", gate.socket], capture_output=True, text=True, check=True
            )
            return done.stdout

        report = json.loads(onegate("usage", "--json"))
        assert (report["everybody"], report["stored"]) == (True, True)
        assert report["rows"][0]["requests"] == {"finished": 2}
        printed = onegate("usage", "--since", "1d")
        assert ME in printed
        assert "memory" not in printed
