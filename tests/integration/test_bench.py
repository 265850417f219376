"""`onegate bench` as a process, against real targets. Figures are judged only where they can be:
what is scheduled, what ended how, and what a busy machine can only make longer."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import alive, descendants, running_daemon

ONEGATE = (sys.executable, "-c", "from onegate.cli.main import main; main()")
QUIET_OR_NOT = (0, 3)

pytestmark = pytest.mark.alone("bench")

# 150 ms to the first token, 110 ms for each of the next four, and nobody beside it.
SLOW = """\
[engine]
kind = "scripted"
[[engine.scripted.pools]]
max_seqs = 16
kv_tok = 100000
max_step_tok = 4096
a_ms = 100.0
b_ms_per_prefill_tok = 1.0
c_ms_per_seq = 10.0
"""
ALONE = """\
title = "Answers that do not meet"
duration_s = 7
warmup_s = 0.7
[[class]]
name = "chat"
arrivals = { kind = "deterministic", rate_per_s = 1.4285714285714286 }
prompt = { tok = 50 }
output = { tok = 5 }
limits = { ttft_ms = 1000 }
"""


@pytest.fixture
def bench(tmp_path: Path, timeout_factor: float) -> Any:
    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("ONEGATE_")}
        done = subprocess.run(
            [*ONEGATE, "bench", *arguments, "--json"],
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120 * timeout_factor,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return run


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def only_class(document: dict[str, Any]) -> dict[str, Any]:
    ((row,),) = [report["together"] for report in document["loads"]]
    found: dict[str, Any] = row
    return found


def test_a_smoke_of_every_part(bench: Any) -> None:
    code, found = bench("smoke", "--on", "private", "--repeats", "1")
    assert code in QUIET_OR_NOT
    rows = {row["name"]: row for row in found["loads"][0]["together"]}
    assert rows["chat"]["outcomes"]["finished"] == rows["chat"]["scheduled"] > 0
    assert rows["batch"]["outcomes"]["finished"] == 20
    assert rows["ghosts"]["outcomes"]["left"] == rows["ghosts"]["scheduled"] == 12
    # Who leaves by the clock may be in any phase by then.
    reasons = set(rows["ghosts"]["reasons"])
    assert {"prefill", "decode"} <= reasons <= {"arrival", "queued", "prefill", "decode"}
    assert rows["batch"]["prompt_tok"] == {"n": 20} | dict.fromkeys(
        ("p50", "p95", "p99", "max"), 48
    )
    assert found["sides"][0]["target"] == "private"
    assert found["sides"][0]["counting"]["exact"]
    assert {row["cls"] for row in found["interference"]["A"]} == {"chat"}


def test_a_bare_host_keeps_to_its_cost_model(bench: Any, tmp_path: Path) -> None:
    scenario = written(tmp_path / "alone.toml", ALONE)
    config = written(tmp_path / "slow.toml", SLOW)
    code, found = bench(scenario, "--on", f"host:{config}", "--repeats", "1")
    row = only_class(found)
    assert row["scheduled"] == row["outcomes"]["finished"] == 10
    assert row["goodput_per_s"] == pytest.approx(10 / 7)
    # Nothing is faster than it can be; as slow as it should be only where nothing disturbs.
    for measure, expected in (("ttft_ms", 150), ("itl_ms", 110), ("e2e_ms", 590)):
        assert row[measure]["p50"] >= 0.999 * expected
        if code == 0:
            assert row[measure]["p50"] == pytest.approx(expected, rel=0.03)


def test_a_stall_of_two_seconds_shows_in_p99(bench: Any, tmp_path: Path) -> None:
    # One request asks the engine to stand still for two seconds; 40 others are due meanwhile.
    text = """\
    title = "A stall"
    duration_s = 6
    warmup_s = 0
    [[class]]
    name = "chat"
    arrivals = { kind = "deterministic", rate_per_s = 20 }
    prompt = { tok = 8 }
    output = { tok = 1 }
    [[class]]
    name = "stall"
    start_s = 2
    arrivals = { kind = "burst", size = 1, every_s = 3600 }
    prompt = { tok = 2000 }
    output = { tok = 1 }
    """
    config = written(
        tmp_path / "stall.toml",
        SLOW.replace("a_ms = 100.0", "a_ms = 1.0").replace(
            "c_ms_per_seq = 10.0", "c_ms_per_seq = 0"
        ),
    )
    _, found = bench(written(tmp_path / "s.toml", text), "--on", f"host:{config}", "--repeats", "1")
    row = next(r for r in found["loads"][0]["together"] if r["name"] == "chat")
    assert row["outcomes"]["finished"] == row["scheduled"] == 120
    assert row["ttft_ms"]["p99"] > 1500
    assert row["ttft_ms"]["max"] > 1900


def test_two_targets_in_turn_with_noise_beside_the_ratios(bench: Any, tmp_path: Path) -> None:
    scenario = written(tmp_path / "alone.toml", ALONE.replace("duration_s = 7", "duration_s = 1.4"))
    code, found = bench(
        scenario, "--on", "private", "--vs", "host", "--aa", "--repeats", "2", "--generators", "2"
    )
    assert code in QUIET_OR_NOT
    assert [side["target"] for side in found["sides"]] == ["private", "host"]
    assert len(found["parts"]) == 8
    ratio = next(row for row in found["ratios"] if row["measure"] == "TTFT p50")
    assert ratio["ratio"]["n"] == 2
    assert ratio["noise"]["n"] == 2
    assert {"bench", "A", "A itself"} <= found["parts"][-1]["use"]["cores"].keys()


@pytest.mark.root
def test_callers_of_another_user(bench: Any, timeout_factor: float) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root: callers of another user")
    # Only the kernel can have told the daemon whose requests to refuse.
    config = """\
    [engine]
    kind = "scripted"
    [gate]
    socket_mode = 0o666
    [[grant]]
    uid = 65534
    ceiling = "batch"
    """
    text = """\
    duration_s = 1.5
    warmup_s = 0
    [[class]]
    name = "root"
    asks = "interactive"
    arrivals = { kind = "deterministic", rate_per_s = 2 }
    output = { tok = 2 }
    [[class]]
    name = "nobody"
    asks = "interactive"
    uid = 65534
    arrivals = { kind = "deterministic", rate_per_s = 2 }
    output = { tok = 2 }
    """
    with tempfile.TemporaryDirectory(prefix="onegate-bench-") as folder:
        os.chmod(folder, 0o755)
        scenario = written(Path(folder) / "two.toml", textwrap.dedent(text))
        with running_daemon(
            Path(folder) / "d", textwrap.dedent(config), 30 * timeout_factor
        ) as daemon:
            os.chmod(daemon.directory, 0o755)
            _, found = bench(scenario, "--on", f"gate:{daemon.socket}", "--repeats", "1")
    rows = {row["name"]: row for row in found["loads"][0]["together"]}
    assert rows["root"]["outcomes"]["finished"] == 3
    assert rows["nobody"]["reasons"] == {"class_not_allowed": 3}


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path, timeout_factor: float) -> None:
    config = written(tmp_path / "slow.toml", SLOW)
    scenario = written(tmp_path / "alone.toml", ALONE.replace("duration_s = 7", "duration_s = 600"))
    with subprocess.Popen(
        [*ONEGATE, "bench", scenario, "--on", f"host:{config}"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
    ) as process:
        deadline = 60 * timeout_factor
        while len(family := descendants(process.pid)) < 2 and deadline > 0:
            time.sleep(0.1)
            deadline -= 0.1
        assert len(family) == 2, "a generator and its engine host"
        process.send_signal(signal.SIGINT)
        assert process.wait(60 * timeout_factor) == 130
        while any(alive(pid) for pid in family) and deadline > 0:
            time.sleep(0.1)
            deadline -= 0.1
        assert not [pid for pid in family if alive(pid)]


def test_a_private_daemon_does_not_outlive_a_killed_run(
    tmp_path: Path, timeout_factor: float
) -> None:
    scenario = written(tmp_path / "alone.toml", ALONE.replace("duration_s = 7", "duration_s = 600"))
    with subprocess.Popen(
        [*ONEGATE, "bench", scenario, "--on", "private"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        deadline = 60 * timeout_factor
        # A guardian, the daemon, its engine host and a generator.
        while len(family := descendants(process.pid)) < 4 and deadline > 0:
            time.sleep(0.1)
            deadline -= 0.1
        folders = list(tmp_path.glob("onegate-*"))
        process.kill()
        process.wait()
        while (folders[0].exists() or any(map(alive, family))) and deadline > 0:
            time.sleep(0.1)
            deadline -= 0.1
        assert len(folders) == 1
        assert not folders[0].exists()
        assert not [pid for pid in family if alive(pid)]


def test_nobody_there_is_one_sentence(bench: Any, tmp_path: Path) -> None:
    code, found = bench("smoke", "--on", f"gate:{tmp_path}/none")
    assert code == 69
    assert "no daemon" in found["error"]["message"]
