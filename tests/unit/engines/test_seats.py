import pytest

from onegate.engines.base import (
    Accepted,
    EngineBroke,
    EngineChunk,
    EngineMalformed,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Finished,
    Progress,
    SeatFreed,
    Stopped,
)
from onegate.engines.host.wire import AcceptedMsg, Ended, Output, Prefilled, RefusedMsg, Step
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule
from onegate.engines.stream import Stream
from onegate.protocol.content import FinishReason, Usage

USAGE = Usage(prompt_tok=1, output_tok=2)


class Room:
    def __init__(self):
        self.told = []
        self.seats = Seats(self.told.append, StallRule(10.0, 0))

    def enter(self, id, *, accept=True, model="m"):
        stream = Stream(id, begin=lambda stream: None, abandon=lambda stream: None)
        self.seats.enter(stream, model)
        if accept:
            self.seats.accepted(AcceptedMsg(id=id, prompt_tok=3))
        return stream


@pytest.fixture
def room():
    return Room()


async def rest(stream):
    return [item async for item in stream]


def chunk(id):
    return Output(id=id, chunk=EngineChunk(n_tok=1, text="x"))


def end(id, **given):
    given.setdefault("finish_reason", FinishReason.STOP)
    return Ended(id=id, usage=USAGE, **given)


async def test_a_whole_life(room):
    stream = room.enter(1)
    assert 1 in room.seats
    room.seats.step(Step(n=1, prefilled=[Prefilled(id=1, prefilled_tok=2)]))
    room.seats.step(Step(n=2, outputs=[chunk(1)]))
    room.seats.step(Step(n=3, outputs=[chunk(1)], ended=[end(1)], freed=[1]))
    kinds = [type(item) for item in await rest(stream)]
    assert kinds == [Accepted, Progress, EngineChunk, EngineChunk, Finished]
    assert room.told == [SeatFreed(id=1)]
    assert len(room.seats) == 0


async def test_the_seat_may_be_free_later_than_the_end(room):
    stream = room.enter(1)
    room.seats.step(Step(n=1, ended=[end(1)]))
    assert type((await rest(stream))[-1]) is Finished
    assert room.told == []
    room.seats.step(Step(n=2, freed=[1]))
    assert room.told == [SeatFreed(id=1)]


async def test_stopped_when_asked_and_not_faster(room):
    stream = room.enter(1)
    assert room.seats.ask_to_go(1)
    assert not room.seats.ask_to_go(1)
    room.seats.step(Step(n=1, outputs=[chunk(1)], freed=[1]))
    assert [type(item) for item in await rest(stream)] == [Accepted, EngineChunk, Stopped]
    faster = room.enter(2)
    assert room.seats.ask_to_go(2)
    room.seats.step(Step(n=2, ended=[end(2)], freed=[2]))
    assert type((await rest(faster))[-1]) is Finished
    assert not room.seats.ask_to_go(2)
    assert not room.seats.ask_to_go(99)


def test_what_has_ended_is_not_asked_to_go(room):
    room.enter(1)
    room.seats.step(Step(n=1, ended=[end(1)]))
    assert not room.seats.ask_to_go(1)


async def test_an_error_of_the_engine_ends_one_stream(room):
    stream = room.enter(1)
    room.seats.step(Step(n=1, ended=[end(1, finish_reason=None, error="no ink")], freed=[1]))
    with pytest.raises(EngineBroke, match="no ink"):
        await rest(stream)
    assert room.told == [SeatFreed(id=1)]


@pytest.mark.parametrize(
    ("code", "numbers", "kind"),
    [
        ("invalid", {}, EngineRefused),
        ("unsupported", {"path": "raw"}, EngineRefused),
        ("too_large", {"need_tok": 9, "limit_tok": 5}, EngineTooLarge),
        ("unavailable", {}, EngineUnavailable),
    ],
)
async def test_a_refusal_frees_the_seat(room, code, numbers, kind):
    stream = room.enter(1, accept=False)
    room.seats.refused(RefusedMsg(id=1, code=code, message="m", **numbers))
    with pytest.raises(kind) as raised:
        await rest(stream)
    assert room.told == [SeatFreed(id=1)]
    if code == "unsupported":
        assert raised.value.unsupported
        assert raised.value.path == "raw"
    if code == "too_large":
        assert (raised.value.need_tok, raised.value.limit_tok) == (9, 5)


@pytest.mark.parametrize(
    "step",
    [
        Step(n=1, outputs=[chunk(7)]),
        Step(n=1, outputs=[chunk(2)]),
        Step(n=1, outputs=[chunk(3)]),
        Step(n=1, prefilled=[Prefilled(id=7, prefilled_tok=1)]),
        Step(n=1, ended=[end(7)]),
        Step(n=1, ended=[end(3)]),
        Step(n=1, ended=[end(1, finish_reason=None)]),
        Step(n=1, freed=[7]),
        Step(n=1, freed=[2]),
        Step(n=1, freed=[1]),
        Step(n=1, freed=[3, 3]),
    ],
    ids=repr,
)
def test_steps_that_make_no_sense(room, step):
    room.enter(1)
    room.enter(2, accept=False)
    room.enter(3)
    room.seats.step(Step(n=0, ended=[end(3)]))
    with pytest.raises(EngineMalformed):
        room.seats.step(step)


def test_a_seat_is_not_freed_before_the_request_was_answered(room):
    room.enter(1, accept=False)
    assert room.seats.ask_to_go(1)
    with pytest.raises(EngineMalformed):
        room.seats.step(Step(n=1, freed=[1]))


def test_answers_that_make_no_sense(room):
    room.enter(1)
    for message in (AcceptedMsg(id=1), AcceptedMsg(id=9)):
        with pytest.raises(EngineMalformed):
            room.seats.accepted(message)
    with pytest.raises(EngineMalformed):
        room.seats.refused(RefusedMsg(id=1, code="invalid", message="late"))
    room.enter(2, accept=False)
    with pytest.raises(EngineMalformed):
        room.seats.refused(RefusedMsg(id=2, code="surprise", message="x"))


async def test_a_loss_is_told_before_the_readers_hear(room):
    streams = [room.enter(id) for id in (1, 2)]
    room.seats.step(Step(n=1, ended=[end(2)]))
    heard = []
    room.seats.lose(EngineMalformed("gone"), lambda ids: heard.append((ids, streams[0].ended)))
    assert heard == [([1, 2], False)]
    with pytest.raises(EngineMalformed, match="gone"):
        await rest(streams[0])
    assert type((await rest(streams[1]))[-1]) is Finished
    assert room.told == []
    assert len(room.seats) == 0


def test_who_is_in_which_pool(room):
    room.enter(1, model="red")
    room.enter(2, model="blue")
    assert room.seats.of("red") == [1]
    assert room.seats.of("green") == []
