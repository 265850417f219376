"""Everything at once for a while: whatever was asked has one end, and nothing grows."""

import contextlib
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import ENDS, Raw, applied, generate, packed

# Seconds of traffic; an hour by hand.
SOAK_S = float(os.environ.get("ONEGATE_SOAK_S", "8"))
CLIENTS = 8

PROMPTS = [
    "[[tokens:1]]",
    "[[tokens:20]]",
    "[[tokens:300]]",
    "[[say:a|b||c]]",
    "a long prompt " * 100,
    "[[error:by itself]]",
    "[[refuse:not this]]",
    "[[hold-seat:30]] [[tokens:100]]",
    "x" * 20_000,
]
MISTAKES = [
    {"params": {"max_tokens": 0}},
    {"params": {"temperature": 9.0}},
    {"class": "royal"},
    {"model": "other"},
]


class Talker:
    """One client that comes, asks, cancels, leaves in the middle, and comes again."""

    def __init__(self, gate: Observed, seed: int) -> None:
        self._gate = gate
        self._dice = random.Random(seed)
        self.error: BaseException | None = None
        self.asked = 0
        self.ended = 0
        self._until_s = time.monotonic() + SOAK_S  # noqa: TID251  how long the test runs

    def run(self) -> None:
        try:
            while time.monotonic() < self._until_s:  # noqa: TID251
                with self._gate.connect() as raw:
                    self._talk(raw)
        except BaseException as error:  # judged in the thread of the test
            self.error = error

    def _talk(self, raw: Raw) -> None:
        dice = self._dice
        raw.greet(**{"class": dice.choice(["interactive", "loop", "batch"])})
        live: dict[int, int] = {}
        count = dice.randint(1, 12)
        for id in range(count):
            raw.write(self._request(id))
            live[id] = 0
        for id in dice.sample(range(count), count // 4):
            raw.say("cancel", id=id)
        if dice.random() < 0.3:
            return  # gone, with everything under way
        self.asked += count
        while live:
            assert raw.read(), "the daemon closed a connection that did nothing wrong"
            for answer in raw.inbox:
                if answer["t"] in ENDS and not _of_cancel(answer):
                    del live[answer["id"]]  # KeyError: two ends for one request
                    self.ended += 1
            raw.inbox.clear()

    def _request(self, id: int) -> bytes:
        dice = self._dice
        if dice.random() < 0.1:
            return packed({"t": "status", "id": id, "detail": True})
        if dice.random() < 0.1:
            return packed({"t": "count", "id": id, "prompt": "how long is this"})
        fields: dict[str, Any] = {"stream": dice.random() < 0.7, "progress": dice.random() < 0.5}
        if dice.random() < 0.1:
            fields |= dice.choice(MISTAKES)
        elif dice.random() < 0.5:
            fields["params"] = {"max_tokens": dice.choice([1, 50, 4000])}
        if dice.random() < 0.1:
            fields["timeout_ms"] = dice.randint(1, 200)
        return generate(id, dice.choice(PROMPTS), **fields)


def _of_cancel(answer: dict[str, Any]) -> bool:
    return answer["t"] == "ack" and (answer["verb"] == "cancel" or not applied(answer))


def _traffic(gate: Observed, seed: int, *, trouble: bool) -> tuple[int, int]:
    """Run the talkers; with `trouble` the engine dies and the file is read again meanwhile."""
    talkers = [Talker(gate, seed + n) for n in range(CLIENTS)]
    threads = [threading.Thread(target=talker.run) for talker in talkers]
    for thread in threads:
        thread.start()
    dice = random.Random(seed)
    until_s = time.monotonic() + SOAK_S  # noqa: TID251
    while trouble and time.monotonic() < until_s:  # noqa: TID251
        time.sleep(0.3 + dice.random())
        if dice.random() < 0.6:
            with contextlib.suppress(ProcessLookupError):  # it dies faster than it is killed
                os.kill(gate.host_pid(), signal.SIGKILL)
        gate.daemon.process.send_signal(signal.SIGHUP)
    for thread in threads:
        thread.join()
    for talker in talkers:
        if talker.error is not None:
            raise talker.error
    return sum(t.asked for t in talkers), sum(t.ended for t in talkers)


@pytest.mark.slow
def test_a_while_of_everything(tmp_path: Path, timeout_factor: float) -> None:
    """ONEGATE_SOAK_S=3600 for an hour."""
    config = scripted(
        engine="restart_backoff_ms = 10\nrestart_backoff_max_ms = 50",
        max_seqs=6,
        a_ms=1.0,
        c_ms_per_seq=0.1,
        kv_tok=8192,
    )
    with (
        observed(tmp_path / "d", config, 120 * timeout_factor) as gate,
        gate.greeted() as watch,
    ):
        asked, ended = _traffic(gate, 1, trouble=False)
        assert asked == ended > 0
        assert watch.status()["pools"][0]["restarts"] == 0
        gate.wait_idle()
        before = gate.figures_with(watch)
        asked, ended = _traffic(gate, 1000, trouble=True)
        assert asked == ended > 0
        gate.wait(lambda: watch.status()["pools"][0]["state"] == "ready")
        gate.wait_idle()
        after = gate.figures_with(watch)
        status = watch.status()
        print(  # noqa: T201
            f"{asked} requests with an end each, {status['pools'][0]['restarts']} engine deaths: "
            f"{before} -> {after}"
        )
        assert status["pools"][0]["restarts"] > 0
        assert (after.fds, after.threads) == (before.fds, before.threads)
        assert after.rss_mib < before.rss_mib + 10
        gate.check_unharmed()
