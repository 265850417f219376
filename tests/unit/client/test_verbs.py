"""Questions with one answer: what is sent, and what is given back."""

from collections.abc import Callable
from typing import Any

import pytest

from onegate.client.errors import InvalidRequest, Unavailable, Unsupported
from onegate.client.sync_link import run
from onegate.client.verbs import Verbs
from onegate.protocol import messages as m
from onegate.protocol.content import Usage
from onegate.protocol.errors import Reason
from onegate.protocol.status import GateStatus, RequestStatus, Status

STATUS = Status(
    state="serving",
    version="0",
    uptime_s=1.0,
    gate=GateStatus(
        in_flight=0,
        max_in_flight=1,
        queued=0,
        queued_tok=0,
        max_queued_tok=1,
        inbound_bytes=0,
        sessions=1,
    ),
    pools=[],
    classes=[],
    notices=[],
)
REQUEST = RequestStatus(
    rid="r1", class_="loop", state="running", age_ms=1, prompt_tok=1, output_tok=1, mine=True
)

Ask = Callable[[Verbs], Any]


def answered(world: Any, wire: Any, ask: Ask, answer: Callable[[int], m.DaemonMessage]) -> Any:
    verbs = Verbs(world.core(wire.script(lambda message: [answer(message.id)])))
    return run(ask(verbs))


def test_count(world: Any, wire: Any) -> None:
    counted = answered(
        world,
        wire,
        lambda v: v.count("hi", None, "tiny", None),
        lambda i: m.Counted(id=i, n_tok=2, exact=True),
    )
    assert (counted.n_tok, counted.exact) == (2, True)
    assert (world.sent[0].prompt, world.sent[0].model) == ("hi", "tiny")


def test_count_with_tools(world: Any, wire: Any) -> None:
    turns, tools = [{"role": "user", "content": "hi"}], [{"function": {"name": "f"}}]
    answered(
        world,
        wire,
        lambda v: v.count(None, turns, None, tools),
        lambda i: m.Counted(id=i, n_tok=2, exact=True),
    )
    assert world.sent[0].tools[0].function.name == "f"


def test_capacity(world: Any, wire: Any) -> None:
    report = answered(
        world,
        wire,
        lambda v: v.capacity(100, 50, None, "batch"),
        lambda i: m.CapacityReport(id=i, verdict="queue", position=2),
    )
    assert (report.verdict, report.position) == ("queue", 2)
    sent = world.sent[0]
    assert (sent.prompt_tok, sent.max_tok, sent.class_) == (100, 50, "batch")


def test_status_and_requests(world: Any, wire: Any) -> None:
    report = answered(
        world, wire, lambda v: v.status(), lambda i: m.StatusReport(id=i, status=STATUS)
    )
    assert report.state == "serving"
    assert world.sent[0].detail is False


@pytest.mark.parametrize(("shown", "expected"), [([REQUEST], [REQUEST]), (None, [])])
def test_requests(world: Any, wire: Any, shown: Any, expected: list[RequestStatus]) -> None:
    found = answered(
        world,
        wire,
        lambda v: v.requests(),
        lambda i: m.StatusReport(id=i, status=STATUS, requests=shown),
    )
    assert found == expected
    assert world.sent[0].detail is True


def test_metrics(world: Any, wire: Any) -> None:
    text = answered(world, wire, lambda v: v.metrics(), lambda i: m.MetricsReport(id=i, text="x 1"))
    assert text == "x 1"


def test_pause_says_when_in_milliseconds(world: Any, wire: Any) -> None:
    applied = answered(
        world, wire, lambda v: v.pause("batch", 12.5, None), lambda i: m.Ack(id=i, verb="pause")
    )
    assert applied is True
    assert (world.sent[0].class_, world.sent[0].until_ms) == ("batch", 12_500)


def test_pause_without_an_end(world: Any, wire: Any) -> None:
    answered(
        world, wire, lambda v: v.pause("batch", None, None), lambda i: m.Ack(id=i, verb="pause")
    )
    assert world.sent[0].until_ms is None


def test_unpause_and_cancel_any_tell_whether_there_was_anything_to_do(
    world: Any, wire: Any
) -> None:
    applied = answered(
        world,
        wire,
        lambda v: v.unpause("batch", None),
        lambda i: m.Ack(id=i, verb="unpause", applied=False),
    )
    assert applied is False
    applied = answered(
        world,
        wire,
        lambda v: v.cancel_any("r1"),
        lambda i: m.Ack(id=i, verb="cancel_any", applied=False),
    )
    assert applied is False
    assert [type(message) for message in world.sent] == [m.Unpause, m.CancelAny]


def test_embed_passes_vectors_and_refusals_on(world: Any, wire: Any) -> None:
    usage = Usage(prompt_tok=1, output_tok=0)
    script = wire.script(
        lambda e: [
            m.Started(id=e.id, rid="r", queue_ms=0.0),
            m.Embeddings(id=e.id, vectors=[[1.0]], usage=usage),
        ],
        wire.refuse(Reason.UNSUPPORTED),
    )
    verbs = Verbs(world.core(script))
    assert run(verbs.embed(["a"], None, None, None)).vectors == [[1.0]]
    with pytest.raises(Unsupported):
        run(verbs.embed(["a"], None, None, 5.0))
    assert world.sent[1].timeout_ms == 5000


@pytest.mark.parametrize(
    "ask",
    [
        lambda v: v.pause("", None, None),
        lambda v: v.pause("batch", -1.0, None),
        lambda v: v.pause("batch", float("nan"), None),
        lambda v: v.usage(-1.0),
        lambda v: v.release_engine(float("nan"), False, None, None),
        lambda v: v.unpause("", None),
        lambda v: v.cancel_any(""),
        lambda v: v.capacity(-1, None, None, None),
        lambda v: v.embed([], None, None, None),
        lambda v: v.count(None, None, None, None),
    ],
)
def test_bad_values_are_found_before_anything_is_sent(world: Any, ask: Ask) -> None:
    with pytest.raises(InvalidRequest):
        run(ask(Verbs(world.core())))
    assert world.links == []


def test_usage_says_since_when_in_milliseconds(world: Any, wire: Any) -> None:
    row = m.UsageRow(day="2030-01-31", principal="uid:1", class_="loop", requests={"finished": 1})
    report = answered(
        world, wire, lambda v: v.usage(12.5), lambda i: m.UsageReport(id=i, rows=[row])
    )
    assert report.rows == [row]
    assert world.sent[0].since_ms == 12_500
    answered(world, wire, lambda v: v.usage(None), lambda i: m.UsageReport(id=i, rows=[]))
    assert world.sent[1].since_ms is None


@pytest.mark.parametrize("applied", [True, False])
def test_releasing_and_taking_back(world: Any, wire: Any, applied: bool) -> None:
    def ack(i: int) -> m.Ack:
        return m.Ack(id=i, verb="release_engine", applied=applied)

    assert answered(world, wire, lambda v: v.release_engine(12.5, True, None, None), ack) is applied
    assert answered(world, wire, lambda v: v.release_engine(None, False, 5.0, None), ack) is applied
    assert answered(world, wire, lambda v: v.take_back(None), ack) is applied
    first, second, third = world.sent
    assert (first.until_ms, first.now, first.end) == (12_500, True, False)
    assert (second.until_ms, second.now, second.end) == (None, False, False)
    assert (third.until_ms, third.now, third.end) == (None, False, True)


def test_a_release_that_takes_too_long_is_given_up(world: Any, wire: Any) -> None:
    verbs = Verbs(world.core(wire.script(lambda message: [])))
    with pytest.raises(Unavailable, match="within"):
        run(verbs.release_engine(None, False, 0.0, None))
    assert [type(message) for message in world.sent] == [m.ReleaseEngine, m.Cancel]


@pytest.mark.parametrize(
    "ask",
    [
        lambda v, told: v.pause("batch", None, told),
        lambda v, told: v.unpause("batch", told),
        lambda v, told: v.release_engine(None, False, None, told),
        lambda v, told: v.take_back(told),
    ],
)
def test_what_does_not_hold_is_passed_on(world: Any, wire: Any, ask: Any) -> None:
    notices = [m.Notice(code="closed_unwritten", detail="a"), m.Notice(code="new", detail="b")]
    told: list[m.Notice] = []

    def ack(i: int) -> m.Ack:
        verb = {m.Pause: "pause", m.Unpause: "unpause", m.ReleaseEngine: "release_engine"}
        return m.Ack(id=i, verb=verb[type(world.sent[-1])], notices=notices)

    assert answered(world, wire, lambda v: ask(v, told.append), ack)
    assert told == notices
    answered(world, wire, lambda v: ask(v, None), ack)


def test_load_and_unload(world: Any, wire: Any) -> None:
    answered(world, wire, lambda v: v.load("tiny", None), lambda i: m.Ack(id=i, verb="load"))
    assert world.sent[-1].model == "tiny"
    for applied in (True, False):
        ack = m.Ack(id=0, verb="unload", applied=applied)
        found = answered(
            world,
            wire,
            lambda v: v.unload("tiny", 5.0),
            lambda i, ack=ack: m.Ack(id=i, verb=ack.verb, applied=ack.applied),  # type: ignore[misc]
        )
        assert found is applied


def test_who_does_not_wait_for_a_load_ends_it(world: Any, wire: Any) -> None:
    verbs = Verbs(world.core(wire.script(wire.silence)))
    with pytest.raises(Unavailable):
        run(verbs.load("tiny", 1.0))
    assert isinstance(world.sent[-1], m.Cancel)
