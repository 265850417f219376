"""The device is lent to something else and taken back, with work waiting, running and coming."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import OPENVINO, Daemon, grant, running_daemon
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import Raw, applied
from tests.integration.test_engine_death import FAST

TWO = "[[tokens:2]]"
RELEASE = ["v1", "release"]


@pytest.fixture
def gate(tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    """One seat; batch may wait when it is closed, and loading takes a moment."""
    rest = '[[class]]\nname = "batch"\nwhen_closed = "wait"\n'
    config = scripted(engine=FAST, rest=rest, max_seqs=1, a_ms=2.0, switch_cost_ms=50.0)
    with observed(tmp_path / "d", config, 60 * timeout_factor) as daemon:
        yield daemon


def released(raw: Raw, id: int = 500, **fields: object) -> None:
    raw.say("release_engine", id=id, **fields)
    assert applied(raw.expect("ack", id))


def taken_back(raw: Raw, id: int = 501) -> bool:
    raw.say("release_engine", id=id, end=True)
    return applied(raw.expect("ack", id))


def until(seconds: float) -> int:
    return int((time.time() + seconds) * 1000)  # noqa: TID251  the wire's time


def test_lent_and_taken_back(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw:
        loads = gate.pool()["loads"]
        end_ms = until(3600)
        released(raw, until_ms=end_ms)
        pool = gate.pool()
        assert pool["state"] == "released"
        assert abs(pool["released_until_ms"] - end_ms) < 50
        raw.ask(1, TWO)
        failed = raw.end(1)
        assert (failed["reason"], failed["retryable"]) == ("released", True)
        assert 3_500_000 < failed["retry_after_ms"] <= 3_600_000
        raw.say("capacity", id=2, prompt_tok=1)
        report = raw.end(2)
        assert (report["verdict"], report["reason"]) == ("refuse", "released")
        with gate.connect() as other:
            assert other.greet()["models"][0]["state"] == "released"
        assert taken_back(raw)
        assert not taken_back(raw)
        assert gate.pool()["state"] == "cold"
        raw.ask(3, TWO)
        assert raw.end(3)["t"] == "done"
        assert gate.pool()["loads"] == loads + 1


def test_it_comes_back_by_itself_and_waits_for_nobody_to_ask(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw:
        released(raw, until_ms=until(0.4))
        raw.ask(1, TWO, class_="batch", progress=True)
        assert raw.expect("queued", 1)["limited_by"] == "closed"
        assert raw.end(1)["t"] == "done"
        assert gate.pool()["state"] == "ready"


def test_what_runs_may_end_and_what_waits_is_told(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw, gate.greeted() as other:
        other.ask(1, "[[tokens:150]]")
        other.expect("chunk", 1)
        other.ask(2, TWO)
        other.ask(3, TWO, class_="batch")
        gate.wait(lambda: gate.status()["gate"]["queued"] == 2)
        raw.say("release_engine", id=1, until_ms=until(600))
        refused = other.end(2)
        assert refused["reason"] == "released"
        assert refused["phase"] == "queued"
        assert refused["retry_after_ms"] > 0
        assert [a for a in raw.inbox if a["t"] == "ack"] == []
        assert gate.pool()["seats_used"] == 1
        assert other.end(1)["usage"]["output_tok"] == 150
        assert applied(raw.expect("ack", 1))
        assert gate.pool()["seats_used"] == 0
        assert taken_back(raw)
        assert other.end(3)["t"] == "done"


def test_now_means_now(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw, gate.greeted() as other:
        other.ask(1, "[[tokens:4000]]")
        other.expect("chunk", 1)
        released(raw, now=True)
        failed = other.end(1)
        assert (failed["reason"], failed["phase"]) == ("released", "decode")
        assert "retry_after_ms" not in failed
        gate.wait_idle()
        assert taken_back(raw)


STORY = "a long story [[tokens:200]]"


def told(raw: Raw, id: int, *, chunks: int = 5) -> None:
    """Until so many pieces of it have come; they stay in the inbox."""
    while sum(a["t"] == "chunk" and a.get("id") == id for a in raw.inbox) < chunks:
        assert raw.read()


def batch(raw: Raw, id: int, **params: Any) -> None:
    fields = {"max_tokens": 200, "temperature": 0.0} | params
    raw.ask(id, STORY, class_="batch", params=fields)


@pytest.mark.parametrize("now", [False, True])
def test_batch_is_stopped_and_goes_on_when_it_is_back(
    now: bool, tmp_path: Path, timeout_factor: float
) -> None:
    """As shipped: newcomers of its class are refused, and what has begun waits for the device."""
    config = scripted(engine=FAST, max_seqs=1, a_ms=3.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted(features=RELEASE) as raw,
        gate.greeted() as other,
    ):
        batch(other, 1)
        assert other.end(1)["t"] == "done"
        expected = other.text(1)
        batch(other, 2)
        told(other, 2)
        released(raw, until_ms=until(600), now=now)
        assert gate.pool()["seats_used"] == 0
        other.expect("paused", 2)
        batch(other, 3)
        assert other.end(3)["reason"] == "released"
        assert taken_back(raw)
        assert other.end(2)["t"] == "done"
        assert other.text(2) == expected
        assert gate.pool()["loads"] == 2
        gate.wait_idle()
        raw.say("metrics", id=9)
        text = raw.expect("metrics_report", 9)["text"]
        assert 'onegate_discarded_tokens_total{class="batch"} 0.0' in text


@pytest.mark.parametrize("how", ["loop", "sampled"])
def test_what_cannot_go_on_later_has_the_time_of_a_drain(
    how: str, tmp_path: Path, timeout_factor: float
) -> None:
    config = scripted(gate="drain_timeout_s = 0.5", max_seqs=1, a_ms=3.0, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted(features=RELEASE) as raw,
        gate.greeted() as other,
    ):
        sampled = {"class_": "batch", "params": {"temperature": 0.5, "max_tokens": 4000}}
        other.ask(1, "[[tokens:4000]]", **(sampled if how == "sampled" else {}))
        told(other, 1)
        released(raw, until_ms=until(600))
        failed = other.end(1)
        assert (failed["reason"], failed["phase"]) == ("released", "decode")
        assert failed["retry_after_ms"] > 0
        assert [a for a in other.inbox if a["t"] == "paused"] == []
        gate.wait_idle()


def test_the_daemon_is_ended_while_batch_waits_for_the_device(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw, gate.greeted() as other:
        batch(other, 1)
        told(other, 1)
        released(raw)
        gate.daemon.process.send_signal(signal.SIGTERM)
        failed = other.end(1)
        assert (failed["reason"], failed["phase"]) == ("shutting_down", "queued")
        assert gate.daemon.process.wait(gate.timeout_s) == 0


def test_giving_up_the_waiting_is_not_giving_up_the_release(gate: Observed) -> None:
    with gate.greeted() as other:
        other.ask(1, "[[tokens:150]]")
        other.expect("chunk", 1)
        with gate.greeted(features=RELEASE) as raw:
            raw.say("release_engine", id=1)
            raw.say("cancel", id=1)
            assert raw.end(1)["reason"] == "cancelled"
            raw.say("release_engine", id=2)
        assert other.end(1)["t"] == "done"
        gate.wait(lambda: gate.lines("engine_free"))
        assert gate.pool()["state"] == "released"
    with gate.greeted(features=RELEASE) as raw:
        assert taken_back(raw)


def test_taken_back_before_it_was_free(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw, gate.greeted() as other:
        other.ask(1, "[[tokens:150]]")
        other.expect("chunk", 1)
        raw.say("release_engine", id=1)
        assert taken_back(raw, 2)
        assert not applied(raw.expect("ack", 1))
        other.ask(2, TWO)
        assert other.end(2)["t"] == "done"
        assert gate.pool()["loads"] == 1


def test_an_engine_that_is_started_anew_is_not_left_loaded(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw, gate.greeted() as other:
        other.ask(1, "[[tokens:4000]]")
        other.expect("chunk", 1)
        raw.say("release_engine", id=1)
        gate.wait(lambda: gate.pool()["state"] == "released")
        restarts = gate.pool()["restarts"]
        os.kill(gate.host_pid(), signal.SIGKILL)
        # The answer was greedy, so it could go on elsewhere: here it is told that it will not.
        assert other.end(1)["reason"] == "released"
        assert applied(raw.expect("ack", 1))
        assert gate.pool()["restarts"] == restarts + 1
        gate.wait(lambda: gate.lines("engine_free"))
        assert gate.pool()["state"] == "released"
        assert taken_back(raw)
        other.ask(2, TWO)
        assert other.end(2)["t"] == "done"


def test_a_time_that_has_passed(gate: Observed) -> None:
    with gate.greeted(features=RELEASE) as raw:
        raw.say("release_engine", id=1, until_ms=until(-1))
        failed = raw.end(1)
        assert (failed["reason"], failed["path"]) == ("invalid", "until_ms")
        raw.say("release_engine", id=2, end=True, now=True)
        assert raw.end(2)["reason"] == "invalid"
        assert gate.pool()["state"] == "ready"


def onegate(gate: Observed, *arguments: str) -> Any:
    command = [Path(sys.executable).with_name("onegate"), *arguments, "--socket", gate.socket]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command(gate: Observed) -> None:
    done = onegate(gate, "release-gpu", "--for", "2h")
    assert done.returncode == 0
    assert "a restart of the daemon would not know: it keeps in memory" in done.stderr
    assert done.stdout.startswith("the device is free until 2")
    refused = onegate(gate, "ask", "hi")
    assert refused.returncode == 75
    assert "try again in 7" in refused.stderr
    looked = onegate(gate, "doctor", "--json")
    checks = json.loads(looked.stdout)["checks"]
    (engine,) = [check for check in checks if check["name"] == "engine"]
    assert (engine["verdict"], engine["command"]) == ("warn", "onegate release-gpu --end")
    looked = onegate(gate, "status")
    assert " is released until 2" in looked.stdout
    done = onegate(gate, "release-gpu", "--end", "--json")
    assert done.stderr == ""
    assert json.loads(done.stdout) == {"released": False, "applied": True}
    assert onegate(gate, "ask", "hi [[tokens:2]]").returncode == 0


# --- over the end of the daemon -------------------------------------------------------------------


@dataclass
class Kept:
    """A daemon with a directory for its state, to be ended in any way and started again."""

    directory: Path
    timeout_s: float
    last: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        return self.directory / "state" / "closed.jsonl"

    def start(self) -> Observed:
        """Started, and answering; whether a model is loaded is another question."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        state = f'[usage]\ndirectory = "{self.file.parent}"\n'
        config = scripted(engine=FAST, rest=state, max_seqs=1, a_ms=2.0, switch_cost_ms=50.0)
        file, path = self.directory / "onegate.toml", str(self.directory / "onegate.sock")
        file.write_text(config + grant(os.getuid()), encoding="utf-8")
        with (self.directory / "log").open("ab") as log:
            self.last = subprocess.Popen(
                [
                    *(sys.executable, "-m", "onegate.server.main"),
                    *("--config", file, "--socket", path),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        daemon = Daemon(self.directory, self.last, path, self.timeout_s)
        daemon.wait(lambda: answers(daemon))
        return Observed(daemon)

    def end(self, number: signal.Signals) -> None:
        """End what was started last."""
        assert self.last is not None
        self.last.send_signal(number)
        self.last.wait(self.timeout_s)


def answers(daemon: Daemon) -> bool | None:
    """Whether it does, told in the way that `Daemon.wait` wants."""
    try:
        with Raw.connect(daemon.socket, daemon.timeout_s) as raw:
            return bool(raw.greet()) or None
    except OSError:
        return None


@pytest.fixture
def kept(tmp_path: Path, timeout_factor: float) -> Iterator[Kept]:
    made = Kept(tmp_path / "d", 60 * timeout_factor)
    yield made
    if made.last is not None and made.last.poll() is None:
        made.end(signal.SIGTERM)
        assert made.last.returncode == 0
    log = (made.directory / "log").read_text(encoding="utf-8")
    assert "Traceback" not in log
    assert " bug " not in log


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_outlives_the_daemon(kept: Kept, number: signal.Signals) -> None:
    gate = kept.start()
    gate.daemon.wait_ready()
    end_ms = until(3600)
    with gate.greeted(features=RELEASE) as raw:
        released(raw, until_ms=end_ms)
        raw.say("pause", id=7, **{"class": "batch"})
        assert applied(raw.expect("ack", 7))
        kept.end(number)  # as soon as that is said
    gate = kept.start()
    pool = gate.pool()
    assert pool["state"] == "released"
    assert abs(pool["released_until_ms"] - end_ms) < 50
    assert gate.class_("batch")["paused"]
    with gate.greeted(features=RELEASE) as raw:
        raw.ask(1, TWO)
        failed = raw.end(1)
        assert failed["reason"] == "released"
        assert 3_000_000 < failed["retry_after_ms"] <= 3_600_000
        raw.say("count", id=2, prompt="how long")
        failed = raw.end(2)
        assert (failed["reason"], failed["phase"]) == ("released", "arrival")
        assert 3_000_000 < failed["retry_after_ms"] <= 3_600_000
        gate.wait(lambda: len(gate.lines("engine_free")) > 1)
        assert gate.pool()["loads"] == 0, "what is not wanted is not loaded"
        assert taken_back(raw)
        raw.say("unpause", id=8, **{"class": "batch"})
        assert applied(raw.expect("ack", 8))
        kept.end(number)
    gate = kept.start()
    assert gate.pool()["state"] != "released"
    assert not gate.class_("batch")["paused"]
    assert not kept.file.exists()
    with gate.greeted() as raw:
        raw.ask(1, TWO)
        assert raw.end(1)["t"] == "done"


def test_it_ends_in_the_next_daemon_or_before_it(kept: Kept) -> None:
    gate = kept.start()
    with gate.greeted(features=RELEASE) as raw:
        released(raw, until_ms=until(4))
    kept.end(signal.SIGKILL)
    gate = kept.start()
    with gate.greeted() as raw:
        gate.wait(lambda: gate.pool()["state"] != "released")
        raw.ask(1, TWO)
        assert raw.end(1)["t"] == "done"
    gate.wait(lambda: not kept.file.exists())
    with gate.greeted(features=RELEASE) as raw:
        released(raw, until_ms=until(0.5))
        kept.end(signal.SIGKILL)
    time.sleep(0.5)
    gate = kept.start()
    assert gate.pool()["state"] != "released"
    gate.wait(lambda: not kept.file.exists())


@pytest.mark.parametrize("what", ["garbage", "pipe"])
def test_what_cannot_be_read_keeps_no_daemon_from_starting(kept: Kept, what: str) -> None:
    kept.file.parent.mkdir(parents=True)
    if what == "pipe":
        os.mkfifo(kept.file)
        os.mkfifo(kept.file.with_name("usage.new"))
    else:
        kept.file.write_bytes(b"\0" * 4096)
    gate = kept.start()
    assert gate.lines("state_problem")
    with gate.greeted(features=RELEASE) as raw:
        raw.ask(1, TWO)
        assert raw.end(1)["t"] == "done"
        gate.wait(lambda: (kept.file.parent / "usage.jsonl").exists())
        released(raw)
    (notice,) = gate.status()["notices"]
    assert notice["code"] == "state_damaged"
    assert f"{kept.file.parent}/closed.bad" in notice["detail"]
    assert (kept.file.parent / "closed.bad").exists()
    kept.end(signal.SIGKILL)
    assert kept.start().pool()["state"] == "released"


@pytest.mark.alone("model")
@pytest.mark.slow
def test_the_embedded_model_leaves_and_comes_back(tmp_path: Path, timeout_factor: float) -> None:
    with running_daemon(tmp_path / "d", OPENVINO, 120 * timeout_factor) as daemon:
        gate = Observed(daemon)
        host = gate.host_pid()
        with gate.greeted(features=RELEASE) as raw, gate.greeted() as other:
            greedy = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 60}
            for id in (1, 2):
                other.ask(id, "Write about the sea.", class_="batch", params=greedy)
                if id == 1:
                    assert other.end(1)["t"] == "done"
            told(other, 2)
            released(raw, until_ms=until(600))
            raw.ask(1, "Hi", params={"max_tokens": 4})
            assert raw.end(1)["reason"] == "released"
            assert taken_back(raw)
            assert other.end(2)["timings"]["preempted"] == 1
            assert other.text(2) == other.text(1), "its cache is gone, and its tokens are not"
        assert gate.pool()["loads"] == 2
        assert gate.host_pid() == host
