"""A person comes and finds no seat: work of a lower class is stopped, and goes on or begins anew.

Whatever happens meanwhile, its client gets the whole answer or a last word, and nothing is held
afterwards.
"""

import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import OPENVINO
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import Answer, Raw

FAST = "restart_backoff_ms = 10\nrestart_backoff_max_ms = 100"
# A test is no person: it asks more often than one, and its clients are one program.
ASKS_OFTEN = """
[[class]]
name = "interactive"
behaviour_live = 1000
behaviour_starts_per_min = 100000
"""
PLAIN: dict[str, Any] = {"temperature": 0.0}
SAMPLED: dict[str, Any] = {"temperature": 0.7}  # the scripted engine says the same again
BATCH, PERSON = 1, 2


def story(number: int = 1, tok: int = 200) -> str:
    return f"story number {number} [[tokens:{tok}]]"


def batch(raw: Raw, id: int = BATCH, prompt: str | None = None, **fields: Any) -> None:
    """Ask something that may wait, with an answer of 200 tokens."""
    params = {"max_tokens": 200, **fields.pop("params", PLAIN)}
    raw.ask(id, prompt or story(id), class_="batch", params=params, **fields)


def person(raw: Raw, id: int = PERSON, tok: int = 3) -> None:
    raw.ask(id, f"and this? [[tokens:{tok}]]", class_="interactive", params={"max_tokens": tok})


def whole(raw: Raw, prompt: str | None = None, **fields: Any) -> str:
    """What a batch request is answered when nobody comes."""
    batch(raw, 77, prompt or story(BATCH), **fields)
    assert raw.end(77)["t"] == "done"
    return raw.text(77)


def tags(raw: Raw, id: int) -> list[str]:
    """What has come of a request, in order, without its text."""
    return [a["t"] for a in raw.inbox if a.get("id") == id and a["t"] != "chunk"]


def seen(raw: Raw, id: int, chunks: int) -> None:
    """Until so many pieces of it have come; they stay in the inbox."""
    while sum(a["t"] == "chunk" and a.get("id") == id for a in raw.inbox) < chunks:
        assert raw.read()


def put_back(raw: Raw, t: str, id: int) -> Answer:
    """The next such message, which stays in the inbox."""
    found = raw.expect(t, id)
    raw.inbox.append(found)
    return found


@pytest.fixture
def gate(tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    """One seat, as shipped otherwise."""
    config = scripted(engine=FAST, max_seqs=1, a_ms=3.0, c_ms_per_seq=0.0)
    with observed(tmp_path / "d", config, 60 * timeout_factor) as daemon:
        yield daemon


# --- as shipped -----------------------------------------------------------------------------------


def test_a_stream_goes_on_as_if_nothing_had_been(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw)
        for round_ in range(1, 3):
            batch(raw)
            seen(raw, BATCH, 10 * round_)
            person(other)
            assert other.end(PERSON)["t"] == "done"
            done = raw.end(BATCH)
            assert done["t"] == "done", done
            assert tags(raw, BATCH) == ["started", "paused", "resumed"]
            assert raw.text(BATCH) == expected
            assert done["usage"]["output_tok"] == 200
            assert done["timings"]["preempted"] == 1
            assert "notices" not in done or not done["notices"]
            assert gate.class_("batch")["preempted"] == round_
            raw.inbox.clear()
        gate.wait_idle()
        raw.say("metrics", id=9)
        text = raw.expect("metrics_report", 9)["text"]
        assert 'onegate_preempted_total{class="batch"} 2.0' in text
        assert 'onegate_discarded_tokens_total{class="batch"} 0.0' in text
        assert gate.class_("interactive")["preempted"] == gate.class_("loop")["preempted"] == 0


def test_whoever_loops_goes_before_batch(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw)
        batch(raw)
        seen(raw, BATCH, 10)
        other.ask(2, "[[tokens:3]]", class_="loop")
        assert other.end(2)["t"] == "done"
        assert raw.end(BATCH)["timings"]["preempted"] == 1
        assert raw.text(BATCH) == expected


def test_a_person_leaves_a_loop_its_grace(gate: Observed) -> None:
    """As long as the class says, and not longer."""
    with gate.greeted() as raw, gate.greeted() as other:
        prompt = story(1, tok=1000)
        raw.ask(1, prompt, class_="loop", params={"max_tokens": 1000, **PLAIN})
        seen(raw, 1, 10)
        person(other)
        done = other.end(PERSON)
        assert done["t"] == "done"
        assert done["timings"]["queue_ms"] >= 2000
        assert raw.end(1)["timings"]["preempted"] == 1
        assert gate.class_("loop")["preempted"] == 1


def test_a_person_is_not_stopped_for_another(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        person(raw, 1, tok=200)
        seen(raw, 1, 5)
        person(other)
        assert other.end(PERSON)["t"] == raw.end(1)["t"] == "done"
        assert tags(raw, 1) == ["started"]


def test_a_class_that_is_told_not_to_stops_nobody(tmp_path: Path, timeout_factor: float) -> None:
    rest = '[[class]]\nname = "interactive"\npreempt = "never"'
    config = scripted(max_seqs=1, a_ms=3.0, rest=rest)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as other,
    ):
        batch(raw)
        seen(raw, BATCH, 5)
        person(other)
        assert other.end(PERSON)["t"] == raw.end(BATCH)["t"] == "done"
        assert tags(raw, BATCH) == ["started"]


def test_a_free_seat_is_taken_and_nobody_stopped(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(max_seqs=2, a_ms=3.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as other,
    ):
        batch(raw)
        seen(raw, BATCH, 5)
        person(other)
        assert other.end(PERSON)["t"] == raw.end(BATCH)["t"] == "done"
        assert tags(raw, BATCH) == ["started"]


# --- by kind of request ---------------------------------------------------------------------------


@pytest.mark.parametrize("params", [PLAIN, SAMPLED])
def test_without_a_stream(gate: Observed, params: dict[str, Any]) -> None:
    """It comes whole, and once."""
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw, params=params)
        batch(raw, stream=False, params=params)
        gate.wait(lambda: any(row["output_tok"] > 10 for row in gate.requests()))
        person(other)
        assert other.end(PERSON)["t"] == "done"
        done = raw.end(BATCH)
        assert done["timings"]["preempted"] == 1
        assert done["usage"]["output_tok"] == 200
        assert raw.text(BATCH) == expected
        gate.wait_idle()
        raw.say("metrics", id=9)
        text = raw.expect("metrics_report", 9)["text"]
        kept = params is PLAIN
        assert ('onegate_discarded_tokens_total{class="batch"} 0.0' in text) is kept


def test_what_was_seen_and_cannot_go_on_is_not_stopped(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        batch(raw, params=SAMPLED)
        seen(raw, BATCH, 5)
        person(other)
        assert other.end(PERSON)["t"] == raw.end(BATCH)["t"] == "done"
        assert tags(raw, BATCH) == ["started"]


def test_a_prompt_that_is_being_read_is_read_again(tmp_path: Path, timeout_factor: float) -> None:
    """Sampled, but nobody has seen anything of it yet."""
    config = scripted(max_seqs=1, a_ms=3.0, b_ms_per_prefill_tok=0.0, max_step_tok=4)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as other,
    ):
        long = "a word " * 400 + "[[tokens:20]]"
        expected = whole(raw, long, params=SAMPLED)
        batch(raw, prompt=long, params=SAMPLED)
        gate.wait_states("prefill")
        person(other)
        assert other.end(PERSON)["t"] == "done"
        assert raw.end(BATCH)["timings"]["preempted"] == 1
        assert tags(raw, BATCH) == ["started", "paused", "resumed"]
        assert raw.text(BATCH) == expected


def test_a_stop_string_across_the_cut(gate: Observed) -> None:
    """Its beginning was said before the cut and held back: it neither shows nor is missed."""
    say = "|".join([*(f"w{i} " for i in range(60)), "ST", *("O" * 60), "P", "never"])
    prompt = f"[[say:{say}]] [[step-ms:4]]"
    params = {**PLAIN, "stop": ["ST" + "O" * 60 + "P"], "max_tokens": 150}
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw, prompt, params=params)
        assert expected.endswith("w59 ")
        batch(raw, prompt=prompt, params=params)
        gate.wait(lambda: any(row["output_tok"] > 70 for row in gate.requests()))
        person(other)
        assert other.end(PERSON)["t"] == "done"
        done = raw.end(BATCH)
        assert (done["finish_reason"], done["timings"]["preempted"]) == ("stop", 1)
        assert raw.text(BATCH) == expected


# --- what happens meanwhile -----------------------------------------------------------------------


def pause(gate: Observed, raw: Raw, other: Raw, *, tok: int = 300, **fields: Any) -> None:
    """A batch request that is paused while a person is answered at length."""
    batch(raw, **fields)
    seen(raw, BATCH, 5)
    person(other, tok=tok)
    put_back(raw, "paused", BATCH)
    put_back(other, "started", PERSON)
    gate.wait(lambda: gate.status()["gate"]["queued"] == 1)


def test_the_client_leaves_while_it_is_paused(gate: Observed) -> None:
    with gate.greeted() as other:
        with gate.greeted() as raw:
            pause(gate, raw, other)
        gate.wait(lambda: gate.status()["gate"]["queued"] == 0)
        assert other.end(PERSON)["t"] == "done"
        gate.wait_idle()
        assert gate.class_("batch")["cancelled"] == 1


def test_cancelled_while_it_is_paused(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        pause(gate, raw, other)
        raw.say("cancel", id=BATCH)
        failed = raw.end(BATCH)
        assert (failed["reason"], failed["phase"]) == ("cancelled", "queued")
        assert other.end(PERSON)["t"] == "done"
        gate.wait_idle()


def test_out_of_time_while_it_is_paused(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        pause(gate, raw, other, tok=1500, timeout_ms=1500)
        failed = raw.end(BATCH)
        assert (failed["reason"], failed["phase"]) == ("deadline_exceeded", "queued")
        other.say("cancel", id=PERSON)
        gate.wait_idle()
        assert gate.class_("batch")["expired"] == 1


def test_the_person_leaves_while_it_is_paused(gate: Observed) -> None:
    with gate.greeted() as raw:
        expected = whole(raw)
        with gate.greeted() as other:
            pause(gate, raw, other, tok=4000)
        assert raw.end(BATCH)["t"] == "done"
        assert raw.text(BATCH) == expected
        gate.wait_idle()


def test_the_person_leaves_while_it_is_stopped(gate: Observed) -> None:
    """The seat was made free for somebody who is gone: it goes back to whoever had it."""
    slow = story(1) + " [[hold-seat:300]]"
    with gate.greeted() as raw:
        expected = whole(raw, slow)
        batch(raw, prompt=slow)
        seen(raw, BATCH, 5)
        with gate.greeted() as other:
            person(other)
            gate.wait(lambda: gate.status()["gate"]["queued"] == 1)
        assert raw.end(BATCH)["timings"]["preempted"] == 1
        assert raw.text(BATCH) == expected
        gate.wait_idle()


def test_the_daemon_is_ended_while_it_is_paused(gate: Observed) -> None:
    """It has begun, so it has its time to finish; newcomers are told to come back."""
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw)
        pause(gate, raw, other)
        gate.daemon.process.send_signal(signal.SIGTERM)
        gate.wait(lambda: gate.lines("draining"))
        person(other, 3)
        assert other.end(3)["reason"] == "shutting_down"
        assert other.end(PERSON)["usage"]["output_tok"] == 300
        assert raw.end(BATCH)["t"] == "done"
        assert raw.text(BATCH) == expected
        assert tags(raw, BATCH) == ["started", "paused", "resumed"]
        assert gate.daemon.process.wait(gate.timeout_s) == 0


def test_the_daemon_is_ended_while_it_is_stopped(gate: Observed) -> None:
    """The person that it makes room for is sent away, and it goes on."""
    with gate.greeted() as raw, gate.greeted() as other:
        slow = story(1) + " [[hold-seat:700]]"
        expected = whole(raw, slow)
        batch(raw, prompt=slow)
        seen(raw, BATCH, 5)
        person(other)
        gate.wait(lambda: gate.status()["gate"]["queued"] == 1)
        gate.daemon.process.send_signal(signal.SIGTERM)
        assert other.end(PERSON)["reason"] == "shutting_down"
        assert raw.end(BATCH)["timings"]["preempted"] == 1
        assert raw.text(BATCH) == expected
        assert gate.daemon.process.wait(gate.timeout_s) == 0


def test_the_drain_ends_while_it_is_paused(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(gate="drain_timeout_s = 0.3", max_seqs=1, a_ms=3.0, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as other,
    ):
        pause(gate, raw, other, tok=4000)
        gate.daemon.process.send_signal(signal.SIGTERM)
        failed = raw.end(BATCH)
        assert (failed["reason"], failed["phase"]) == ("shutting_down", "queued")
        assert failed["retryable"]
        failed = other.end(PERSON)
        assert (failed["reason"], failed["phase"]) == ("shutting_down", "decode")
        assert gate.daemon.process.wait(gate.timeout_s) == 0


@pytest.mark.parametrize("stream", [True, False])
def test_the_engine_is_killed_while_it_is_stopped(gate: Observed, stream: bool) -> None:
    slow = story(1) + " [[hold-seat:60000]]"  # it never confirms
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw, slow)
        batch(raw, prompt=slow, stream=stream)
        gate.wait(lambda: any(row["output_tok"] > 5 for row in gate.requests()))
        person(other)
        gate.wait(lambda: gate.status()["gate"]["queued"] == 1)
        os.kill(gate.host_pid(), signal.SIGKILL)
        assert other.end(PERSON)["t"] == "done"
        done = raw.end(BATCH)
        assert done["t"] == "done", done
        assert [notice["code"] for notice in done["notices"]] == ["engine_restarted"]
        assert raw.text(BATCH) == expected
        gate.wait_idle()
        gate.check_unharmed()


def test_the_engine_is_killed_while_it_is_paused(gate: Observed) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        expected = whole(raw)
        pause(gate, raw, other)
        os.kill(gate.host_pid(), signal.SIGKILL)
        assert other.end(PERSON)["t"] == raw.end(BATCH)["t"] == "done"
        assert raw.text(BATCH) == expected
        gate.wait_idle()


# --- at any time ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seats", [1, 2])
def test_thirty_people_at_any_time(seats: int, tmp_path: Path, timeout_factor: float) -> None:
    """Some leave, some come when one is just done; no batch request is lost or broken by it."""
    chance = random.Random(seats)
    # Answers are short here and their lengths soon known: nobody would be stopped for what is about
    # to come by itself, nor after so much has been thrown away.
    config = scripted(
        gate="preempt_delta_ms = 0\nrecompute_budget = 1.0",
        engine=FAST,
        max_seqs=seats,
        a_ms=1.0,
        c_ms_per_seq=0.0,
        rest=ASKS_OFTEN,
    )
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
        gate.greeted() as other,
    ):
        expected = {number: whole(raw, story(number)) for number in (1, 2, 3)}
        raw.inbox.clear()
        running: dict[int, int] = {}
        ends: list[Answer] = []

        def begin(id: int) -> None:
            running[id] = number = chance.choice((1, 2, 3))
            batch(raw, id, story(number), stream=chance.random() < 0.7)

        def judge(done: Answer) -> None:
            id = done["id"]
            assert done["t"] == "done", done
            assert raw.text(id) == expected[running.pop(id)]
            paused = [tag for tag in tags(raw, id) if tag != "started"]
            assert paused == ["paused", "resumed"] * _times(done)
            ends.append(done)

        for id in range(100, 100 + seats + 1):
            begin(id)
        ids = iter(range(200, 1000))
        for round_ in range(30):
            more = chance.randrange(1, 40)
            while (done := _next_end(raw)) is None and more > 0:
                before = len(raw.inbox)
                assert raw.read()
                more -= len(raw.inbox) - before
            if done is not None:
                judge(done)
            while len(running) <= seats:
                begin(next(ids))
            tok = chance.randrange(1, 30)
            people = [2 * round_, 2 * round_ + 1][: chance.choice((1, 1, 2))]
            for id in people:
                person(other, id, tok)
            if chance.random() < 0.3:
                other.say("cancel", id=people[0])
            for id in people:
                assert other.end(id).get("reason", "cancelled") == "cancelled"
            other.inbox.clear()
        while running:
            judge(raw.end(next(iter(running))))
        assert sum(_times(done) for done in ends) >= 10
        account = gate.class_("batch")
        assert account["preempted"] == sum(_times(done) for done in ends)
        assert account["failed"] == 0
        gate.wait_idle()
        gate.check_unharmed()


def _times(done: Answer) -> int:
    """How often it was paused; none is left out."""
    times: int = done["timings"].get("preempted", 0)
    return times


def _next_end(raw: Raw) -> Answer | None:
    """The next last word of a request that has come already."""
    place = next((i for i, a in enumerate(raw.inbox) if a["t"] in ("done", "failed")), None)
    return None if place is None else raw.inbox.pop(place)


# --- the embedded model ---------------------------------------------------------------------------


# One seat: the last bit of what the model computes hangs on the company of a sequence.
ALONE = OPENVINO + "max_seqs = 1\n"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, timeout_factor: float) -> Iterator[Observed]:
    config = ALONE + ASKS_OFTEN
    with observed(tmp_path_factory.mktemp("real"), config, 180 * timeout_factor) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def uncached(tmp_path_factory: pytest.TempPathFactory, timeout_factor: float) -> Iterator[Observed]:
    """Every prompt is computed in the same chunks.

    Where a cached prefix ends decides what is computed together, hence the last bits, and at a
    temperature of 1 another bit can be another token: a seed says the same for the same sums only.
    """
    config = ALONE + "prefix_cache = false\n" + ASKS_OFTEN
    with observed(tmp_path_factory.mktemp("cold"), config, 180 * timeout_factor) as daemon:
        yield daemon


GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_eos": True, "max_tokens": 60}
SEA = "Write about the sea."


def chunks(raw: Raw, id: int) -> list[str]:
    return [a.get("text", "") for a in raw.inbox if a["t"] == "chunk" and a.get("id") == id]


@pytest.mark.alone("model")
@pytest.mark.slow
@pytest.mark.parametrize("prompt", [SEA, "Continue this list: 31, 32, 33, 34, 35, 36,"])
def test_real_text_is_the_same_wherever_it_is_cut(real: Observed, prompt: str) -> None:
    chance = random.Random(prompt)
    with real.greeted() as raw, real.greeted() as other:
        expected = whole(raw, prompt, params=GREEDY)
        for _ in range(2):
            raw.inbox.clear()
            batch(raw, prompt=prompt, params=GREEDY)
            cuts = sorted(chance.sample(range(1, 55), 3))
            for cut in cuts:
                seen(raw, BATCH, cut)
                person(other, tok=4)
                assert other.end(PERSON)["t"] == "done"
                other.inbox.clear()
            done = raw.end(BATCH)
            assert done["usage"]["output_tok"] == 60
            assert raw.text(BATCH) == expected, cuts
            assert done["timings"]["preempted"] == 3
        real.wait_idle()


SHORT = {**GREEDY, "max_tokens": 30}
NOT_EXACT: dict[str, dict[str, Any]] = {
    "penalty": {**SHORT, "repeat_penalty": 1.3},
    "minimum": {**SHORT, "ignore_eos": False, "min_tokens": 25},
    "logprobs": {**SHORT, "logprobs": True},
    "seeded": {**SHORT, "temperature": 1.0, "seed": 7},
}


@pytest.mark.alone("model")
@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_EXACT)
def test_real_text_that_could_not_go_on_is_not_cut(uncached: Observed, name: str) -> None:
    """Seen: it is not stopped. Being read, or not streamed: it begins anew."""
    params = NOT_EXACT[name]
    long = "The sea is wide. " * 80 + SEA
    with uncached.greeted() as raw, uncached.greeted() as other:
        expected = whole(raw, SEA, params=params)
        batch(raw, prompt=SEA, params=params)
        seen(raw, BATCH, 5)
        person(other)
        assert other.end(PERSON)["t"] == raw.end(BATCH)["t"] == "done"
        assert tags(raw, BATCH) == ["started"]
        assert raw.text(BATCH) == expected
        raw.inbox.clear()

        batch(raw, prompt=SEA, params=params, stream=False)
        uncached.wait(lambda: any(row["output_tok"] > 5 for row in uncached.requests()))
        person(other)
        assert other.end(PERSON)["t"] == "done"
        assert raw.end(BATCH)["timings"]["preempted"] == 1
        assert raw.text(BATCH) == expected
        raw.inbox.clear()

        batch(raw, prompt=long, params=params)
        put_back(raw, "started", BATCH)
        person(other)
        assert other.end(PERSON)["t"] == raw.end(BATCH)["t"] == "done"
        assert tags(raw, BATCH) == ["started", "paused", "resumed"]
        text = raw.text(BATCH)
        raw.inbox.clear()
        assert text == whole(raw, long, params=params)
        uncached.wait_idle()


@pytest.mark.alone("model")
@pytest.mark.slow
def test_a_real_stop_string_across_the_cut(real: Observed) -> None:
    """All of it after the tenth token is held back, and said in two runs of the engine."""
    with real.greeted() as raw, real.greeted() as other:
        batch(raw, prompt=SEA, params=GREEDY)
        assert raw.end(BATCH)["t"] == "done"
        parts = chunks(raw, BATCH)
        before = "".join(parts[:10])
        params = {**GREEDY, "stop": ["".join(parts[10:55])]}
        raw.inbox.clear()
        batch(raw, prompt=SEA, params=params)
        real.wait(lambda: any(row["output_tok"] > 12 for row in real.requests()))
        person(other)
        assert other.end(PERSON)["t"] == "done"
        done = raw.end(BATCH)
        assert (done["finish_reason"], done["timings"]["preempted"]) == ("stop", 1)
        assert raw.text(BATCH) == before
        assert done["usage"]["output_tok"] == 55


PERSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "friends": {
            "type": "array",
            "items": {"type": "string", "maxLength": 12},
            "minItems": 4,
            "maxItems": 6,
        },
    },
    "required": ["name", "age", "friends"],
}


@pytest.mark.alone("model")
@pytest.mark.slow
def test_an_answer_in_a_form_keeps_it_wherever_it_is_cut(real: Observed) -> None:
    form = {"type": "json_schema", "json_schema": {"schema": PERSON_SCHEMA}}
    params = {"temperature": 0.0, "max_tokens": 120, "response_format": form}
    chance = random.Random(3)
    with real.greeted() as raw, real.greeted() as other:
        batch(raw, 77, SEA, params=params)
        n_tok = raw.end(77)["usage"]["output_tok"]
        expected = raw.text(77)
        assert json.loads(expected).keys() >= {"name", "age", "friends"}
        for _ in range(2):
            raw.inbox.clear()
            batch(raw, prompt=SEA, params=params)
            cuts = sorted(chance.sample(range(1, n_tok - 5), 3))
            for cut in cuts:
                seen(raw, BATCH, cut)
                person(other, tok=4)
                assert other.end(PERSON)["t"] == "done"
                other.inbox.clear()
            done = raw.end(BATCH)
            assert raw.text(BATCH) == expected, cuts
            assert done["timings"]["preempted"] > 0
        real.wait_idle()


@pytest.mark.alone("model")
@pytest.mark.slow
def test_a_schema_that_cannot_be_followed_is_refused_and_harms_nobody(real: Observed) -> None:
    with real.greeted() as raw, real.greeted() as other:
        for i, (schema, reason) in enumerate(
            (
                ({"type": "string", "pattern": "(a+)+$"}, "unsupported"),
                ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "invalid"),
                ({"type": "string", "minLength": 10**9}, "invalid"),
            )
        ):
            form = {"type": "json_schema", "json_schema": {"schema": schema}}
            batch(raw, 10 + i, prompt=SEA, params={"response_format": form})
            failed = raw.end(10 + i)
            assert (failed["t"], failed["reason"]) == ("failed", reason)
            assert failed["path"] == "params.response_format.json_schema.schema"
        person(other, tok=4)
        assert other.end(PERSON)["t"] == "done"
        real.wait_idle()
        real.check_log()


# --- what it costs --------------------------------------------------------------------------------


def used(gate: Observed, class_: str = "batch") -> Answer:
    """What the requests of a class have taken so far: of the only user there is."""
    gate.wait_idle()
    with gate.greeted(features=["v1", "usage"]) as raw:
        raw.say("usage", id=900)
        rows = [row for row in raw.expect("usage_report", 900)["rows"] if row["class"] == class_]
        raw.say("metrics", id=901)
        text = raw.expect("metrics_report", 901)["text"]
    found: Answer = {
        name: sum(row.get(name) or 0 for row in rows)
        for name in ("prompt_tok", "told_tok", "cached_tok", "recomputed_tok", "discarded_tok")
    }
    status = gate.class_(class_)
    for name in ("recomputed", "discarded"):
        assert status[f"{name}_tok"] == found[f"{name}_tok"]
        sample = f'onegate_{name}_tokens_total{{class="{class_}"}} {found[f"{name}_tok"]:.1f}'
        assert sample in text
    sample = f'onegate_prompt_tokens_total{{class="{class_}",source="cached"}}'
    assert f"{sample} {found['cached_tok']:.1f}" in text
    return found


def more(gate: Observed, before: Answer) -> Answer:
    now = used(gate)
    return {name: now[name] - before[name] for name in now}


@pytest.mark.parametrize(
    ("asks", "params", "cached", "again", "lost"),
    [
        ("", PLAIN, False, True, False),
        ("[[cached]]", PLAIN, True, False, False),
        ("", SAMPLED, False, True, True),
    ],
)
def test_what_a_stop_costs_is_counted_for_whose_work_it_was(
    gate: Observed, asks: str, params: dict[str, Any], cached: bool, again: bool, lost: bool
) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        before = used(gate)
        batch(raw, prompt=story() + asks, params=params, stream=False)
        gate.wait(lambda: any(row["output_tok"] > 10 for row in gate.requests()))
        person(other)
        done = raw.end(BATCH)
        assert done["timings"]["preempted"] == 1
        prompt_tok = done["usage"]["prompt_tok"]
        taken = more(gate, before)
        assert taken["prompt_tok"] == prompt_tok
        assert taken["told_tok"] == (prompt_tok if cached else 0)
        assert taken["cached_tok"] == done["timings"].get("cached_tok", 0)
        assert (taken["cached_tok"] > 0, taken["discarded_tok"] > 10) == (cached, lost)
        assert (taken["recomputed_tok"] >= prompt_tok) is again
        if lost:  # what begins anew has its prompt alone to compute again
            assert taken["recomputed_tok"] == prompt_tok
        assert used(gate, "interactive")["recomputed_tok"] == 0


LONG = "The sea is wide. " * 60 + SEA


def stopped_once(raw: Raw, other: Raw) -> Answer:
    """The end of a long prompt's answer, which was stopped for a person after 20 pieces."""
    batch(raw, prompt=LONG, params=GREEDY)
    seen(raw, BATCH, 20)
    person(other, tok=4)
    assert other.end(PERSON)["t"] == "done"
    done = raw.end(BATCH)
    assert done["timings"]["preempted"] == 1
    return done


@pytest.mark.slow
def test_real_work_that_was_stopped_is_found_in_the_cache(real: Observed) -> None:
    with real.greeted() as raw, real.greeted() as other:
        before = used(real)
        done = stopped_once(raw, other)
        prompt_tok = done["usage"]["prompt_tok"]
        assert prompt_tok > 200
        taken = more(real, before)
        assert taken["told_tok"] == taken["prompt_tok"] == prompt_tok
        assert taken["cached_tok"] == done["timings"]["cached_tok"]
        # Whole blocks of 32 tokens are found again, and the last tokens never.
        assert 0 <= taken["recomputed_tok"] <= 32
        assert taken["discarded_tok"] == 0
        batch(raw, 3, prompt=LONG, params=GREEDY)
        done = raw.end(3)
        assert done["timings"]["cached_tok"] >= prompt_tok - 33
        assert more(real, before)["cached_tok"] >= taken["cached_tok"] + prompt_tok - 33


@pytest.mark.slow
def test_real_work_without_a_cache_is_computed_again(uncached: Observed) -> None:
    with uncached.greeted() as raw, uncached.greeted() as other:
        before = used(uncached)
        done = stopped_once(raw, other)
        taken = more(uncached, before)
        assert (taken["told_tok"], taken["discarded_tok"]) == (0, 0)
        assert taken["recomputed_tok"] >= done["usage"]["prompt_tok"] + 19
