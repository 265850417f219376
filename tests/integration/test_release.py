"""However a request ends, its permit goes back at once and its seat as soon as the engine says so.

Nothing here waits for a clock of the daemon's but where the clock is what is tested.
"""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import Answer, Raw, Victim, applied, generate, hello, packed

# One seat, so that the second request waits. Prompts and answers that are long take longer than any
# test waits, so that they end early or not at all.
ONE_SEAT: dict[str, Any] = {
    "max_seqs": 1,
    "a_ms": 3.0,
    "b_ms_per_prefill_tok": 15.0,
    "max_step_tok": 1,
    "context_tok": 8192,
}
LONG = "a long answer [[tokens:8000]] [[step-ms:25]]"
LONG_PROMPT = "a word and then another one " * 600
ONE_TOKEN = "[[tokens:1]]"
LEASE = ["v1", "lease"]
DELEGATE = f"[[grant]]\nuid = {os.getuid()}\ndelegate = true\n"


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory, timeout_factor: float) -> Iterator[Observed]:
    config = scripted(rest=DELEGATE, **ONE_SEAT)
    with observed(tmp_path_factory.mktemp("release"), config, 60 * timeout_factor) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def _released(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "gate" in request.fixturenames:
        gate: Observed = request.getfixturevalue("gate")
        gate.wait_idle()
        gate.check_unharmed()


# --- clients that are killed ----------------------------------------------------------------------

# What it asks, and the states of all live requests once it is where it is to be killed. The first
# victim of "queued" holds the seat, the second waits.
PHASES: dict[str, tuple[list[bytes], list[str]]] = {
    "prefilling": ([generate(1, LONG_PROMPT)], ["prefill"]),
    "decoding": ([generate(1, LONG)], ["decode"]),
    "not streaming": ([generate(1, LONG, stream=False)], ["decode"]),
    "queued": ([generate(1, LONG), generate(2, LONG)], ["decode", "queued"]),
    "leasing": ([packed({"t": "lease", "id": 1, "prompt_tok": 9, "max_tok": 9})], ["granted"]),
}


@pytest.mark.parametrize("reads", [True, False], ids=["reading", "not reading"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_is_killed_leaves_nothing(gate: Observed, phase: str, reads: bool) -> None:
    asked, states = PHASES[phase]
    victim = gate.victim(hello(features=LEASE) + b"".join(asked), read=reads)
    try:
        gate.wait_states(*states)
    finally:
        victim.kill()
    gate.wait_idle()


def test_of_a_killed_client_only_its_own_go(gate: Observed) -> None:
    """The one behind it in the queue starts in its place."""
    victim = gate.victim(hello() + generate(1, LONG))
    try:
        gate.wait_states("decode")
        with gate.greeted() as other:
            other.ask(1, "next [[tokens:5]]")
            gate.wait_states("decode", "queued")
            victim.kill()
            assert other.end(1)["usage"]["output_tok"] == 5
    finally:
        victim.kill()


def random_request(dice: random.Random, id: int) -> bytes:
    prompt = dice.choice([ONE_TOKEN, LONG, LONG_PROMPT, "[[tokens:30]]", "[[hold-seat:20]]"])
    class_ = dice.choice(["interactive", "loop", "batch"])
    asked = {"class": class_, "stream": dice.random() < 0.7, "progress": dice.random() < 0.3}
    return generate(id, prompt, **asked)


@pytest.mark.slow
def test_random_kills_leave_ledger_descriptors_threads_and_memory_flat(
    tmp_path: Path, timeout_factor: float
) -> None:
    """100 here; ONEGATE_KILLS=1000 for a thousand."""
    kills = int(os.environ.get("ONEGATE_KILLS", "100"))
    dice = random.Random(1)
    config = scripted(max_seqs=4, a_ms=1.0, max_step_tok=16, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 120 * timeout_factor) as gate,
        gate.greeted() as watch,
    ):
        _kill(gate, dice, 30)  # caches, allocators and pools have their size after this
        before = gate.figures_with(watch)
        host_pid = gate.host_pid()
        _kill(gate, dice, kills)
        after = gate.figures_with(watch)
        counts = watch.status()["classes"]
        cancelled = sum(class_["cancelled"] for class_ in counts)
        print(f"{kills} kills: {before} -> {after}, cancelled {cancelled}")  # noqa: T201
        assert after.fds == before.fds
        assert after.threads == before.threads
        assert after.rss_mib < before.rss_mib + 8
        assert gate.host_pid() == host_pid
        assert not gate.lines("engine_exited")
        assert sum(class_["failed"] for class_ in counts) == 0


def _kill(gate: Observed, dice: random.Random, kills: int) -> None:
    victims: list[Victim] = []
    try:
        for _ in range(kills):
            asked = b"".join(random_request(dice, id) for id in range(dice.randint(1, 3)))
            if dice.random() < 0.1:
                asked = asked[: len(asked) // 2]  # killed in the middle of a sentence
            victims.append(gate.victim(hello() + asked, read=dice.random() < 0.8))
            time.sleep(dice.random() * 0.01)
            if len(victims) > 8:
                victims.pop(dice.randrange(len(victims))).kill()
    finally:
        for victim in victims:
            victim.kill()
    gate.wait_idle()


# --- requests that are cancelled ------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
def test_a_cancelled_request_ends_where_it_is(gate: Observed, phase: str) -> None:
    asked, states = PHASES[phase]
    last = len(asked)
    with gate.greeted(features=LEASE) as raw:
        raw.write(b"".join(asked))
        gate.wait_states(*states)
        raw.say("cancel", id=last)
        assert applied(raw.find(lambda a: a["t"] == "ack"))
        failed = raw.end(last)
        assert failed["reason"] == "cancelled"
        assert failed["phase"] == states[-1]
        # The seat is the engine's to free, and the next one gets it.
        if last == 2:
            raw.say("cancel", id=1)
        raw.ask(last, ONE_TOKEN)
        assert raw.end(last)["t"] == "done"


@pytest.mark.parametrize("phase", PHASES)
def test_an_administrator_cancels_anything(gate: Observed, phase: str) -> None:
    asked, states = PHASES[phase]
    with gate.greeted(features=LEASE) as raw, gate.greeted() as admin:
        raw.write(b"".join(asked))
        gate.wait_states(*states)
        for place, row in enumerate(admin.requests()):
            admin.say("cancel_any", id=place, rid=row["rid"])
            assert admin.end(place) == {"t": "ack", "id": place, "verb": "cancel_any"}
        failed = raw.end(len(asked))
        assert failed["reason"] == "cancelled"
        assert "administrator" in failed["message"]
        admin.say("cancel_any", id=9, rid=failed["rid"])
        assert not applied(admin.end(9))


def test_a_seat_that_the_engine_does_not_free_is_quarantined(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, LONG + "[[hold-seat:1500]]")
        raw.expect("chunk", 1)
        raw.say("cancel", id=1)
        assert raw.end(1)["reason"] == "cancelled"
        status = raw.status()
        assert status["gate"]["in_flight"] == 0
        assert status["pools"][0]["seats_quarantined"] == 1
        assert status["pools"][0]["kv_tok_used"] > 0
        # Nobody is put beside it: the one seat is not free.
        raw.ask(2, ONE_TOKEN, progress=True)
        assert raw.expect("queued", 2)["limited_by"] == "seats"
        assert raw.end(2)["t"] == "done"
        assert raw.status()["pools"][0]["seats_quarantined"] == 0


def test_a_seat_is_the_next_ones_within_two_steps(tmp_path: Path, timeout_factor: float) -> None:
    """Counted in tokens of a neighbour, who says one in each step, on the connection that waits."""
    config = scripted(max_seqs=2, a_ms=40.0, c_ms_per_seq=0.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as victim,
    ):
        for turn in range(5):
            victim.ask(turn, "[[tokens:2000]]", params={"max_tokens": 2000})
            rid = victim.expect("started", turn)["rid"]
            victim.expect("chunk", turn)
            raw.ask(1, "[[tokens:2000]]", params={"max_tokens": 2000})
            raw.expect("chunk", 1)
            raw.ask(2, ONE_TOKEN, params={"max_tokens": 1}, progress=True)
            raw.expect("queued", 2)
            raw.say("cancel_any", id=3, rid=rid)
            raw.end(3)
            raw.inbox.clear()
            raw.find(lambda a: a["t"] == "started")
            steps = sum(answer["t"] == "chunk" for answer in raw.inbox)
            assert steps <= 2
            raw.end(2)
            raw.say("cancel", id=1)
            raw.end(1)
            gate.wait_idle()


# --- requests that run out of time ----------------------------------------------------------------

LATE: dict[str, tuple[dict[str, object], str, str, str]] = {
    "ttft in the queue": ({"ttft_timeout_ms": 300}, ONE_TOKEN, "ttft_deadline_exceeded", "queued"),
    "all of it in the queue": ({"timeout_ms": 300}, ONE_TOKEN, "deadline_exceeded", "queued"),
    "ttft in prefill": (
        {"ttft_timeout_ms": 1000},
        LONG_PROMPT,
        "ttft_deadline_exceeded",
        "prefill",
    ),
    "all of it in prefill": ({"timeout_ms": 1000}, LONG_PROMPT, "deadline_exceeded", "prefill"),
    "all of it in decode": ({"timeout_ms": 1000}, LONG, "deadline_exceeded", "decode"),
    "all of it, not streaming": (
        {"timeout_ms": 1000, "stream": False},
        LONG,
        "deadline_exceeded",
        "decode",
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_a_request_that_runs_out_of_time(gate: Observed, name: str) -> None:
    fields, prompt, reason, phase = LATE[name]
    with gate.greeted() as holder, gate.greeted() as raw:
        if phase == "queued":
            holder.ask(1, LONG)
            holder.expect("chunk", 1)
        raw.ask(1, prompt, **fields)
        failed = raw.end(1)
        assert (failed["reason"], failed["phase"]) == (reason, phase)
        assert failed["retryable"] is True
        assert ("started" in {a["t"] for a in raw.inbox}) is (phase != "queued")
    outcome = "expired" if phase == "queued" else "aborted"
    rid = failed["rid"]
    gate.wait(lambda: [line for line in gate.lines("request_end") if f"rid={rid} " in line])
    (line,) = [line for line in gate.lines("request_end") if f"rid={rid} " in line]
    assert f"outcome={outcome} reason={reason}" in line


def test_a_ttft_timeout_is_over_with_the_first_token(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:80]] [[step-ms:30]]", ttft_timeout_ms=2000)
        assert raw.end(1)["usage"]["output_tok"] == 80


def test_the_safety_timeout_takes_the_permit_whatever_the_engine_does(
    tmp_path: Path, timeout_factor: float
) -> None:
    """A step that never ends: the permit is back, the seat in quarantine until the engine is."""
    config = scripted(
        engine="stall_floor_s = 5.0\nrestart_backoff_ms = 10",
        rest='[[class]]\nname = "loop"\nsafety_timeout_s = 1.5\n',
        max_seqs=2,
        a_ms=2.0,
    )
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        host = gate.host_pid()
        raw.ask(1, "[[hang:3]]", **{"class": "loop"})
        failed = raw.end(1)
        assert (failed["reason"], failed["phase"]) == ("engine_timeout", "decode")
        assert failed["retryable"] is True
        status = raw.status()
        assert status["gate"]["in_flight"] == 0
        assert status["pools"][0]["seats_quarantined"] == 1
        assert status["pools"][0]["state"] == "ready"
        gate.wait(lambda: gate.pool()["seats_quarantined"] == 0)
        assert gate.pool()["restarts"] == 1
        gate.wait(lambda: gate.pool()["state"] == "ready")
        assert gate.host_pid() != host
        raw.ask(2, ONE_TOKEN)
        assert raw.end(2)["t"] == "done"


# --- clients that do not read ---------------------------------------------------------------------


def test_a_client_that_never_reads_loses_its_streams_and_nobody_elses(
    tmp_path: Path, timeout_factor: float
) -> None:
    config = scripted(
        gate="write_buffer_max_bytes = 65536\nwrite_high_water_bytes = 65536",
        max_seqs=8,
        a_ms=0.3,
        c_ms_per_seq=0.0,
        context_tok=100_000,
        kv_tok=1_000_000,
        rest='[[class]]\nname = "loop"\nmax_queued_tok = 262144\nmax_tokens_max = 20000\n',
    )
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as deaf,
        gate.greeted() as other,
    ):
        for id in range(5):
            deaf.ask(id, "[[tokens:20000]]")
        other.ask(1, "[[tokens:1500]]")
        assert other.end(1)["usage"]["output_tok"] == 1500
        # Whoever does not read is told so once it does.
        gate.wait(lambda: len(gate.lines("request_end")) == 6)
        reasons = {deaf.end(id)["reason"] for id in range(5)}
        assert reasons == {"slow_reader"}
        deaf.inbox.clear()
        # Its connection lives: it may behave better from now on.
        deaf.ask(7, ONE_TOKEN)
        assert deaf.end(7)["t"] == "done"
        gate.wait_idle()


def test_a_client_that_asks_on_and_on_without_reading_is_cut(
    tmp_path: Path, timeout_factor: float
) -> None:
    config = scripted(gate="write_buffer_max_bytes = 65536\nwrite_high_water_bytes = 65536")
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as deaf,
    ):
        sessions = gate.status()["gate"]["sessions"]
        asked = 0
        try:
            while asked < 10_000:
                deaf.say("status", id=asked)
                asked += 1
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert asked < 10_000
        gate.wait(lambda: gate.status()["gate"]["sessions"] == sessions - 1)


# --- leases ---------------------------------------------------------------------------------------


def lease(raw: Raw, id: int, **fields: object) -> None:
    raw.say("lease", id=id, **({"prompt_tok": 100, "max_tok": 50} | fields))


def test_a_lease_is_started_settled_and_acknowledged(gate: Observed) -> None:
    with gate.greeted(features=LEASE) as raw:
        lease(raw, 1)
        raw.expect("started", 1)
        pool = gate.pool()
        assert (pool["seats_used"], pool["kv_tok_used"]) == (1, 150)
        raw.say("settle", id=1, usage={"prompt_tok": 90, "output_tok": 7})
        assert raw.end(1) == {"t": "ack", "id": 1, "verb": "settle"}
        assert gate.pool()["seats_used"] == 0
        raw.say("settle", id=1)
        assert not applied(raw.find(lambda a: a["t"] == "ack"))
    line = gate.lines("request_end")[-1]
    assert "outcome=finished" in line
    assert "prompt_tok=90 out_tok=7" in line


def test_a_lease_takes_a_seat_from_the_others(gate: Observed) -> None:
    with gate.greeted(features=LEASE) as raw:
        lease(raw, 1)
        raw.expect("started", 1)
        raw.ask(2, ONE_TOKEN, progress=True)
        assert raw.expect("queued", 2)["limited_by"] == "seats"
        raw.say("settle", id=1)
        assert raw.end(2)["t"] == "done"


def test_the_end_of_the_connection_settles_a_lease(gate: Observed) -> None:
    with gate.greeted(features=LEASE) as raw:
        lease(raw, 1)
        raw.expect("started", 1)
    gate.wait_idle()


def test_a_lease_that_is_never_settled_is_taken_back(tmp_path: Path, timeout_factor: float) -> None:
    """Nothing runs in its seat, so no engine has to confirm that it is free."""
    rest = DELEGATE + '[[class]]\nname = "batch"\nsafety_timeout_s = 0.5\n'
    with (
        observed(tmp_path / "d", scripted(rest=rest), 60 * timeout_factor) as gate,
        gate.greeted(features=LEASE) as raw,
    ):
        lease(raw, 1, **{"class": "batch"})
        raw.expect("started", 1)
        failed = raw.end(1)
        assert failed["reason"] == "engine_timeout"
        gate.wait_idle()
        raw.say("settle", id=1)
        assert not applied(raw.find(lambda a: a["t"] == "ack"))


def test_leases_are_for_delegates(tmp_path: Path, timeout_factor: float) -> None:
    with (
        observed(tmp_path / "d", scripted(), 60 * timeout_factor) as gate,
        gate.greeted(features=LEASE) as raw,
    ):
        lease(raw, 1)
        assert raw.end(1)["reason"] == "permission"


# --- what keeps a request waiting -----------------------------------------------------------------

Setting = tuple[dict[str, object], dict[str, object], Callable[[Raw], None]]


def _hold(raw: Raw) -> None:
    raw.ask(1, LONG, params={"max_tokens": 3000})
    raw.expect("chunk", 1)


def _prefilling(raw: Raw) -> None:
    raw.ask(1, LONG_PROMPT, params={"max_tokens": 10})
    raw.expect("started", 1)


def _nothing(raw: Raw) -> None:
    pass


def _pause(raw: Raw) -> None:
    raw.say("pause", id=1, **{"class": "loop"})
    assert raw.end(1)["t"] == "ack"


def _other_pool(raw: Raw) -> None:
    raw.ask(1, LONG, model="first", params={"max_tokens": 3000})
    raw.expect("chunk", 1)


WAITING = '[[class]]\nname = "loop"\nwhen_closed = "wait"\n'
TWO_POOLS = """
[engine]
kind = "scripted"
[[engine.scripted.pools]]
model = "first"
[[engine.scripted.pools]]
model = "second"
switch_cost_ms = 50
"""

LIMITS: dict[str, tuple[str, Callable[[Raw], None], dict[str, object]]] = {
    "seats": (scripted(max_seqs=1), _hold, {}),
    "kv": (scripted(max_seqs=4, kv_tok=4096), _hold, {"params": {"max_tokens": 2000}}),
    "step_tok": (
        scripted(max_seqs=4, max_step_tok=64, a_ms=30.0, context_tok=8192),
        _prefilling,
        {},
    ),
    "in_flight": (scripted(gate="max_in_flight = 1", max_seqs=4), _hold, {}),
    "closed": (scripted(rest=WAITING), _pause, {}),
    "loading": (
        TWO_POOLS,
        _other_pool,
        {"model": "second"},
    ),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_status_and_progress_name_the_limit_that_binds(
    limit: str, tmp_path: Path, timeout_factor: float
) -> None:
    config, hold, fields = LIMITS[limit]
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as holder,
        gate.greeted() as raw,
    ):
        hold(holder)
        raw.ask(1, ONE_TOKEN, progress=True, **{"class": "loop", **fields})
        queued = raw.expect("queued", 1)
        assert queued["limited_by"] == limit
        assert queued["position"] == 1
        assert gate.status()["gate"]["limited_by"] == limit


def test_a_floor_that_is_owed_is_named_too(tmp_path: Path, timeout_factor: float) -> None:
    """A batch job too large for what is left of the cache is passed by chats, until it has waited
    for its share: then the chat that would fit waits for it."""
    config = scripted(
        gate="floor_quantum_tok = 8", max_seqs=3, a_ms=2.0, kv_tok=8192, context_tok=8192
    )
    chat = {"class": "interactive"}
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.ask(1, LONG, params={"max_tokens": 4000}, **chat)
        raw.expect("chunk", 1)
        raw.ask(2, "[[tokens:4]]", params={"max_tokens": 6000}, **{"class": "batch"})
        gate.wait(lambda: gate.status()["gate"]["limited_by"] == "kv")
        first: Answer = {"t": "done"}
        id = 2
        while first["t"] == "done":
            id += 1
            raw.ask(id, ONE_TOKEN, params={"max_tokens": 1}, progress=True, **chat)
            first = raw.find(lambda a, id=id: a.get("id") == id and a["t"] != "started")  # type: ignore[misc]
            if first["t"] == "chunk":
                first = raw.end(id)
        assert (first["t"], first["limited_by"]) == ("queued", "floor")
        assert gate.status()["gate"]["limited_by"] == "floor"
        raw.say("cancel", id=1)
        assert raw.end(2)["t"] == "done"
        assert raw.end(id)["t"] == "done"


# --- rank -----------------------------------------------------------------------------------------


def test_many_waiting_batch_requests_never_keep_one_chat_out(
    tmp_path: Path, timeout_factor: float
) -> None:
    """62 wait behind 2 that run; the first seat that comes free is the chat's."""
    never = '[[class]]\nname = "interactive"\npreempt = "never"'
    config = scripted(max_seqs=2, context_tok=8192, rest=never)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted(**{"class": "batch"}) as flood,
        gate.greeted(**{"class": "interactive"}) as chat,
    ):
        for id in range(64):
            flood.ask(id, "[[tokens:3000]]", params={"max_tokens": 3000})
        flood.expect("started", 1)
        gate.wait(lambda: gate.class_("batch")["queued"] == 62)
        chat.ask(1, "[[tokens:3000]]", params={"max_tokens": 3000}, progress=True)
        assert chat.expect("queued", 1)["position"] == 1
        flood.say("cancel", id=0)
        chat.expect("started", 1)
        batch = gate.class_("batch")
        assert (batch["running"], batch["queued"]) == (1, 62)
        # And the next one when it leaves is the next of the batch: nobody has lost his place.
        chat.say("cancel", id=1)
        flood.expect("started", 2)
        assert gate.class_("batch")["queued"] == 61


# --- pause ----------------------------------------------------------------------------------------


def _set_class(raw: Raw, t: str, class_: str, **fields: object) -> Answer:
    raw.say(t, id=99, **{"class": class_, **fields})
    return raw.end(99)


def test_a_paused_class_refuses_newcomers_and_keeps_what_it_has(gate: Observed) -> None:
    with gate.greeted(**{"class": "batch"}) as raw, gate.greeted() as admin:
        raw.ask(1, "[[tokens:400]]")
        raw.expect("chunk", 1)
        raw.ask(2, ONE_TOKEN)
        gate.wait_states("decode", "queued")
        assert _set_class(admin, "pause", "batch")["t"] == "ack"
        raw.ask(3, ONE_TOKEN)
        failed = raw.end(3)
        assert (failed["reason"], failed["limited_by"]) == ("paused", "closed")
        assert "retry_after_ms" not in failed
        assert gate.class_("batch")["paused"] is True
        # What runs goes on to its end; what waited waits, and others pass.
        assert raw.end(1)["usage"]["output_tok"] == 400
        admin.ask(1, ONE_TOKEN, **{"class": "interactive"})
        assert admin.end(1)["t"] == "done"
        assert [row["state"] for row in gate.requests()] == ["queued"]
        assert _set_class(admin, "unpause", "batch")["t"] == "ack"
        assert raw.end(2)["t"] == "done"
        assert gate.class_("batch")["paused"] is False


def test_a_pause_with_an_end_opens_by_itself_and_says_when(gate: Observed) -> None:
    with gate.greeted(**{"class": "batch"}) as raw:
        until_ms = int(time.time() * 1000) + 2000  # noqa: TID251  a time of the wall
        assert _set_class(raw, "pause", "batch", until_ms=until_ms)["t"] == "ack"
        raw.ask(1, ONE_TOKEN)
        failed = raw.end(1)
        assert failed["reason"] == "paused"
        assert 0 < failed["retry_after_ms"] <= 2000
        assert abs(gate.class_("batch")["paused_until_ms"] - until_ms) < 50
        gate.wait(lambda: not gate.class_("batch")["paused"])
        raw.ask(1, ONE_TOKEN)
        assert raw.end(1)["t"] == "done"


def test_the_clock_of_what_waits_in_a_paused_class_runs_on(gate: Observed) -> None:
    with gate.greeted(**{"class": "batch"}) as raw, gate.greeted() as admin:
        admin.ask(1, LONG)
        admin.expect("chunk", 1)
        raw.ask(1, ONE_TOKEN, ttft_timeout_ms=400)
        gate.wait_states("decode", "queued")
        _set_class(admin, "pause", "batch")
        assert raw.end(1)["reason"] == "ttft_deadline_exceeded"
        _set_class(admin, "unpause", "batch")


@pytest.mark.parametrize("until_ms", [0, 2**53])
def test_a_pause_that_ends_before_it_begins_or_never_is_refused(
    gate: Observed, until_ms: int
) -> None:
    with gate.greeted(**{"class": "batch"}) as raw:
        failed = _set_class(raw, "pause", "batch", until_ms=until_ms)
        assert (failed["reason"], failed["path"]) == ("invalid", "until_ms")
        assert not gate.class_("batch")["paused"]
        raw.ask(1, ONE_TOKEN)
        assert raw.end(1)["t"] == "done"
