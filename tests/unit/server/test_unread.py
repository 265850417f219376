"""What all clients together may leave unread, and who goes when it is too much."""

from dataclasses import dataclass

import pytest

from onegate.server.unread import NOTED_BYTES, Unread

KIB = 1024


@dataclass(eq=False)
class Reader:
    unread: "Unread"
    principal: str = "uid:1"
    unread_bytes: int = 0
    gone: bool = False

    def give_up(self) -> None:
        assert not self.gone
        self.gone = True
        self.unread_bytes = 0

    def write(self, n_bytes: int) -> None:
        self.unread_bytes += n_bytes
        self.unread.grew(self)


@pytest.fixture
def unread() -> Unread:
    return Unread(lambda: (400 * KIB, 200 * KIB))


def test_below_the_bounds_everybody_stays(unread: Unread) -> None:
    readers = [Reader(unread, f"uid:{n}") for n in range(4)]
    for reader in readers:
        reader.write(100 * KIB)
    assert not any(reader.gone for reader in readers)
    assert unread.total_bytes == 400 * KIB


def test_above_a_principals_bound_its_reader_with_the_most_goes(unread: Unread) -> None:
    greedy, modest, other = Reader(unread), Reader(unread), Reader(unread, "uid:2")
    other.write(190 * KIB)
    greedy.write(150 * KIB)
    modest.write(51 * KIB)
    assert [r.gone for r in (greedy, modest, other)] == [True, False, False]
    assert unread.total_bytes == 241 * KIB


def test_above_the_bound_in_all_whoever_has_the_most_goes(unread: Unread) -> None:
    readers = [Reader(unread, f"uid:{n}") for n in range(4)]
    for reader, n_bytes in zip(readers, (90, 150, 100, 61), strict=True):
        reader.write(n_bytes * KIB)
    assert [reader.gone for reader in readers] == [False, True, False, False]
    assert unread.total_bytes == 251 * KIB


def test_as_many_go_as_have_to(unread: Unread) -> None:
    readers = [Reader(unread) for _ in range(5)]
    for reader in readers[:4]:
        reader.write(50 * KIB)
    readers[4].write(140 * KIB)
    assert [reader.gone for reader in readers] == [False, False, False, False, True]
    readers[0].write(200 * KIB)
    assert readers[0].gone
    assert unread.total_bytes == 150 * KIB


def test_what_has_been_read_meanwhile_is_not_held_against_anybody(unread: Unread) -> None:
    """Nobody tells when a buffer empties: it is looked at again before somebody goes."""
    readers = [Reader(unread) for _ in range(3)]
    for reader in readers:
        reader.write(110 * KIB)
        reader.unread_bytes = 0
    readers[0].write(110 * KIB)
    assert not any(reader.gone for reader in readers)
    assert unread.total_bytes == 110 * KIB


def test_little_is_not_noted(unread: Unread) -> None:
    readers = [Reader(unread) for _ in range(100)]
    for reader in readers:
        reader.write(NOTED_BYTES - 1)
    assert unread.total_bytes == 0
    readers[0].write(1)
    assert unread.total_bytes == NOTED_BYTES
    readers[0].unread_bytes = 5
    readers[0].write(1)
    assert unread.total_bytes == 0


def test_a_connection_that_is_over_counts_no_more(unread: Unread) -> None:
    reader = Reader(unread)
    reader.write(100 * KIB)
    unread.forget(reader)
    unread.forget(reader)
    assert unread.total_bytes == 0
    other = Reader(unread)
    other.write(200 * KIB)
    assert not other.gone


def test_a_principal_that_changes_is_refunded_what_it_was_charged(unread: Unread) -> None:
    reader, other = Reader(unread), Reader(unread)
    reader.write(150 * KIB)
    reader.principal = "uid:2"
    reader.write(1)
    other.write(200 * KIB)
    assert not other.gone
    unread.forget(reader)
    unread.forget(other)
    assert unread.total_bytes == 0


def test_the_bounds_are_asked_for_each_time() -> None:
    limits = [400 * KIB, 200 * KIB]
    unread = Unread(lambda: (limits[0], limits[1]))
    reader = Reader(unread)
    reader.write(150 * KIB)
    limits[1] = 100 * KIB
    reader.write(1)
    assert reader.gone
