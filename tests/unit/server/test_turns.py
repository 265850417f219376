"""The loop's time, shared by principal: a loop and a clock that move when the test says."""

import asyncio
from collections.abc import Callable

import pytest

from onegate import clock
from onegate.server import turns as turns_module
from onegate.server.turns import Turns

MS = 1_000_000


class Loop:
    """Runs what was called for soon, pass by pass. `done` is what was worked on, in order."""

    def __init__(self) -> None:
        self.now_ns = 10**9
        self.soon: list[Callable[[], None]] = []
        self.done: list[str] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def run_pass(self) -> list[str]:
        """One pass; returns what was worked on in it."""
        before = len(self.done)
        ready, self.soon = self.soon, []
        for call in ready:
            call()
        return self.done[before:]


class Connection:
    """A worker with messages of 1 ms each, unless it says otherwise."""

    def __init__(self, box: "Box", name: str) -> None:
        self.principal = name[0]
        self.name = name
        self.left = 0
        self.cost_ns = MS
        self.begins_ns = 0
        self.open = True
        self.yields = False
        self.error: BaseException | None = None
        self._box = box

    def come(self, count: int) -> None:
        """So many messages have come."""
        self.left += count
        self._box.turns.come(self)

    def work(self) -> bool:
        while self.open and self.left:
            self.left -= 1
            self._box.loop.now_ns += self.cost_ns
            self._box.loop.done.append(self.name)
            if self.begins_ns:
                self._box.turns.charge(self.principal, self.begins_ns)
            if self.error is not None:
                raise self.error
            if self._box.turns.over or self.yields:
                break
        return self.open and self.left > 0

    def hold(self) -> bool:
        return self.open


class Box:
    """Turns on that loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.turns = Turns()

    def connection(self, name: str, count: int = 0) -> Connection:
        """The principal is the first letter; `count` messages have come on it."""
        found = Connection(self, name)
        if count:
            found.come(count)
        return found


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Box:
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(clock, "monotonic_ns", lambda: loop.now_ns)
    monkeypatch.setattr(turns_module, "TURN_NS", 2 * MS)
    return Box(loop)


def test_a_quiet_client_is_served_at_once(box: Box) -> None:
    box.connection("a1", 1)
    assert box.loop.done == ["a1"]
    assert box.loop.run_pass() == []
    assert box.loop.soon == [], "an idle loop is left alone"


def test_the_second_connection_of_one_user_has_what_the_first_has_left(box: Box) -> None:
    box.connection("a1", 1)
    box.connection("a2", 5)
    box.connection("a3", 1)
    assert box.loop.done == ["a1", "a2"]
    assert len(box.turns) == 2


def test_another_is_served_at_once_however_much_waits_of_the_first(box: Box) -> None:
    for number in range(9):
        box.connection(f"a{number}", 100)
    assert box.loop.done == ["a0", "a0"]
    box.connection("b1", 1)
    assert box.loop.done == ["a0", "a0", "b1"]


def test_each_gets_one_turn_in_a_pass_however_many_its_connections(box: Box) -> None:
    for number in range(5):
        box.connection(f"a{number}", 100)
    box.connection("b1", 100)
    box.connection("c1", 100)
    box.loop.run_pass()
    for _ in range(10):
        worked = box.loop.run_pass()
        assert sorted(name[0] for name in worked) == ["a", "a", "b", "b", "c", "c"]


def test_the_connections_of_one_user_take_turns(box: Box) -> None:
    for number in range(3):
        box.connection(f"a{number}", 4)
    while box.loop.run_pass():
        pass
    # The first has had its turn by the time that the others come.
    assert box.loop.done[::2] == box.loop.done[1::2] == ["a0", "a0", "a1", "a2", "a1", "a2"]
    assert len(box.turns) == 0


def test_more_of_a_user_whose_work_waits_waits_behind_it(box: Box) -> None:
    """Also in a new pass, before that user's turn in it."""
    box.connection("a1", 4)
    box.loop.soon.insert(0, lambda: box.connection("a2", 1) and None)
    assert box.loop.run_pass() == ["a1", "a1"]
    assert box.loop.run_pass() == ["a2"]


def test_one_that_leaves_off_early_is_asked_once_a_turn(box: Box) -> None:
    """It waits for what it has written to go, for which the loop has to come round."""
    slow = box.connection("a1")
    slow.cost_ns, slow.yields = 1, True
    slow.come(5)
    box.connection("b1", 3)
    assert box.loop.run_pass() == ["a1", "b1"]
    assert box.loop.run_pass() == ["a1"]


def test_what_is_begun_for_later_shortens_the_turn(box: Box) -> None:
    costly = box.connection("a1")
    costly.cost_ns, costly.begins_ns = 1, MS
    costly.come(100)
    box.connection("a2", 1)
    assert box.loop.done == ["a1", "a1"]
    assert box.loop.run_pass() == ["a1", "a1"]
    assert box.loop.run_pass() == ["a2", "a1"]


def test_a_long_message_ends_the_turn_and_no_more(box: Box) -> None:
    long = box.connection("a1")
    long.cost_ns = 50 * MS
    long.come(2)
    box.connection("b1", 3)
    assert box.loop.done == ["a1", "b1", "b1"]
    assert box.loop.run_pass() == ["a1", "b1"]


def test_a_connection_that_is_over_leaves(box: Box) -> None:
    first, second = box.connection("a1", 5), box.connection("a2", 5)
    other = box.connection("b1", 5)
    box.turns.forget(second)
    box.turns.forget(second)
    box.turns.forget(other)
    assert len(box.turns) == 1
    assert box.loop.run_pass() == ["a1", "a1"]
    box.turns.forget(first)
    assert box.loop.run_pass() == []
    assert box.loop.soon == []
    # Nobody is left behind who would keep its principal waiting.
    box.connection("b2", 1)
    assert box.loop.done[-1] == "b2"


def test_what_is_not_worth_keeping_does_not_wait(box: Box) -> None:
    box.connection("a1", 9)
    refused = box.connection("a2")
    refused.open = False
    refused.come(1)
    assert len(box.turns) == 1


def test_a_principal_that_changes_is_remembered_as_it_was(box: Box) -> None:
    link = box.connection("a1", 9)
    link.principal = "z"
    box.turns.forget(link)
    assert len(box.turns) == 0
    assert box.loop.run_pass() == []


@pytest.mark.parametrize("at_once", [True, False])
def test_a_bug_costs_nobody_else_a_turn(box: Box, at_once: bool) -> None:
    buggy = box.connection("a1")
    if at_once:
        buggy.error = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            buggy.come(9)
        box.connection("a2", 9)
    else:
        buggy.come(9)
        buggy.error = ZeroDivisionError()
        box.connection("a2", 1)
        box.connection("b1", 3)
        with pytest.raises(ZeroDivisionError):
            box.loop.run_pass()
        assert sorted(box.loop.run_pass()) == ["a2", "b1"]
    while box.loop.soon:
        box.loop.run_pass()
    assert len(box.turns) == 0


def test_a_turn_of_no_time_is_one_message(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "TURN_NS", 0)
    box.connection("a1", 3)
    box.connection("a2", 1)
    assert box.loop.done == ["a1"]
    assert box.loop.run_pass() == ["a1"]
    assert box.loop.run_pass() == ["a2"]
    assert box.loop.run_pass() == ["a1"]
