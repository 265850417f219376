"""A daemon before somebody else's server, from the client to the socket of the server and back.

The servers are stand-ins with one seat and a queue before it that nobody sees, as real ones have.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.contract import ollama_stand_in
from tests.contract.standin import StandIn, rendered
from tests.integration.daemon import Observed, observed
from tests.integration.raw import Raw, generate, hello

FAST = "restart_backoff_ms = 10\nrestart_backoff_max_ms = 100"
LONG_TOK = 900


class Behind:
    """A server on a loop of its own. `reading` is how a request is called whose prompt it reads.

    Of the prompts `long` is answered at length, `endless` begins and never ends, and the answer to
    `stuck` never begins once the server is told to `hold`.
    """

    reading: str
    long: str
    endless: str
    stuck: str

    def __init__(self, server: Any) -> None:
        self.server = server
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.start()

    def config(self) -> str:
        raise NotImplementedError

    def prompts(self) -> list[str]:
        """What users have asked it, in the order in which it came."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin, and again on the same port after it has died."""
        self.run(self.server.start(self.server.port))

    def die(self) -> None:
        """Every connection is cut, and nobody listens any more."""
        self.run(self.server.close())

    def hold(self) -> None:
        """From now on the prompts of `stuck` are read without end, whoever has left."""

    def let_go(self) -> None:
        """They have been read."""
        raise NotImplementedError

    def run(self, coro: Any) -> None:
        asyncio.run_coroutine_threadsafe(coro, self.loop).result(10)

    def soon(self, what: Callable[[], None]) -> None:
        self.loop.call_soon_threadsafe(what)

    def close(self) -> None:
        self.let_go()
        self.die()
        self.soon(self.loop.stop)
        self._thread.join(10)
        self.loop.close()


class OpenAi(Behind):
    reading = "prefill"
    long = f"[[tokens:{LONG_TOK}]]"
    endless = "[[stall:3]]"
    stuck = "[[hang]] [[hold]]"

    def __init__(self, **given: Any) -> None:
        super().__init__(StandIn(**({"width": 1, "token_s": 0.02} | given)))

    def config(self, extra: str = "") -> str:
        return (
            f'[engine]\nkind = "openai"\n{FAST}\n[engine.openai]\n'
            f'base_url = "{self.server.url}"\nboundary = "local"\n{extra}\n'
        )

    def prompts(self) -> list[str]:
        bodies = [body for body in self.server.seen if "messages" in body]
        return [rendered(body["messages"]) for body in bodies]

    def let_go(self) -> None:
        self.soon(self.server.held.set)


class Ollama(Behind):
    # It says nothing before its first token.
    reading = "granted"
    long = f"[[tokens:{LONG_TOK}]] [[pause-ms:20]]"
    endless = "[[hang:3]]"
    stuck = "[[tokens:1]]"

    def __init__(self) -> None:
        super().__init__(ollama_stand_in.StandIn())

    def config(self) -> str:
        return (
            f'[engine]\nkind = "ollama"\n{FAST}\n[engine.ollama]\n'
            f'base_url = "{self.server.url}"\nboundary = "local"\nmodels = [{{model = "tiny"}}]\n'
        )

    def prompts(self) -> list[str]:
        bodies = [body for verb, body in self.server.seen if verb == "chat"]
        return [body["messages"][-1]["content"] for body in bodies]

    def hold(self) -> None:
        self.soon(self.server.prefill_go.clear)

    def let_go(self) -> None:
        self.soon(self.server.prefill_go.set)


@contextmanager
def ended(behind: Behind) -> Iterator[Behind]:
    try:
        yield behind
    finally:
        behind.close()


@pytest.fixture(params=[OpenAi, Ollama])
def behind(request: pytest.FixtureRequest) -> Iterator[Behind]:
    with ended(request.param()) as found:
        yield found


@pytest.fixture
def gate(behind: Behind, tmp_path: Path, timeout_factor: float) -> Iterator[Observed]:
    with observed(tmp_path / "d", behind.config(), 60 * timeout_factor) as daemon:
        yield daemon


def batch(id: int, prompt: str, max_tokens: int = LONG_TOK, **fields: object) -> bytes:
    params = {"max_tokens": max_tokens}
    return generate(id, prompt, **{"class": "batch", "params": params} | fields)


def is_idle(gate: Observed) -> bool:
    """Ollama's own cache is not seen, so that the general check does not fit."""
    status = gate.status()
    pools = status["pools"]
    return not any(
        [
            status["gate"]["in_flight"],
            status["gate"]["queued"],
            *(pool["seats_used"] or pool["seats_quarantined"] for pool in pools),
        ]
    )


def asked(behind: Behind, word: str) -> int:
    return sum(word in prompt for prompt in behind.prompts())


# --- there and back -------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_comes_through(gate: Observed, behind: Behind, stream: bool) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "hello [[tokens:5]]", stream=stream, params={"max_tokens": 50})
        done = raw.end(1)
        assert done["t"] == "done", done
        assert done["finish_reason"] == "stop"
        assert done["usage"]["output_tok"] == 5
        assert done["usage"]["prompt_tok"] > 0
        assert done["identity"]["boundary"] == "local"
        assert raw.text(1).split() == ["w0", "w1", "w2", "w3", "w4"]
    assert asked(behind, "hello") == 1
    gate.wait(lambda: is_idle(gate))


def test_no_more_than_its_seats_are_ever_inside_and_the_person_is_next(
    gate: Observed, behind: Behind
) -> None:
    with gate.greeted() as raw, gate.greeted() as other:
        for id in range(1, 6):
            raw.write(batch(id, f"batch {id} [[tokens:20]]", 20))
        raw.expect("started", 1)
        other.ask(9, "person [[tokens:2]]", class_="interactive", params={"max_tokens": 2})
        assert other.end(9)["t"] == "done"
        for id in range(1, 6):
            assert raw.end(id)["t"] == "done"
    whose = [re.findall(r"batch \d|person", prompt)[0] for prompt in behind.prompts()]
    # Or before the first of them, which had a seat and nothing to lose yet.
    assert whose.index("person") <= 1


# --- clients that are killed ----------------------------------------------------------------------


def test_killed_while_it_waits_the_server_never_hears_of_it(gate: Observed, behind: Behind) -> None:
    with gate.greeted() as raw:
        raw.write(batch(1, f"first {behind.long}"))
        raw.expect("chunk", 1)
        victim = gate.victim(hello() + batch(1, "victim [[tokens:2]]"))
        gate.wait_states("decode", "queued")
        victim.kill()
        gate.wait_states("decode")
        raw.say("cancel", id=1)
        raw.end(1)
        raw.write(batch(2, "next [[tokens:2]]"))
        assert raw.end(2)["t"] == "done"
    assert (asked(behind, "victim"), asked(behind, "next")) == (0, 1)
    gate.wait(lambda: is_idle(gate))


def test_killed_in_decode_the_next_is_served_though_it_would_never_have_ended(
    gate: Observed, behind: Behind
) -> None:
    victim = gate.victim(hello() + batch(1, f"victim {behind.endless}"))
    gate.wait_states("decode")
    with gate.greeted() as raw:
        raw.write(batch(1, "next [[tokens:2]]"))
        victim.kill()
        assert raw.end(1)["t"] == "done"
    gate.wait(lambda: is_idle(gate))


def test_killed_while_its_prompt_is_read_the_seat_is_kept_and_status_says_so(
    gate: Observed, behind: Behind
) -> None:
    behind.hold()
    victim = gate.victim(hello() + batch(1, f"victim {behind.stuck}"))
    gate.wait_states(behind.reading)
    gate.wait(lambda: asked(behind, "victim") == 1)
    victim.kill()
    gate.wait(lambda: gate.pool()["seats_quarantined"] == 1)
    with gate.greeted() as raw:
        raw.write(batch(1, "next [[tokens:2]]"))
        gate.wait_states("queued")
        assert asked(behind, "next") == 0
        behind.let_go()
        assert raw.end(1)["t"] == "done"
    gate.wait(lambda: is_idle(gate))


# --- servers that die, or want to be left alone ---------------------------------------------------


def test_what_nobody_has_seen_of_it_is_asked_again_when_the_server_is_back(
    gate: Observed, behind: Behind
) -> None:
    with gate.greeted() as raw:
        raw.write(batch(1, f"story {behind.long}", 60, stream=False))
        gate.wait_states("decode")
        behind.die()
        gate.wait(lambda: gate.pool()["state"] != "ready")
        assert "paused" in [answer["t"] for answer in seen(raw, "paused")]
        behind.start()
        done = raw.end(1)
        assert done["t"] == "done", done
        assert done["usage"]["output_tok"] == 60
        assert [notice["code"] for notice in done["notices"]] == ["engine_restarted"]
    assert asked(behind, "story") == 2
    assert gate.pool()["restarts"] == 1
    gate.wait(lambda: is_idle(gate))


def test_who_waits_for_a_server_that_stays_away_is_told(gate: Observed, behind: Behind) -> None:
    """Not at once, for it may be back in a moment; and not as late as it is."""
    with gate.greeted() as person, gate.greeted() as night:
        behind.die()
        gate.wait(lambda: gate.pool()["state"] == "loading")
        person.write(generate(1, "hello", **{"class": "interactive"}))
        night.write(batch(1, f"story {behind.long}", 5))
        refused = person.end(1)
        assert gate.pool()["state"] == "failed"
        assert refused["reason"] == "ttft_deadline_exceeded"
        assert refused["message"].endswith(f"cannot serve model {gate.pool()['model']} now")
        # Nobody watches: the night's work waits, and is done when the server is back.
        behind.start()
        assert night.end(1)["t"] == "done"


def seen(raw: Raw, t: str) -> list[dict[str, Any]]:
    raw.inbox.append(raw.expect(t, 1))
    return raw.inbox


def test_a_server_that_wants_rest_has_it_and_its_word_is_passed_on(
    tmp_path: Path, timeout_factor: float
) -> None:
    with ended(OpenAi()) as behind:
        with observed(tmp_path / "d", behind.config(), 60 * timeout_factor) as gate:
            with gate.greeted() as raw:
                raw.write(batch(1, "busy [[status:503:1]]", 5))
                failed = raw.end(1)
                assert failed["reason"] == "engine_unavailable"
                assert failed["retryable"]
                assert failed["retry_after_ms"] == 1000
                # Twice it waited its second here, and nobody else was sent there meanwhile.
                raw.write(batch(2, "later [[tokens:2]]", 5))
                assert raw.end(2)["t"] == "done"
        assert asked(behind, "busy") == 3


# --- servers that run less than was said ----------------------------------------------------------


def test_more_seats_than_it_has_are_found_out_and_the_right_number_is_said(
    tmp_path: Path, timeout_factor: float
) -> None:
    """Of a server that says nothing of itself, by the times of its answers alone."""
    with ended(OpenAi(flavour="none", width=2)) as behind:
        config = behind.config("max_seqs = 6")
        with observed(tmp_path / "d", config, 60 * timeout_factor) as gate:
            with gate.greeted() as raw:
                assert gate.pool()["seats"] == 6
                raw.write(batch(1, "alone [[tokens:4]]", 40))
                assert raw.end(1)["t"] == "done"
                ids = iter(range(2, 40))
                running = [next(ids) for _ in range(6)]
                for id in running:
                    raw.write(batch(id, "load [[tokens:40]]", 40))
                for id in ids:
                    assert raw.end(running.pop(0))["t"] == "done"
                    raw.write(batch(id, "load [[tokens:40]]", 40))
                    running.append(id)
                    if gate.pool()["seats"] == 2:
                        break
                (notice,) = gate.status()["notices"]  # and none of limits that changed
                assert notice["code"] == "engine_queueing"
                assert "max_seqs = 2" in notice["detail"]
                for id in running:
                    assert raw.end(id)["t"] == "done"
        assert behind.server.most_running == 2
