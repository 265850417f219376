"""The connection of a client: made, kept, made anew."""

from typing import Any

import pytest

from onegate.client.core import cancel_now
from onegate.client.errors import (
    InvalidRequest,
    NotPermitted,
    ProtocolError,
    Rejected,
    Unavailable,
    WrongModel,
)
from onegate.client.sync_link import run
from onegate.protocol import messages as m
from onegate.protocol.errors import Reason
from onegate.protocol.features import KNOWN


def whoami(call_id: int) -> m.Whoami:
    return m.Whoami(id=call_id)


def report(message: m.ClientMessage) -> list[m.DaemonMessage]:
    assert isinstance(message, m.Whoami)
    peer = m.PeerFacts(uid=7, gid=7, pid=7)
    return [
        m.WhoamiReport(
            id=message.id,
            peer=peer,
            principal="7",
            class_="loop",
            ceiling="loop",
            allowed=["loop"],
            why=[],
        )
    ]


def test_the_hello_says_what_the_client_was_told(world: Any, wire: Any) -> None:
    core = world.core(wire.script(), model="tiny", class_="batch", app="mail")
    run(core.link())
    (hello,) = world.links[0].sent
    assert isinstance(hello, m.Hello)
    assert (hello.model, hello.class_, hello.app) == ("tiny", "batch", "mail")
    assert set(hello.features) == KNOWN
    assert core.greeting().class_ == "loop"


def test_there_is_no_greeting_before_the_first_handshake(world: Any) -> None:
    with pytest.raises(Unavailable):
        world.core().greeting()


def test_one_connection_serves_many_questions(world: Any, wire: Any) -> None:
    core = world.core(wire.script(report, report))
    assert run(core.ask(whoami, m.WhoamiReport)).principal == "7"
    assert run(core.ask(whoami, m.WhoamiReport)).principal == "7"
    assert len(world.links) == 1
    assert world.links[0].session.live == 0


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.WRONG_MODEL, WrongModel),
        (Reason.PERMISSION, NotPermitted),
        (Reason.SHUTTING_DOWN, Rejected),
        (Reason.PROTOCOL, ProtocolError),
    ],
)
def test_a_refused_handshake_is_raised_and_closed(
    world: Any, wire: Any, reason: Reason, kind: type[Exception]
) -> None:
    core = world.core(lambda message: [wire.failed(reason, models=["tiny"])])
    with pytest.raises(kind) as caught:
        run(core.link())
    assert getattr(caught.value, "models", ["tiny"]) == ["tiny"]
    assert world.links[0].closed


def test_a_daemon_that_says_nothing_is_given_up(world: Any) -> None:
    core = world.core(lambda message: [])
    with pytest.raises(Unavailable, match="did not answer within 10"):
        run(core.link())
    assert world.links[0].closed


def test_a_daemon_that_hangs_up_is_unavailable(world: Any) -> None:
    with pytest.raises(Unavailable, match="closed"):
        run(world.core(lambda message: None).link())
    assert world.links[0].closed


def test_a_lost_connection_is_made_anew_at_the_next_question(world: Any, wire: Any) -> None:
    core = world.core(wire.script(report), wire.script(report))
    run(core.ask(whoami, m.WhoamiReport))
    world.links[0].session.feed(b"")
    run(core.ask(whoami, m.WhoamiReport))
    assert len(world.links) == 2
    assert world.links[0].closed


def test_an_end_that_came_while_idle_is_noticed_before_asking(world: Any, wire: Any) -> None:
    core = world.core(wire.script(report), wire.script(report))
    run(core.ask(whoami, m.WhoamiReport))
    world.links[0].arrived = b""
    run(core.ask(whoami, m.WhoamiReport))
    assert len(world.links) == 2


def test_a_connection_that_breaks_under_a_question_is_not_hidden(world: Any, wire: Any) -> None:
    core = world.core(wire.script(None), wire.script(report))
    with pytest.raises(Unavailable):
        run(core.ask(whoami, m.WhoamiReport))
    assert len(world.links) == 1


def test_a_question_without_an_answer_is_given_up(world: Any, wire: Any) -> None:
    core = world.core(wire.script(wire.silence, report), answer_timeout=3.0)
    with pytest.raises(Unavailable, match="within 3"):
        run(core.ask(whoami, m.WhoamiReport))
    assert run(core.ask(whoami, m.WhoamiReport)).principal == "7"
    assert len(world.links) == 1


def test_a_refused_question_is_an_exception(world: Any, wire: Any) -> None:
    core = world.core(wire.script(wire.refuse(Reason.PERMISSION)))
    with pytest.raises(NotPermitted):
        run(core.ask(lambda i: m.Pause(id=i, class_="batch"), m.Ack))


@pytest.mark.parametrize("cancel", [True, False])
def test_an_abandoned_question_is_cancelled_where_that_matters(
    world: Any, wire: Any, cancel: bool
) -> None:
    core = world.core(wire.script(wire.silence))
    with pytest.raises(Unavailable):
        run(core.ask(lambda i: m.Generate(id=i, prompt="x"), m.Done, cancel=cancel))
    assert isinstance(world.sent[-1], m.Cancel) is cancel


def test_an_answered_question_is_not_cancelled(world: Any, wire: Any) -> None:
    core = world.core(wire.script(wire.text("a"), wire.refuse(Reason.TOKENS_FULL)))
    run(core.ask(lambda i: m.Generate(id=i, prompt="x"), m.Done, cancel=True))
    with pytest.raises(Rejected):
        run(core.ask(lambda i: m.Generate(id=i, prompt="x"), m.Done, cancel=True))
    assert [type(message) for message in world.sent] == [m.Generate, m.Generate]


def test_what_was_never_sent_is_not_cancelled(world: Any, wire: Any) -> None:
    core = world.core(wire.script())
    with pytest.raises(InvalidRequest):
        run(core.ask(lambda i: m.Generate(id=i, prompt="\ud800"), m.Done, cancel=True))
    assert world.sent == []


def test_a_retired_connection_lives_as_long_as_its_answers(world: Any, wire: Any) -> None:
    core = world.core(wire.script(), wire.script())
    old = run(core.link())
    call_id = old.session.begin()
    core.retire(old)
    assert not old.closed
    assert run(core.link()) is not old
    old.session.finish(call_id)
    core.settle(old)
    assert old.closed
    assert core.links() == [run(core.link())]


def test_close_closes_everything_for_good(world: Any, wire: Any) -> None:
    core = world.core(wire.script(), wire.script())
    old = run(core.link())
    old.session.begin()
    core.retire(old)
    new = run(core.link())
    core.close()
    core.close()
    assert old.closed
    assert new.closed
    with pytest.raises(Unavailable, match="closed"):
        run(core.link())


def test_closed_while_it_connected_means_closed(world: Any, wire: Any) -> None:
    def script(message: m.ClientMessage) -> list[m.DaemonMessage]:
        core.close()
        return [wire.welcome()]

    core = world.core(script)
    with pytest.raises(Unavailable, match="closed"):
        run(core.link())
    assert world.links[0].closed


def test_an_unknown_retry_mode_is_an_error(world: Any) -> None:
    with pytest.raises(InvalidRequest, match="honour"):
        world.core(retry="always")


def test_nothing_is_cancelled_on_a_connection_that_is_over(world: Any, wire: Any) -> None:
    link = run(world.core(wire.script()).link())
    link.session.feed(b"")
    cancel_now(link, 1)
    assert world.sent == []


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"model": "a\x1b[2J"}, "model"),
        ({"model": ""}, "model"),
        ({"model": "x" * 257}, "model"),
        ({"class_": "a\nb"}, "class"),
        ({"app": "a\nb"}, "app"),
        ({"connect_timeout": float("nan")}, "connect_timeout"),
        ({"restart_timeout": float("inf")}, "restart_timeout"),
        ({"answer_timeout": -1.0}, "answer_timeout"),
    ],
)
def test_a_setting_that_is_wrong_is_found_before_connecting(
    world: Any, options: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        world.core(**options)
    assert caught.value.path == path
