"""The engine dies, hangs or talks nonsense: it is started again, and requests end by the rules.

Nothing seen by its client: queued again. Resumable: goes on as if nothing had been. Else: failed.
Inside at two deaths: taken for their cause.
"""

import os
import re
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import OPENVINO, descendants, running_daemon
from tests.integration.daemon import Figures, Observed, observed, scripted
from tests.integration.raw import Answer, Raw, nothing_here

FAST = "restart_backoff_ms = 10\nrestart_backoff_max_ms = 100"
ONE_TOKEN = "[[tokens:1]]"
SAMPLED = {"temperature": 0.7}  # cannot be continued exactly


@pytest.fixture
def gate(tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    """Twelve seats and slow enough steps that something can happen in between."""
    config = scripted(engine=FAST, max_seqs=12, a_ms=3.0, c_ms_per_seq=0.0, max_step_tok=1024)
    with observed(tmp_path / "d", config, 60 * timeout_factor) as daemon:
        yield daemon


def kill_host(gate: Observed) -> None:
    """SIGKILL, and wait for the next one to serve."""
    restarts, host = gate.pool()["restarts"], gate.host_pid()
    os.kill(host, signal.SIGKILL)
    gate.wait(lambda: gate.pool()["restarts"] > restarts and gate.pool()["state"] == "ready")
    assert gate.host_pid() != host
    assert nothing_here(host)


def story(id: int) -> str:
    return f"story number {id} [[tokens:300]]"


def undisturbed(raw: Raw, prompts: list[str], **params: object) -> list[str]:
    """What these prompts are answered when nothing goes wrong."""
    for id, prompt in enumerate(prompts):
        raw.ask(id, prompt, params=params)
    ends = [raw.end(id) for id in range(len(prompts))]
    assert {end["t"] for end in ends} == {"done"}
    return [raw.text(id) for id in range(len(prompts))]


def mine(raw: Raw, id: int, *tags: str) -> list[Answer]:
    return [a for a in raw.inbox if a.get("id") == id and a["t"] in tags]


def test_ten_streams_go_on_as_if_nothing_had_been(gate: Observed) -> None:
    with gate.greeted() as raw:
        prompts = [story(id) for id in range(10)]
        expected = undisturbed(raw, prompts, max_tokens=300)
        raw.inbox.clear()
        for id, prompt in enumerate(prompts):
            raw.ask(id, prompt, params={"max_tokens": 300})
        chunks = [raw.expect("chunk", id) for id in range(10)]
        raw.inbox += chunks
        kill_host(gate)
        for id in range(10):
            done = raw.end(id)
            assert done["t"] == "done", done
            assert done["usage"] == {"prompt_tok": -(-len(prompts[id]) // 4), "output_tok": 300}
            assert [notice["code"] for notice in done["notices"]] == ["engine_restarted"]
            assert done["timings"]["preempted"] == 1
            assert [a["t"] for a in mine(raw, id, "paused", "resumed")] == ["paused", "resumed"]
            assert sum(a.get("n_tok", 0) for a in mine(raw, id, "chunk")) == 300
            parts = mine(raw, id, "chunk")
            first = next(c for c in chunks if c["id"] == id)
            parts.remove(first)
            assert first["text"] + "".join(a.get("text", "") for a in parts) == expected[id]
        gate.wait_idle()
        gate.check_unharmed()


def test_what_waits_keeps_its_place(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(engine=FAST, max_seqs=1, a_ms=3.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(0, "[[tokens:400]]", params={"max_tokens": 400})
        raw.inbox.append(raw.expect("chunk", 0))
        for id in range(1, 6):
            raw.ask(id, "[[tokens:2]]", params={"max_tokens": 2})
        gate.wait(lambda: gate.status()["gate"]["queued"] == 5)
        kill_host(gate)
        order = []
        while len(order) < 6:
            order.append(raw.find(lambda a: a["t"] in ("done", "failed")))
        assert [(a["t"], a["id"]) for a in order] == [("done", id) for id in range(6)]


ENDS_OF_OTHERS: dict[str, tuple[dict[str, object], str]] = {
    "sampled, streaming": ({"params": SAMPLED}, "failed"),
    "sampled, nothing seen": ({"params": SAMPLED, "stream": False}, "done"),
    "greedy, not streaming": ({"stream": False}, "done"),
}


@pytest.mark.parametrize("name", ENDS_OF_OTHERS)
def test_what_cannot_be_continued_is_begun_again_or_fails(gate: Observed, name: str) -> None:
    fields, end = ENDS_OF_OTHERS[name]
    with gate.greeted() as raw:
        (expected,) = undisturbed(raw, [story(0)])
        raw.inbox.clear()
        raw.ask(1, story(0), **fields)
        gate.wait_states("decode")
        kill_host(gate)
        last = raw.end(1)
        assert last["t"] == end, last
        if end == "failed":
            assert (last["reason"], last["retryable"]) == ("engine_failed", True)
            assert last["phase"] == "decode"
        else:
            assert raw.text(1) == expected
            assert last["usage"]["output_tok"] == 300
        gate.wait_idle()


def test_a_prompt_that_was_being_read_is_read_again(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(engine=FAST, max_step_tok=4, b_ms_per_prefill_tok=0.0, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(1, "a word " * 600 + "[[tokens:5]]", params=SAMPLED)
        gate.wait_states("prefill")
        kill_host(gate)
        assert raw.end(1)["usage"]["output_tok"] == 5


def test_inside_at_two_deaths_is_not_tried_again(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:4000]]")
        raw.expect("chunk", 1)
        kill_host(gate)
        raw.expect("resumed", 1)
        raw.expect("chunk", 1)
        raw.ask(2, "[[tokens:300]]")
        raw.expect("chunk", 2)
        kill_host(gate)
        failed = raw.end(1)
        assert (failed["reason"], failed["retryable"]) == ("engine_failed", False)
        # Inside at one of them only.
        assert raw.end(2)["t"] == "done"


# What a prompt does to its host: each of these is the end of it.
FAULTS = ["die:3", "die-before-first", "close:3", "garbage:3", "half-utf8:3", "huge-frame:3"]
FAULTS += ["wrong-id:3", "hang:3", "hang:0", "freeze:3"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_request_that_breaks_the_engine_twice_is_the_only_one_that_fails(
    fault: str, tmp_path: Path, timeout_factor: float
) -> None:
    """Two seats: one beside the poison goes on, and those that wait behind it are all answered."""
    config = scripted(engine=f"{FAST}\nstall_floor_s = 1.5", max_seqs=1, a_ms=2.0)
    with (
        observed(tmp_path / "d", config, 90 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as other,
    ):
        raw.ask(1, f"[[{fault}]] [[tokens:50]]", params={"max_tokens": 50})
        raw.expect("started", 1)
        for id in range(5):
            other.ask(id, "[[tokens:3]]", params={"max_tokens": 3})
        failed = raw.end(1)
        assert failed["t"] == "failed", failed
        assert (failed["reason"], failed["retryable"]) == ("engine_failed", False)
        assert {other.end(id)["t"] for id in range(5)} == {"done"}
        assert gate.pool()["restarts"] == 2
        gate.wait_idle()
        raw.ask(2, ONE_TOKEN)
        assert raw.end(2)["t"] == "done"


def test_one_that_fails_by_itself_takes_nothing_down(gate: Observed) -> None:
    with gate.greeted() as raw:
        host = gate.host_pid()
        raw.ask(1, "[[tokens:100]]")
        raw.ask(2, "[[error:out of cheese]]")
        raw.ask(3, "[[refuse:no such thing]]")
        failed = raw.end(2)
        assert (failed["reason"], failed["retryable"]) == ("engine_failed", True)
        assert "out of cheese" in failed["message"]
        refused = raw.end(3)
        assert (refused["reason"], refused["path"]) == ("invalid", "prompt")
        assert raw.end(1)["t"] == "done"
        assert gate.host_pid() == host
        gate.wait_idle()


def test_a_host_that_dies_idle_is_started_again(gate: Observed) -> None:
    kill_host(gate)
    gate.check_unharmed()
    assert not gate.status()["notices"]


def test_cancelled_while_the_engine_is_away(gate: Observed) -> None:
    """The request is queued again when its client leaves, or goes by itself."""
    with gate.greeted() as raw, gate.greeted() as leaving:
        raw.ask(1, "[[tokens:4000]]")
        leaving.ask(1, "[[tokens:4000]]")
        raw.expect("chunk", 1)
        leaving.expect("chunk", 1)
        os.kill(gate.host_pid(), signal.SIGKILL)
        raw.expect("paused", 1)
        leaving.close()
        raw.say("cancel", id=1)
        assert raw.end(1)["reason"] in ("cancelled", "engine_failed")
        gate.wait_idle()
        gate.wait(lambda: gate.pool()["state"] == "ready")
        gate.check_unharmed()


def test_an_engine_that_does_not_come_back(tmp_path: Path, timeout_factor: float) -> None:
    """Newcomers are refused for now, what waits waits, and status says why; then it comes back."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    config = scripted(engine=f'{FAST}\npython = "{python}"', max_seqs=1, a_ms=2.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(1, "[[tokens:300]]", params={"max_tokens": 300})
        raw.expect("chunk", 1)
        raw.ask(2, "[[tokens:2]]", params={"max_tokens": 2})
        gate.wait(lambda: gate.status()["gate"]["queued"] == 1)
        away = python.rename(tmp_path / "away")
        os.kill(gate.host_pid(), signal.SIGKILL)
        gate.wait(lambda: "cannot be started" in (gate.pool()["error"] or ""))
        status = raw.status()
        assert status["gate"]["queued"] == 2
        assert [notice["code"] for notice in status["notices"]] == ["engine_down"]
        with gate.greeted() as newcomer:

            def refused() -> bool:
                newcomer.ask(1, ONE_TOKEN)
                end = newcomer.end(1)
                return end["t"] == "failed" and end["reason"] == "engine_unavailable"

            gate.wait(refused)
        away.rename(python)
        assert raw.end(1)["usage"]["output_tok"] == 300
        assert raw.end(2)["t"] == "done"
        assert not raw.status()["notices"]


def test_restarts_leave_nothing_behind(gate: Observed) -> None:
    with gate.greeted() as watch:
        kill_host(gate)
        before = gate.figures_with(watch)
        for _ in range(5):
            kill_host(gate)
        after = gate.figures_with(watch)
        assert (after.fds, after.threads) == (before.fds, before.threads)
        assert after.rss_mib < before.rss_mib + 8
        assert descendants(gate.pid) == {gate.host_pid()}


def test_the_host_ends_with_a_daemon_that_is_killed(tmp_path: Path, timeout_factor: float) -> None:
    """In the middle of everything, and the next daemon takes the socket over."""
    config = scripted(max_seqs=4, a_ms=3.0)
    timeout_s = 60 * timeout_factor
    with (
        running_daemon(tmp_path / "d", config, timeout_s) as daemon,
        Observed(daemon).greeted() as raw,
    ):
        gate = Observed(daemon)
        raw.ask(1, "[[tokens:4000]]")
        raw.expect("chunk", 1)
        left = descendants(gate.pid)
        assert gate.host_pid() in left
        daemon.process.kill()
        daemon.process.wait()
        assert not [a for a in raw.until_closed() if a["t"] in ("done", "failed")]
        _wait_gone(left, timeout_s)
        assert Path(daemon.socket).exists()
        with observed(tmp_path / "d", config, timeout_s) as heir:
            heir.check_unharmed()


def _wait_gone(pids: set[int], timeout_s: float) -> None:
    for pid in pids:
        # A pidfd is readable once the process has ended, reaped or not.
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        ready, _, _ = select.select([pidfd], [], [], timeout_s)
        os.close(pidfd)
        assert ready, f"process {pid} outlived its daemon"


@pytest.mark.alone("model")
@pytest.mark.slow
def test_real_text_goes_on_across_a_death(tmp_path: Path, timeout_factor: float) -> None:
    """Ten answers of the embedded model that count upwards: cut in the middle, they count on.

    What a model counts does not hang on the last bit of its arithmetic, as the words of a story
    do: those differ from run to run with the company that a sequence is computed in.
    """
    openvino = OPENVINO + FAST + "\nmax_seqs = 10\n"
    params: dict[str, Any] = {"max_tokens": 40, "temperature": 0.0, "ignore_eos": True}
    firsts = range(10, 110, 10)
    with (
        observed(tmp_path / "d", openvino, 180 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        for id, first in enumerate(firsts):
            numbers = ", ".join(str(number) for number in range(first, first + 12))
            raw.ask(id, f"Continue this list: {numbers},", params=params)
        gate.wait(lambda: sum(row["output_tok"] > 4 for row in gate.requests()) == 10)
        kill_host(gate)
        ends = [raw.end(id) for id in range(10)]
        assert [end["t"] for end in ends] == ["done"] * 10, ends
        assert {end["usage"]["output_tok"] for end in ends} == {40}
        for id in range(10):
            assert [a["t"] for a in mine(raw, id, "paused", "resumed")] == ["paused", "resumed"]
            text = raw.text(id)
            counted = [int(number) for number in re.findall(r"\d+", text)][:-1]
            begins = next(i for i, n in enumerate(counted) if counted[i + 1] == n + 1)
            counted = counted[begins:]
            assert len(counted) > 3, text
            assert counted == list(range(counted[0], counted[0] + len(counted))), text
        gate.wait_idle()


def test_the_daemon_alone_is_small(gate: Observed) -> None:
    figures = Figures.of(gate.pid)
    print(f"daemon alone: {figures}")  # noqa: T201
    assert figures.rss_mib < 60
