"""A lease: what is sent, when it counts as held, and every way in which it is given back."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.client.errors import Failed, InvalidRequest, Rejected, Unavailable
from onegate.client.lease import Holding
from onegate.client.sync_link import run
from onegate.protocol import messages as m
from onegate.protocol.content import Usage
from onegate.protocol.errors import Reason

USED = Usage(prompt_tok=3, output_tok=5)
Script = Callable[[Any], list[Any]]


def started(message: Any) -> list[Any]:
    return [m.Started(id=message.id, rid="r1", queue_ms=2.0)]


def settled(message: Any) -> list[Any]:
    return [m.Ack(id=message.id, verb="settle")]


def holding(world: Any, wire: Any, *answers: Script, **fields: Any) -> Holding:
    fields = {"model": "tiny", "class_": "batch", "ttft_timeout": 1.5} | fields
    return Holding(world.core(wire.script(*answers)), 10, 20, **fields)


def test_what_is_asked_and_what_is_settled(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started, settled)
    assert run(lease.begin()).queue_ms == 2.0
    run(lease.settle(USED))
    asked, said = world.sent
    assert (asked.prompt_tok, asked.max_tok, asked.model, asked.class_) == (10, 20, "tiny", "batch")
    assert asked.ttft_timeout_ms == 1500
    assert (said.id, said.usage) == (asked.id, USED)
    assert world.links[0].session.live == 0


def test_settling_or_leaving_twice_says_nothing_more(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started, settled)
    run(lease.begin())
    run(lease.settle(None))
    run(lease.settle(USED))
    lease.abandon()
    assert len(world.sent) == 2


def test_waiting_is_no_answer(world: Any, wire: Any) -> None:
    def queued(message: Any) -> list[Any]:
        return [m.Queued(id=message.id, rid="r1", position=1, ahead={}), *started(message)]

    lease = holding(world, wire, queued)
    assert run(lease.begin()).rid == "r1"


def test_a_refusal(world: Any, wire: Any) -> None:
    lease = holding(world, wire, wire.refuse(Reason.TOKENS_FULL, retry_after_ms=2000))
    with pytest.raises(Rejected) as error:
        run(lease.begin())
    assert error.value.retry_after == 2.0
    lease.abandon()
    assert [type(message) for message in world.sent] == [m.Lease]


def test_leaving_gives_it_back(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started)
    run(lease.begin())
    lease.abandon()
    lease.abandon()
    assert [type(message) for message in world.sent] == [m.Lease, m.Cancel]


def test_leaving_what_was_never_asked_for(world: Any, wire: Any) -> None:
    holding(world, wire).abandon()
    assert world.links == []


def test_one_that_is_taken_back(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started)
    run(lease.begin())
    world.links[0].say(wire.failed(Reason.ENGINE_TIMEOUT, world.sent[0].id))
    error = run(lease.ended())
    assert isinstance(error, Failed)
    assert error.reason is Reason.ENGINE_TIMEOUT
    # There is nothing left to settle or to cancel.
    run(lease.settle(USED))
    assert [type(message) for message in world.sent] == [m.Lease]


def test_one_whose_connection_is_lost(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started)
    run(lease.begin())
    world.links[0].session.feed(b"")
    assert isinstance(run(lease.ended()), Unavailable)


def test_settling_what_has_been_taken_back(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started, wire.refuse(Reason.ENGINE_TIMEOUT))
    run(lease.begin())
    with pytest.raises(Failed):
        run(lease.settle(USED))


def test_a_daemon_that_does_not_acknowledge(world: Any, wire: Any) -> None:
    lease = holding(world, wire, started, wire.silence)
    run(lease.begin())
    with pytest.raises(Unavailable, match="30"):
        run(lease.settle(USED))
    assert isinstance(world.sent[-1], m.Cancel)


@pytest.mark.parametrize("fields", [{"ttft_timeout": 0.0}, {"model": ""}])
def test_what_cannot_be_asked(world: Any, wire: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        holding(world, wire, **fields)
