"""Waiting for a model."""

import json
from datetime import datetime
from typing import Any

import pytest

from onegate.cli import wait_ready as verb
from onegate.cli.main import run
from onegate.cli.wait_ready import Look, judge, look
from onegate.client.errors import Rejected, Unavailable, WrongModel, error_of
from onegate.protocol.errors import Reason


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 0
        monkeypatch.setattr(verb, "monotonic_ns", lambda: self.now_ns)
        monkeypatch.setattr(verb.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_ready_is_when_a_pool_is(given: Any) -> None:
    assert judge(given.status(), None) == Look("tiny")
    assert judge(given.status(), "tiny") == Look("tiny")


@pytest.mark.parametrize(
    ("more", "model", "why"),
    [
        ({"state": "starting"}, None, "the daemon is starting"),
        ({"state": "draining"}, None, "the daemon is draining"),
        ({"pools": []}, None, "no model yet"),
        ({}, "other", "no model yet"),
    ],
)
def test_what_is_missing_is_said(given: Any, more: Any, model: str | None, why: str) -> None:
    ready, text, down = judge(given.status(**more), model)
    assert (ready, down) == (None, False)
    assert why in text


@pytest.mark.parametrize(
    ("states", "ready"),
    [(["cold"], "m0"), (["cold", "ready"], "m1"), (["cold", "loading"], None), (["failed"], None)],
)
def test_what_the_first_request_loads_is_not_waited_for(
    given: Any, states: list[str], ready: str | None
) -> None:
    pools = [given.pool(model=f"m{i}", state=state) for i, state in enumerate(states)]
    assert judge(given.status(pools=pools), None)[0] == ready


def test_another_model_that_is_not_loaded_is_not_waited_for(given: Any) -> None:
    pools = [given.pool(), given.pool(model="other", state="cold")]
    assert judge(given.status(pools=pools), "other") == Look("other")


def test_the_engines_own_words_are_passed_on(given: Any) -> None:
    status = given.status(pools=[given.pool(state="failed", error="out of memory")])
    assert judge(status, None) == Look(None, "tiny is failed (out of memory)")


def test_an_engine_that_is_down_says_so(given: Any) -> None:
    notices = [given.notice(code="engine_down", detail="nobody answers", since_ms=1)]
    away = judge(given.status(pools=[], notices=notices), None)
    assert away == Look(None, "the engine has no model yet: nobody answers", True)
    again = judge(given.status(pools=[given.pool(state="loading")], notices=notices), None)
    assert again == Look(None, "tiny is loading: nobody answers", True)
    pools = [given.pool(state="failed", error="nobody answers")]
    once = judge(given.status(pools=pools, notices=notices), None)
    assert once == Look(None, "tiny is failed (nobody answers)", True)


def test_until_when_it_is_released_is_said(given: Any) -> None:
    until_ms = round(datetime(2030, 1, 31, 7).timestamp() * 1000)
    status = given.status(pools=[given.pool(state="released", released_until_ms=until_ms)])
    assert judge(status, None) == Look(None, "tiny is released until 2030-01-31 07:00:00")


def test_no_daemon_is_something_to_wait_for(gate: Any) -> None:
    gate.answers["open"] = Unavailable("nobody")
    assert look("/s", None) == Look(None, "nobody")


def test_a_daemon_that_goes_is_something_to_wait_for(gate: Any, given: Any) -> None:
    gate.answers["open"] = error_of(given.failed(Reason.SHUTTING_DOWN), started=False)
    ready, _, _ = look("/s", None)
    assert ready is None


@pytest.mark.parametrize("reason", [Reason.WRONG_MODEL, Reason.PERMISSION])
def test_what_waiting_does_not_mend_is_raised(gate: Any, given: Any, reason: Reason) -> None:
    gate.answers["open"] = error_of(given.failed(reason), started=False)
    with pytest.raises((WrongModel, Rejected)):
        look("/s", None)


def test_ready_at_once(gate: Any, given: Any, clock: Clock, capsys: Any) -> None:
    gate.answers["status"] = given.status()
    assert run(["wait-ready", "--model", "tiny", "--socket", "/s"]) == 0
    assert capsys.readouterr().out == "ready: tiny\n"
    assert (gate.opened[0]["model"], gate.opened[0]["socket"]) == ("tiny", "/s")
    assert clock.now_ns == 0
    assert run(["wait-ready", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": "tiny"}


def test_not_in_time(gate: Any, given: Any, clock: Clock, capsys: Any) -> None:
    gate.answers["status"] = given.status(pools=[given.pool(state="loading")])
    assert run(["wait-ready", "--timeout", "3"]) == 69
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "not ready after 3 s: tiny is loading" in captured.err
    assert 3.0 <= clock.now_ns / 1e9 <= 3.0 + verb.POLL_S


def test_ready_after_a_while(gate: Any, given: Any, clock: Clock) -> None:
    states = iter([given.status(pools=[]), given.status(state="starting"), given.status()])
    gate.status = lambda: next(states)
    assert run(["wait-ready"]) == 0


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1", "1e300", "1099511628"])
def test_what_is_no_time_is_a_usage_error(gate: Any, capsys: Any, seconds: str) -> None:
    assert run(["wait-ready", "--timeout", seconds]) == 64
    assert gate.opened == []
    text = capsys.readouterr().err
    assert "--timeout" in text
    assert "2^40 ms" in text
