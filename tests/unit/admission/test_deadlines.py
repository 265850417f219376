"""Reminders that may be out of date, and never late."""

import pytest

from onegate.admission.deadlines import COMPACT_ABOVE, Deadlines, Key, Kind


class Owner:
    """What is due when, as it is now."""

    def __init__(self) -> None:
        self.due: dict[Key, int] = {}
        self.deadlines = Deadlines(self.due.get)

    def set(self, name: int | str, at: int, kind: Kind = Kind.WHOLE) -> None:
        self.due[kind, name] = at
        self.deadlines.remind((kind, name), len(self.due))

    def pop(self, now: int) -> Key | None:
        key = self.deadlines.pop(now)
        if key is not None:
            del self.due[key]
        return key


def test_in_order_and_not_before_their_time() -> None:
    owner = Owner()
    owner.set(1, 30)
    owner.set(2, 10)
    owner.set("batch", 10, Kind.OPENING)
    assert owner.deadlines.next_ns() == 10
    assert owner.pop(9) is None
    assert [owner.pop(10), owner.pop(10), owner.pop(10)] == [
        (Kind.WHOLE, 2),
        (Kind.OPENING, "batch"),
        None,
    ]
    assert owner.pop(30) == (Kind.WHOLE, 1)
    assert owner.deadlines.next_ns() is None


def test_what_is_not_due_is_not_remembered() -> None:
    owner = Owner()
    owner.deadlines.remind((Kind.WHOLE, 1), 1)
    assert len(owner.deadlines) == 0


def test_what_was_put_off_comes_at_its_new_time() -> None:
    owner = Owner()
    owner.set(1, 10)
    owner.due[Kind.WHOLE, 1] = 20
    assert owner.pop(10) is None
    assert owner.deadlines.next_ns() == 20


def test_what_is_over_does_not_come_at_all() -> None:
    owner = Owner()
    owner.set(1, 10)
    owner.set(2, 20)
    del owner.due[Kind.WHOLE, 1]
    assert owner.deadlines.next_ns() == 20
    assert len(owner.deadlines) == 1


def test_said_twice_it_comes_once() -> None:
    owner = Owner()
    owner.set(1, 10)
    owner.set(1, 10)
    assert [owner.pop(10), owner.pop(10)] == [(Kind.WHOLE, 1), None]


@pytest.mark.parametrize("alive", [0, 50])
def test_the_heap_stays_in_proportion_to_the_living(alive: int) -> None:
    owner = Owner()
    for name in range(alive):
        owner.set(name, 10**6 + name)
    for name in range(1000, 11_000):
        owner.set(name, 10**7)
        del owner.due[Kind.WHOLE, name]
        assert len(owner.deadlines) <= COMPACT_ABOVE + 4 * (alive + 1) + 1
    assert [owner.pop(10**8) for _ in range(alive)] == [(Kind.WHOLE, n) for n in range(alive)]
    assert owner.pop(10**8) is None


def test_casting_out_the_stale_keeps_each_of_the_living_once() -> None:
    owner = Owner()
    for _ in range(COMPACT_ABOVE + 10):
        owner.set(1, 10)
    owner.set(2, 20)
    assert len(owner.deadlines) < COMPACT_ABOVE
    assert [owner.pop(30), owner.pop(30), owner.pop(30)] == [
        (Kind.WHOLE, 1),
        (Kind.WHOLE, 2),
        None,
    ]


def test_only_when_they_pile_up_are_all_looked_at_again() -> None:
    asked = []

    def due(key: Key) -> int:
        asked.append(key)
        return 10

    deadlines = Deadlines(due)
    for rid in range(500):
        deadlines.remind((Kind.TTFT, rid), 500)
    assert len(asked) == 500


def test_what_was_cast_out_and_kept_comes_in_order() -> None:
    due: dict[Key, int] = {(Kind.TTFT, rid): 5000 - rid for rid in range(1000)}
    deadlines = Deadlines(due.get)
    for key in due:
        deadlines.remind(key, 1)  # fewer than there are: cast out again and again
    popped = []
    while (key := deadlines.pop(5000)) is not None:
        popped.append(due.pop(key))
    assert popped == list(range(4001, 5001))


def test_at_the_same_time_in_the_order_in_which_they_were_said() -> None:
    keys: list[Key] = [(Kind.WHOLE, 3), (Kind.OPENING, "chat"), (Kind.SWITCH, ""), (Kind.WHOLE, 1)]
    deadlines = Deadlines(dict.fromkeys(keys, 10).get)
    for key in keys:
        deadlines.remind(key, 4)
    due = [deadlines.pop(10) for _ in keys]
    assert due == keys


def test_casting_out_looks_at_what_is_due_now() -> None:
    due: dict[Key, int] = {(Kind.OPENING, name): 10 for name in ("chat", 3, "batch", 2)}
    for rid in range(300):
        due[Kind.TTFT, rid] = 1000 + rid
    deadlines = Deadlines(due.get)
    for key in due:
        deadlines.remind(key, 300)
    for rid in range(300):
        due[Kind.TTFT, rid] = 2000 - rid
    for _ in range(2000):
        deadlines.remind((Kind.OPENING, 2), 1)
    popped = []
    while (key := deadlines.pop(5000)) is not None:
        popped.append(due.pop(key))
    assert popped == [10] * 4 + list(range(1701, 2001))
