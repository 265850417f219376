"""Which answers a request may get, in which order."""

from typing import get_args

import pytest

from onegate.protocol import messages as m
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.exchange import EXCHANGES, State, after, belongs, ends, stands_beside

FAILED = m.Failed(reason=Reason.CANCELLED, message="", retryable=True, phase=Phase.QUEUED, id=1)
CHUNK = m.Chunk(id=1, n_tok=1)
STARTED = m.Started(id=1, rid="r", queue_ms=0.0)


def test_every_request_has_an_exchange_but_those_that_name_anothers_id() -> None:
    requests = set(get_args(m.ClientMessage)) - {m.Hello}
    assert set(EXCHANGES) == requests - {m.Cancel, m.Settle}


def test_every_answer_has_a_place() -> None:
    placed = {answer for table in EXCHANGES.values() for _, answer in table}
    assert placed == set(get_args(m.DaemonMessage)) - {m.Welcome}


@pytest.mark.parametrize("kind", EXCHANGES, ids=lambda kind: kind.__name__)
def test_every_state_but_the_last_can_fail(kind: type) -> None:
    table = EXCHANGES[kind]
    states = {State.WAITING, *table.values()} - {State.OVER}
    for state in states:
        assert table[state, m.Failed] is State.OVER
    assert not any(state is State.OVER for state, _ in table)


@pytest.mark.parametrize("kind", EXCHANGES, ids=lambda kind: kind.__name__)
def test_every_state_is_reached(kind: type) -> None:
    table = EXCHANGES[kind]
    assert {state for state, _ in table} <= {State.WAITING, *table.values()}


def test_text_comes_only_from_a_running_request() -> None:
    assert after(m.Generate, State.WAITING, CHUNK) is None
    assert after(m.Generate, State.RUNNING, CHUNK) is State.RUNNING
    assert after(m.Generate, State.PAUSED, CHUNK) is None


def test_started_comes_once() -> None:
    assert after(m.Generate, State.WAITING, STARTED) is State.RUNNING
    assert after(m.Generate, State.RUNNING, STARTED) is None


@pytest.mark.parametrize(
    ("kind", "verb"),
    [(m.Lease, "settle"), (m.Load, "load"), (m.CancelAny, "cancel_any"), (m.Pause, "pause")],
)
def test_an_ack_ends_what_its_verb_names(kind: type, verb: str) -> None:
    state = State.RUNNING if kind is m.Lease else State.WAITING
    assert after(kind, state, m.Ack(id=1, verb=verb)) is State.OVER
    assert after(kind, state, m.Ack(id=1, verb="other")) is None


def test_a_waiting_lease_is_not_settled() -> None:
    assert after(m.Lease, State.WAITING, m.Ack(id=1, verb="settle")) is None


@pytest.mark.parametrize(
    ("message", "beside"),
    [
        (m.Ack(id=1, verb="cancel"), True),
        (m.Ack(id=1, verb="cancel", applied=False), True),
        (m.Ack(id=1, verb="settle", applied=False), True),
        (m.Ack(id=1, verb="settle"), False),
        (m.Ack(id=1, verb="pause", applied=False), False),
        (FAILED, False),
    ],
)
def test_some_acks_move_nothing(message: m.DaemonMessage, beside: bool) -> None:
    assert stands_beside(message) is beside


def test_belonging_and_ending_do_not_ask_for_the_state() -> None:
    assert belongs(m.Generate, CHUNK)
    assert not belongs(m.Whoami, CHUNK)
    assert not ends(m.Generate, CHUNK)
    assert ends(m.Generate, FAILED)
    assert ends(m.Lease, m.Ack(id=1, verb="settle"))
    assert not ends(m.Lease, m.Ack(id=1, verb="lease"))
