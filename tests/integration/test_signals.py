"""What the daemon does when it is told something by a signal, and how it ends."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import alive, descendants
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import Raw, hello

ONE_TOKEN = "[[tokens:1]]"
CONFIG = scripted(max_seqs=2, a_ms=3.0, context_tok=8192)


@pytest.fixture
def gate(tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    with observed(tmp_path / "d", CONFIG, 60 * timeout_factor) as daemon:
        yield daemon


def tell(gate: Observed, number: signal.Signals) -> None:
    gate.daemon.process.send_signal(number)


def ended(gate: Observed) -> int:
    """The exit code, once neither the daemon nor a child of it nor its socket is there."""
    gate.daemon.children |= descendants(gate.pid)
    code = gate.daemon.process.wait(gate.timeout_s)
    assert not [pid for pid in gate.daemon.children if alive(pid)]
    assert not Path(gate.socket).exists()
    return code


def drained(gate: Observed) -> str:
    """The one line about what became of all requests."""
    (line,) = gate.lines("drained")
    return line


# --- the end --------------------------------------------------------------------------------------


def test_what_runs_finishes_what_waits_is_refused_and_the_exit_code_is_0(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        raw.ask(1, "[[tokens:300]]", params={"max_tokens": 300})
        raw.ask(2, "[[tokens:300]]", params={"max_tokens": 300}, stream=False)
        raw.expect("started", 2)
        for id in range(3, 8):
            other.ask(id, ONE_TOKEN, params={"max_tokens": 1})
        gate.wait_states("decode", "decode", *["queued"] * 5)
        tell(gate, signal.SIGTERM)
        refused = [other.end(id) for id in range(3, 8)]
        assert {end["reason"] for end in refused} == {"shutting_down"}
        assert {end["phase"] for end in refused} == {"queued"}
        assert all(end["retryable"] for end in refused)
        # Spread out, so that they do not all come back at once.
        hints = [end["retry_after_ms"] for end in refused]
        assert min(hints) > 0
        assert len(set(hints)) == 5
        # Who comes during the drain on a connection that is there is told the same.
        other.ask(9, ONE_TOKEN)
        late = other.end(9)
        assert (late["reason"], late["phase"]) == ("shutting_down", "arrival")
        assert late["retry_after_ms"] > 0
        assert other.status()["state"] == "draining"
        with pytest.raises(OSError):  # noqa: PT011  nobody listens, or there is no socket any more
            gate.connect()
        for id in (1, 2):
            done = raw.end(id)
            assert (done["t"], done["usage"]["output_tok"]) == ("done", 300)
        raw.until_closed()
        other.until_closed()
    assert ended(gate) == 0
    assert "2 finished, 6 rejected, 0 aborted" in drained(gate)
    assert gate.lines("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_daemon_ends_at_once(gate: Observed, number: signal.Signals) -> None:
    with gate.greeted() as raw:
        tell(gate, number)
        assert raw.until_closed() == []
    assert ended(gate) == 0


def test_told_twice_it_drains_all_the_same(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:300]]")
        raw.expect("chunk", 1)
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            tell(gate, number)
        gate.wait(lambda: gate.lines("draining"))
        tell(gate, signal.SIGTERM)
        assert raw.end(1)["usage"]["output_tok"] == 300
        raw.until_closed()
    assert ended(gate) == 0
    assert len(gate.lines("draining")) == 1


def test_a_second_interrupt_from_the_keyboard_does_not_wait(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:8000]]", params={"max_tokens": 8000})
        raw.expect("chunk", 1)
        tell(gate, signal.SIGINT)
        gate.wait(lambda: gate.lines("draining"))
        tell(gate, signal.SIGINT)
        assert raw.end(1)["reason"] == "shutting_down"
    assert ended(gate) == 0
    assert "0 finished, 0 rejected, 1 aborted" in drained(gate)


def test_clients_that_leave_during_the_drain_shorten_it(gate: Observed) -> None:
    raw = gate.greeted()
    raw.ask(1, "[[tokens:8000]]", params={"max_tokens": 8000})
    raw.expect("chunk", 1)
    tell(gate, signal.SIGTERM)
    gate.wait(lambda: gate.lines("draining"))
    raw.close()
    assert ended(gate) == 0
    assert "0 finished, 0 rejected, 0 aborted" in drained(gate)


@pytest.mark.parametrize("prompt", ["[[tokens:8000]]", "[[hang:3]]", "[[freeze:2]]"])
def test_what_does_not_finish_in_time_is_aborted(
    prompt: str, tmp_path: Path, timeout_factor: float
) -> None:
    """Also where the engine hangs, or does not even take signals."""
    config = scripted(gate="drain_timeout_s = 0.5", max_seqs=2, a_ms=3.0, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted(features=["v1", "lease"]) as raw,
    ):
        raw.ask(1, prompt, params={"max_tokens": 8000})
        raw.expect("started", 1)
        tell(gate, signal.SIGTERM)
        failed = raw.end(1)
        assert failed["reason"] == "shutting_down"
        assert failed["retryable"] is True
        raw.until_closed()
        assert ended(gate) == 0
    assert "0 finished, 0 rejected, 1 aborted" in drained(gate)


def test_a_lease_is_waited_for_like_a_request(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(rest=f"[[grant]]\nuid = {os.getuid()}\ndelegate = true\n")
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted(features=["v1", "lease"]) as raw,
    ):
        raw.say("lease", id=1, prompt_tok=10, max_tok=10)
        raw.expect("started", 1)
        tell(gate, signal.SIGTERM)
        gate.wait(lambda: gate.lines("draining"))
        raw.say("settle", id=1)
        assert raw.end(1) == {"t": "ack", "id": 1, "verb": "settle"}
        raw.until_closed()
        assert ended(gate) == 0
    assert "1 finished, 0 rejected, 0 aborted" in drained(gate)


def test_a_client_that_does_not_read_does_not_hold_up_the_end(gate: Observed) -> None:
    with gate.greeted() as deaf:
        deaf.ask(1, "[[tokens:3000]] [[step-ms:0]]", params={"max_tokens": 3000})
        deaf.expect("chunk", 1)
        tell(gate, signal.SIGTERM)
        assert ended(gate) == 0


def test_connections_in_the_middle_of_a_sentence_do_not_either(gate: Observed) -> None:
    with gate.connect() as silent, gate.connect() as half:
        half.write(hello()[:9])
        tell(gate, signal.SIGTERM)
        assert ended(gate) == 0
        silent.until_closed()
        half.until_closed()


def test_told_to_end_while_the_engine_is_away(tmp_path: Path, timeout_factor: float) -> None:
    """Its request is queued again, and refused like all that wait."""
    config = scripted(engine="restart_backoff_ms = 60000", max_seqs=2, a_ms=3.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(1, "[[tokens:3000]]", params={"max_tokens": 3000})
        raw.expect("chunk", 1)
        os.kill(gate.host_pid(), signal.SIGKILL)
        raw.expect("paused", 1)
        tell(gate, signal.SIGTERM)
        failed = raw.end(1)
        assert failed["reason"] == "shutting_down"
        raw.until_closed()
        assert ended(gate) == 0


# --- the configuration, again ---------------------------------------------------------------------


def rewrite(gate: Observed, *changes: tuple[str, str]) -> str:
    """Change the daemon's file; returns what it was."""
    file = gate.daemon.directory / "onegate.toml"
    before = text = file.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, text
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return before


def reload(gate: Observed, event: str) -> list[str]:
    """SIGHUP, and the new lines of that event."""
    known = len(gate.lines(event))
    tell(gate, signal.SIGHUP)
    gate.wait(lambda: len(gate.lines(event)) > known)
    return gate.lines(event)[known:]


def test_new_limits_hold_from_now_on_and_evict_nobody(gate: Observed) -> None:
    with gate.greeted(**{"class": "batch"}) as raw:
        for id in range(6):
            raw.ask(id, "[[tokens:8000]]", params={"max_tokens": 8000})
        gate.wait(lambda: gate.status()["gate"]["queued"] == 4)
        rewrite(gate, ("[gate]", "[gate]\nmax_queued_tok = 256\nmax_in_flight = 7"))
        reload(gate, "config_reloaded")
        gate_status = raw.status()["gate"]
        assert (gate_status["max_queued_tok"], gate_status["max_in_flight"]) == (256, 7)
        assert gate_status["queued"] == 4
        raw.ask(9, "[[tokens:100]]", params={"max_tokens": 100})
        assert raw.end(9)["reason"] == "tokens_full"
        for id in range(2):
            raw.say("cancel", id=id)
        raw.expect("started", 2)
        raw.expect("started", 3)


def test_a_bad_file_changes_nothing_and_every_error_is_said(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:200]]")
        good = rewrite(
            gate, ("[gate]", '[gate]\nmax_in_flight = "many"\ncolour = 1\nmax_queued_tok = -1')
        )
        tell(gate, signal.SIGHUP)
        gate.wait(lambda: len(gate.lines("config_error")) == 3)
        said = "\n".join(gate.lines("config_error"))
        for key in ("gate.max_in_flight", "gate.colour", "gate.max_queued_tok"):
            assert key in said
        assert raw.status()["gate"]["max_in_flight"] == 64
        assert raw.end(1)["t"] == "done"
        # No file at all is no better than a bad one.
        file = gate.daemon.directory / "onegate.toml"
        file.unlink()
        reload(gate, "config_error")
        file.write_text(good, encoding="utf-8")
        reload(gate, "config_reloaded")
        gate.check_unharmed()


def test_what_needs_a_restart_says_so(gate: Observed) -> None:
    rewrite(gate, ("max_seqs = 2", "max_seqs = 9"), ("[gate]", "[gate]\nsocket_backlog = 9"))
    warnings = "\n".join(reload(gate, "config_warning"))
    gate.wait(lambda: gate.lines("config_reloaded"))
    warnings = "\n".join(gate.lines("config_warning"))
    assert "engine.scripted" in warnings
    assert "gate.socket_backlog needs a restart" in warnings
    assert gate.pool()["seats"] == 2


def test_rights_that_were_taken_are_gone_at_the_next_request(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.say("pause", id=1, **{"class": "batch"})
        assert raw.end(1)["t"] == "ack"
        raw.say("unpause", id=1, **{"class": "batch"})
        assert raw.end(1)["t"] == "ack"
        rewrite(gate, ('ceiling = "interactive"\nadmin = true', 'ceiling = "batch"\nadmin = false'))
        reload(gate, "config_reloaded")
        raw.say("pause", id=2, **{"class": "batch"})
        assert raw.end(2)["reason"] == "permission"
        raw.ask(3, ONE_TOKEN, **{"class": "interactive"})
        assert raw.end(3)["reason"] == "class_not_allowed"
        raw.ask(4, ONE_TOKEN)
        assert raw.end(4)["t"] == "done"
        gate.wait(lambda: gate.lines("request_end"))
        assert "class=batch" in gate.lines("request_end")[-1]


def test_reloading_again_and_again_under_load_loses_nothing(gate: Observed) -> None:
    with gate.greeted() as raw:
        for id in range(40):
            raw.ask(id, "[[tokens:10]]", params={"max_tokens": 10})
            tell(gate, signal.SIGHUP)
        assert [raw.end(id)["t"] for id in range(40)] == ["done"] * 40
        gate.wait_idle()


# --- beginnings that fail -------------------------------------------------------------------------


def start(directory: Path, config: str, path: str) -> subprocess.CompletedProcess[str]:
    """A daemon that is expected to end by itself."""
    (directory / "c.toml").write_text(config, encoding="utf-8")
    return subprocess.run(
        [
            *(sys.executable, "-m", "onegate.server.main"),
            *("--config", directory / "c.toml", "--socket", path),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_bad_configuration_is_listed_all_at_once_and_exits_with_78(tmp_path: Path) -> None:
    config = '[engine]\nkind = "magic"\n[gate]\nmax_in_flight = 0\nlook_ahed = 1\n'
    config += '[[class]]\nname = "x"\nrank = 1\n'
    done = start(tmp_path, config, str(tmp_path / "s"))
    assert done.returncode == os.EX_CONFIG
    for word in ("engine.kind", "openvino", "scripted", "gate.max_in_flight", "gate.look_ahed"):
        assert word in done.stderr
    assert "rank" in done.stderr
    assert len(done.stderr.splitlines()) >= 4
    assert not (tmp_path / "s").exists()


def test_a_second_daemon_leaves_the_first_alone(gate: Observed, tmp_path: Path) -> None:
    done = start(tmp_path, CONFIG, gate.socket)
    assert done.returncode == os.EX_UNAVAILABLE
    assert "another" in done.stderr
    gate.check_unharmed()


def test_told_to_end_before_the_model_is_there(tmp_path: Path, timeout_factor: float) -> None:
    """A load of ten minutes does not have to be waited for."""
    file, path = tmp_path / "c.toml", str(tmp_path / "s")
    file.write_text(scripted(switch_cost_ms=600_000), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "onegate.server.main", "--config", file, "--socket", path],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            while "serving" not in process.stderr.readline():
                assert process.poll() is None
            with Raw.connect(path, 60 * timeout_factor) as raw:
                raw.greet()
                raw.ask(1, ONE_TOKEN, progress=True)
                assert raw.expect("queued", 1)["limited_by"] == "loading"
                process.terminate()
                assert raw.end(1)["reason"] == "shutting_down"
            left = descendants(process.pid)
            assert process.wait(60 * timeout_factor) == 0
            assert not [pid for pid in left if alive(pid)]
        finally:
            process.kill()


def test_a_client_sees_nothing_of_a_daemon_that_was_stopped_for_a_while(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:200]]")
        raw.expect("chunk", 1)
        tell(gate, signal.SIGSTOP)
        with contextlib.suppress(TimeoutError):
            raw.sock.settimeout(0.5)
            while raw.read():
                pass
        tell(gate, signal.SIGCONT)
        raw.sock.settimeout(gate.timeout_s)
        assert raw.end(1)["usage"]["output_tok"] == 200
