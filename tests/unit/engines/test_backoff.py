from onegate.engines.backoff import Backoff

S = 1_000_000_000


def backoff():
    return Backoff(first_ms=100, max_ms=1000, reset_s=60.0)


def test_it_doubles_up_to_its_maximum():
    waits = backoff()
    assert [waits.lost(0) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_many_losses_are_no_overflow():
    waits = backoff()
    for _ in range(10_000):
        last = waits.lost(0)
    assert last == 1.0


def test_being_up_for_long_starts_anew():
    waits = backoff()
    waits.lost(0)
    waits.ready(0)
    assert waits.lost(59 * S) == 0.2
    waits.ready(100 * S)
    waits.ready(159 * S)  # a pool that is loaded again is no new beginning
    assert waits.lost(161 * S) == 0.1


def test_never_having_been_ready_does_not():
    waits = backoff()
    waits.lost(0)
    assert waits.lost(10_000 * S) == 0.2
