"""How far a connection has come, as data."""

from onegate.protocol import messages as m
from onegate.protocol.stage import STAGES, Connection, Stage


def test_a_connection_goes_forward_only() -> None:
    order = list(Stage)
    assert all(order.index(after) > order.index(before) for (before, _), after in STAGES.items())


def test_every_stage_but_the_last_can_be_ended_with_a_word() -> None:
    """After the last word nothing is said, and to a broken daemon nothing is listened."""
    for stage in Stage:
        ended = stage in (Stage.OVER, Stage.BROKEN)
        assert (STAGES.get((stage, m.Failed)) is Stage.OVER) == (not ended)


def test_there_is_one_hello_and_one_welcome() -> None:
    for kind in (m.Hello, m.Welcome):
        assert len([stage for stage, moved_by in STAGES if moved_by is kind]) == 1


def test_a_connection_begins_with_nothing() -> None:
    connection = Connection(10)
    assert connection.stage is Stage.NEW
    assert (connection.incomplete, connection.buffered_bytes, connection.frames) == (False, 0, 0)
    assert (connection.live, connection.is_live(0)) == (0, False)
