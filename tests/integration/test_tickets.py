"""Who is refused because the queue is full is told when to come back, and finds room then."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import Answer, Raw

from onegate import Client, Rejected

# Behind one seat there is room for about nine of these requests.
FULL = "max_queued_tok = 2000"
ONEGATE = str(Path(sys.executable).with_name("onegate"))
WORK = "[[tokens:200]]"
SLOW_WORK = f"{WORK} [[step-ms:200]]"


@pytest.fixture
def gate(tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    config = scripted(gate=FULL, max_seqs=1, context_tok=2000, a_ms=2.0, c_ms_per_seq=0.0)
    with observed(tmp_path / "d", config, 60 * timeout_factor) as daemon:
        yield daemon


def ask(raw: Raw, id: int, work: str = WORK, **fields: Any) -> None:
    raw.ask(id, work, class_="batch", params={"max_tokens": 200}, **fields)


def fill(raw: Raw, work: str = WORK) -> Answer:
    """Ask until the queue is full, for good where `work` is slow, and the daemon knows how fast it
    has drained; the refusal."""
    ids = iter(range(200, 300))
    for id in range(100, 104):
        ask(raw, id)
    raw.end(100)
    _refused(raw, ids, work)
    for id in range(101, 104):
        assert raw.end(id)["t"] == "done"
    return _refused(raw, ids, work)


def _refused(raw: Raw, ids: Iterator[int], work: str) -> Answer:
    """Ask until one is refused; what was refused before does not count."""
    raw.inbox = [a for a in raw.inbox if a["t"] != "failed"]
    for id in ids:
        ask(raw, id, work)
        raw.status()
        refused = next((a for a in raw.inbox if a["t"] == "failed" and a["id"] >= id - 1), None)
        if refused is not None:
            return refused
    raise AssertionError("the queue is never full")


def rejected(gate: Observed) -> int:
    counts: dict[str, int] = gate.class_("batch")["rejected"]
    return sum(counts.values())


@contextlib.contextmanager
def crowd(gate: Observed) -> Iterator[None]:
    """Others come all the time, and take whatever room is left by those with tickets."""
    stop = threading.Event()

    def keep_full() -> None:
        with gate.greeted() as other:
            id = 1
            while not stop.is_set():
                ask(other, id)
                other.status()
                other.inbox.clear()
                id += 1
                stop.wait(0.05)

    thread = threading.Thread(target=keep_full)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_whoever_comes_when_told_to_is_let_in(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as late:
        refused = fill(raw)
        assert refused["reason"] == "tokens_full"
        assert refused["ticket"]
        ask(late, 1, ticket=refused["ticket"])
        early = late.end(1)
        assert early["ticket"] == refused["ticket"]  # too early, and it stays good
        time.sleep(early["retry_after_ms"] / 1000)
        ask(late, 2, ticket=early["ticket"])
        assert late.end(2)["t"] == "done"
        ask(late, 3, ticket=early["ticket"])  # good once; there may be room without
        late.end(3)


def test_a_client_that_honours_hints_gets_its_answer(gate: Observed) -> None:
    """It is refused once, comes back with its ticket, and is answered."""
    with gate.greeted() as raw:
        fill(raw)
        before = rejected(gate)
        with crowd(gate), Client(gate.socket, app="patient", retry="honour") as client:
            reply = client.generate(WORK, class_="batch", max_tokens=200)
        assert reply.usage.output_tok == 200
        assert rejected(gate) > before


def test_a_client_that_does_not_wait_is_told_when(gate: Observed) -> None:
    with gate.greeted() as raw:
        fill(raw)
        with Client(gate.socket, app="hasty", retry="never") as client:
            with pytest.raises(Rejected) as refused:
                client.generate(WORK, class_="batch", max_tokens=200)
        assert refused.value.retry_after is not None
        assert refused.value.retry_after > 0
        assert refused.value.ticket


def test_the_command_says_when_or_waits(gate: Observed) -> None:
    command = [ONEGATE, "ask", WORK, "--class", "batch", "--max-tokens", "200"]
    command += ["--socket", gate.socket]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ONEGATE_")}

    def start(*more: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*command, *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept,
        )

    with gate.greeted() as raw:
        fill(raw, SLOW_WORK)
        with start() as hasty:
            out, said = hasty.communicate(timeout=gate.timeout_s)
        assert (hasty.returncode, out) == (75, "")
        assert "try again in " in said
        assert "`onegate ask --wait` a place is kept" in said
        before = rejected(gate)
        with start("--wait") as patient:
            try:
                gate.wait(lambda: rejected(gate) > before)
                raw.close()  # the others leave, and it comes back by itself
                out, said = patient.communicate(timeout=gate.timeout_s)
            finally:
                patient.kill()
    assert patient.returncode == 0, said
    assert len(out.split()) == 200
