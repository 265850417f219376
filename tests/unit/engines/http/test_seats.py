import pytest

from onegate.engines.base import EngineBroke, SeatFreed
from onegate.engines.http.dialect import Phase
from onegate.engines.http.seats import HttpSeats, Seat
from onegate.engines.stream import Stream


def seat_of(id, model="m", phase=Phase.DECODE, left_ns=None):
    stream = Stream(id, begin=lambda s: None, abandon=lambda s: None)
    return Seat(
        stream,
        model,
        since_ns=0,
        moved_ns=0,
        phase=phase,
        left_ns=left_ns,
        answered=phase is not Phase.SENT,
    )


def test_a_seat_is_told_of_once():
    told = []
    seats = HttpSeats(told.append)
    seat = seat_of(1)
    seats.enter(seat)
    assert 1 in seats
    seats.free(seat)
    seats.free(seat)
    assert told == [SeatFreed(id=1)]
    assert len(seats) == 0


def test_another_seat_of_the_same_id_is_not_freed():
    told = []
    seats = HttpSeats(told.append)
    seats.enter(seat_of(1))
    seats.free(seat_of(1))
    assert told == []


def test_what_is_lost_is_not_freed_and_readers_hear_last():
    told = []
    seats = HttpSeats(told.append)
    one, two = seat_of(1), seat_of(2)
    seats.enter(one)
    seats.enter(two)
    seats.lose([one], EngineBroke("gone"), lambda ids: told.append((ids, one.stream.ended)))
    seats.free(one)
    assert told == [([1], False)]
    assert one.stream.ended
    assert not two.stream.ended


def test_who_may_still_be_inside():
    seats = HttpSeats(lambda event: None)
    leaving = seat_of(1, left_ns=5)
    for seat in (
        leaving,
        seat_of(2),
        seat_of(3, phase=Phase.SENT),
        seat_of(4, phase=Phase.SENT, left_ns=3),
        seat_of(5, model="other"),
    ):
        seats.enter(seat)
    facts = seats.facts(leaving, 7, now_ns=10)
    assert facts.others == 2
    assert (facts.id, facts.model, facts.since_ns, facts.foreign) == (1, "m", 5, 7)
    assert [seat.id for seat in seats.leaving()] == [4, 1]


def test_what_was_sent_a_while_ago_has_arrived():
    seats = HttpSeats(lambda event: None)
    leaving = seat_of(1, left_ns=5)
    seats.enter(leaving)
    seats.enter(seat_of(2, phase=Phase.SENT))
    assert seats.facts(leaving, 0, now_ns=999_999_999).others == 0
    assert seats.facts(leaving, 0, now_ns=1_000_000_000).others == 1


def test_who_came_behind_it_is_not_older_and_ghosts_are_there_too():
    seats = HttpSeats(lambda event: None)
    leaving, older, newer = seat_of(1, left_ns=5), seat_of(2), seat_of(3)
    newer.since_ns = 6
    for seat in (leaving, older, newer):
        seats.enter(seat)
    facts = seats.facts(leaving, 0, now_ns=10)
    assert (facts.others, facts.older) == (2, 1)
    ghosts = [seat_of(4, left_ns=1), seat_of(5, model="other", left_ns=1)]
    facts = seats.facts(leaving, 0, now_ns=10, ghosts=ghosts)
    assert (facts.others, facts.older) == (3, 2)


async def test_whose_connection_was_cut_hears_it_when_the_server_lives_or_the_seat_is_free():
    for way in ("free", "hear_the_cut"):
        seats = HttpSeats(lambda event: None)
        seat, other = seat_of(1, left_ns=5), seat_of(2)
        seat.broke = EngineBroke("cut")
        seats.enter(seat)
        seats.enter(other)
        assert not seat.stream.ended
        if way == "free":
            seats.free(seat)
        else:
            seats.hear_the_cut()
        with pytest.raises(EngineBroke, match="cut"):
            await anext(seat.stream)
        assert not other.stream.ended


def test_who_waits_for_a_seat_is_told_of_every_one():
    seats = HttpSeats(lambda event: None)
    changes = []
    seats.freed = lambda: changes.append(len(seats))
    one, two = seat_of(1), seat_of(2)
    seats.enter(one)
    seats.enter(two)
    seats.free(one)
    seats.lose([two], EngineBroke("x"), lambda ids: None)
    assert changes == [1, 0]
