"""Two models and room for one: which is loaded, and what becomes of those who run meanwhile."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.daemon import Observed, observed
from tests.integration.raw import Raw

CONFIG = """
[engine]
kind = "scripted"
restart_backoff_ms = 10
restart_backoff_max_ms = 100
[[engine.scripted.pools]]
model = "a"
max_seqs = 1
a_ms = 2.0
switch_cost_ms = 100
[[engine.scripted.pools]]
model = "b"
max_seqs = 1
a_ms = 2.0
switch_cost_ms = 100
[gate]
floor_window_s = 0.25
[[class]]
name = "interactive"
behaviour_live = 1000
behaviour_starts_per_min = 100000
"""
GREEDY = {"temperature": 0.0}


@pytest.fixture
def gate(tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    with observed(tmp_path / "d", CONFIG, 60 * timeout_factor) as daemon:
        yield daemon
        daemon.wait_idle()


def ask(raw: Raw, id: int, model: str, class_: str, tok: int) -> None:
    prompt, params = f"say [[tokens:{tok}]]", {**GREEDY, "max_tokens": tok}
    raw.ask(id, prompt, model=model, class_=class_, params=params)


def pools(gate: Observed) -> dict[str, tuple[str, int]]:
    """State and loads of each."""
    return {pool["model"]: (pool["state"], pool["loads"]) for pool in gate.status()["pools"]}


def test_a_model_is_loaded_for_whoever_asks_for_it(gate: Observed) -> None:
    with gate.greeted() as raw:
        for id, model in enumerate("abab"):
            ask(raw, id, model, "batch", 5)
            assert raw.end(id)["t"] == "done"
    assert pools(gate) == {"a": ("cold", 2), "b": ("ready", 2)}


def test_a_person_who_needs_another_model_has_it_loaded_over_batch(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        ask(raw, 9, "a", "batch", 500)
        assert raw.end(9)["t"] == "done"
        expected = raw.text(9)
        raw.inbox.clear()
        ask(raw, 1, "a", "batch", 500)
        raw.inbox.append(raw.expect("chunk", 1))
        ask(other, 2, "b", "interactive", 5)
        assert other.end(2)["t"] == "done"
        done = raw.end(1)
        assert (done["t"], done["timings"]["preempted"]) == ("done", 1)
        assert raw.text(1) == expected
        said = [a["t"] for a in raw.inbox if a["t"] != "chunk"]
        assert said == ["started", "paused", "resumed"]
    assert pools(gate) == {"a": ("ready", 2), "b": ("cold", 1)}


def test_batch_of_another_model_has_its_turn_behind_people_who_never_end(gate: Observed) -> None:
    """By its floor: after the window, divided by its share of one in twenty."""
    with gate.greeted() as raw, gate.greeted() as other:
        ask(raw, 1, "b", "batch", 20)
        id = 10
        ask(other, id, "a", "interactive", 30)
        raw.sock.settimeout(0.001)
        while not any(a["t"] in ("done", "failed") and a.get("id") == 1 for a in raw.inbox):
            ask(other, id + 1, "a", "interactive", 30)  # before the one before it has ended
            assert other.end(id)["t"] == "done"
            other.inbox.clear()
            id += 1
            try:
                raw.read()
            except TimeoutError:
                continue
        raw.sock.settimeout(gate.timeout_s)
        done = raw.end(1)
        assert done["t"] == "done", done
        assert done["timings"].get("preempted", 0) == 0, "its turn is its own"
        assert other.end(id)["t"] == "done"
    assert gate.class_("batch")["preempted"] == 0


def test_the_engine_is_killed_while_it_loads(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        ask(raw, 1, "a", "batch", 50)
        ask(other, 2, "b", "interactive", 50)
        gate.wait(lambda: pools(gate)["b"][0] == "loading")
        os.kill(gate.host_pid(), signal.SIGKILL)
        assert other.end(2)["t"] == raw.end(1)["t"] == "done"
    gate.check_unharmed()
