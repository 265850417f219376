"""One request for text, through every way it can go."""

from typing import Any

import pytest

from onegate.client.call import Call
from onegate.client.core import GRACE_S, Core
from onegate.client.errors import Failed, InvalidRequest, Rejected, Unavailable
from onegate.client.request import RequestOptions
from onegate.client.sync_link import run
from onegate.protocol import messages as m
from onegate.protocol.errors import Reason


def call(core: Core, **options: Any) -> Call:
    typed: RequestOptions = options  # type: ignore[assignment]
    return Call(core, "hi", typed, stream=True)


def texts(request: Call) -> list[str]:
    found = []
    while (chunk := run(request.next_chunk())) is not None:
        found.append(chunk.text)
    return found


def kinds(world: Any) -> list[type]:
    return [type(message) for message in world.sent]


def test_chunks_come_one_by_one_and_then_the_reply(world: Any, wire: Any) -> None:
    request = call(world.core(wire.script(wire.text("a", "b"))))
    assert texts(request) == ["a", "b"]
    assert request.reply is not None
    assert (request.reply.text, request.rid) == ("ab", request.reply.rid)
    assert kinds(world) == [m.Generate]  # in particular no cancel
    assert run(request.next_chunk()) is None


def test_nothing_is_sent_before_somebody_asks_for_a_chunk(world: Any, wire: Any) -> None:
    request = call(world.core(wire.script()))
    request.abandon()
    assert world.links == []


def test_finish_returns_the_whole(world: Any, wire: Any) -> None:
    assert run(call(world.core(wire.script(wire.text("a", "b")))).finish()).text == "ab"


def test_abandoning_cancels_and_the_connection_goes_on(world: Any, wire: Any) -> None:
    core = world.core(wire.script(lambda g: wire.answer(g.id, "a", "b")[:2], wire.text("c")))
    first = call(core)
    assert run(first.next_chunk()) is not None
    first.abandon()
    first.abandon()
    assert kinds(world) == [m.Generate, m.Cancel]
    assert world.sent[1].id == world.sent[0].id
    assert run(first.next_chunk()) is None
    assert texts(call(core)) == ["c"]
    assert len(world.links) == 1


def test_what_still_comes_after_abandoning_is_discarded(world: Any, wire: Any) -> None:
    core = world.core(wire.script(wire.text("a", "b"), wire.text("c")))
    first = call(core)
    run(first.next_chunk())
    first.abandon()
    assert texts(call(core)) == ["c"]


def test_a_refusal_is_rejected(world: Any, wire: Any) -> None:
    script = wire.script(wire.refuse(Reason.TOKENS_FULL, retry_after_ms=100, ticket="t"))
    with pytest.raises(Rejected) as caught:
        run(call(world.core(script)).finish())
    assert caught.value.ticket == "t"
    assert kinds(world) == [m.Generate]


def test_a_failure_after_the_start_is_failed_and_never_retried(world: Any, wire: Any) -> None:
    def script(g: Any) -> list[m.DaemonMessage]:
        return [*wire.answer(g.id, "a")[:2], wire.failed(Reason.SHUTTING_DOWN, g.id)]

    request = call(world.core(wire.script(script), retry="honour"))
    assert run(request.next_chunk()).text == "a"
    with pytest.raises(Failed) as caught:
        run(request.next_chunk())
    assert caught.value.reason is Reason.SHUTTING_DOWN
    assert request.reply is None
    assert world.slept_s == []


def test_a_started_request_has_started_although_no_text_came(world: Any, wire: Any) -> None:
    def script(g: Any) -> list[m.DaemonMessage]:
        return [wire.answer(g.id)[0], wire.failed(Reason.SHUTTING_DOWN, g.id)]

    with pytest.raises(Failed):
        run(call(world.core(wire.script(script))).finish())


def test_a_restart_before_the_start_is_survived(world: Any, wire: Any) -> None:
    core = world.core(
        wire.script(wire.refuse(Reason.SHUTTING_DOWN, retry_after_ms=700)),
        Unavailable("no daemon yet"),
        lambda message: [wire.failed(Reason.SHUTTING_DOWN)],
        wire.script(wire.text("a")),
    )
    assert texts(call(core)) == ["a"]
    assert world.slept_s[0] == 0.7
    assert len(world.slept_s) == 3
    assert world.links[0].closed


def test_a_daemon_that_does_not_come_back_ends_in_its_refusal(world: Any, wire: Any) -> None:
    script = wire.script(wire.refuse(Reason.SHUTTING_DOWN))
    core = world.core(script, *[Unavailable("gone")] * 1000, restart_timeout=30.0)
    with pytest.raises(Rejected) as caught:
        run(call(core).finish())
    assert caught.value.reason is Reason.SHUTTING_DOWN
    assert 25 < sum(world.slept_s) <= 30


def test_others_on_a_draining_connection_keep_their_stream(world: Any, wire: Any) -> None:
    core = world.core(
        wire.script(
            lambda g: wire.answer(g.id, "a")[:2],
            wire.refuse(Reason.SHUTTING_DOWN, retry_after_ms=1),
        ),
        wire.script(wire.text("new")),
    )
    old = call(core)
    assert run(old.next_chunk()).text == "a"
    assert texts(call(core)) == ["new"]
    link = world.links[0]
    assert not link.closed
    link.say(wire.answer(world.sent[0].id)[-1])
    assert run(old.next_chunk()) is None
    assert old.reply is not None
    assert link.closed


def test_honour_waits_and_presents_the_ticket(world: Any, wire: Any) -> None:
    full = wire.refuse(Reason.TOKENS_FULL, retry_after_ms=2500, ticket="t1")
    core = world.core(wire.script(full, wire.text("a")), retry="honour")
    assert texts(call(core)) == ["a"]
    assert world.slept_s == [2.5]
    assert [message.ticket for message in world.sent] == [None, "t1"]
    assert len(world.links) == 1


def test_timeouts_shrink_with_what_was_waited(world: Any, wire: Any) -> None:
    full = wire.refuse(Reason.TOKENS_FULL, retry_after_ms=2500)
    core = world.core(wire.script(full, wire.text("a")), retry="honour")
    texts(call(core, ttft_timeout=4.0, timeout=10.0))
    times = [(message.ttft_timeout_ms, message.timeout_ms) for message in world.sent]
    assert times == [(4000, 10_000), (1500, 7500)]


def test_a_wait_beyond_the_timeout_is_not_begun(world: Any, wire: Any) -> None:
    full = wire.refuse(Reason.TOKENS_FULL, retry_after_ms=2500)
    core = world.core(wire.script(full, wire.text("a")), retry="honour")
    with pytest.raises(Rejected):
        run(call(core, timeout=2.0).finish())
    assert world.slept_s == []


def test_a_broken_connection_is_not_retried(world: Any, wire: Any) -> None:
    core = world.core(wire.script(None), wire.script(wire.text("a")))
    with pytest.raises(Unavailable):
        run(call(core).finish())
    assert len(world.links) == 1


def test_honour_asks_the_daemon_after_the_one_that_died(world: Any, wire: Any) -> None:
    core = world.core(
        wire.script(None), Unavailable("not back yet"), wire.script(wire.text("a")), retry="honour"
    )
    assert texts(call(core)) == ["a"]
    assert len(world.slept_s) == 2


def test_an_answer_that_has_begun_is_not_begun_anew(world: Any, wire: Any) -> None:
    core = world.core(
        wire.script(lambda g: wire.answer(g.id, "a", "b")[:2]),
        wire.script(wire.text("a")),
        retry="honour",
    )
    asked = call(core)
    assert run(asked.next_chunk()).text == "a"
    world.links[0].session.end(Unavailable("it died"))
    with pytest.raises(Unavailable):
        run(asked.next_chunk())
    assert len(world.links) == 1


@pytest.mark.parametrize(
    ("options", "waits_s"),
    [({"timeout": 3.0}, 3.0), ({"ttft_timeout": 2.0, "timeout": 3.0}, 2.0), ({}, 20.0)],
)
def test_a_silent_daemon_is_given_up_after_its_own_deadline(
    world: Any, wire: Any, options: dict[str, Any], waits_s: float
) -> None:
    before_ns = world.now_ns
    core = world.core(wire.script(wire.silence))
    with pytest.raises(Unavailable, match="did not answer within"):
        run(call(core, **options).finish())
    assert (world.now_ns - before_ns) / 1e9 == waits_s + GRACE_S
    assert kinds(world) == [m.Generate, m.Cancel]


def test_after_the_first_chunk_the_whole_timeout_counts(world: Any, wire: Any) -> None:
    before_ns = world.now_ns
    core = world.core(wire.script(lambda g: wire.answer(g.id, "a", "b")[:2]))
    with pytest.raises(Unavailable):
        run(call(core, ttft_timeout=1.0, timeout=9.0).finish())
    assert (world.now_ns - before_ns) / 1e9 == 9.0 + GRACE_S


def test_a_class_without_a_timeout_is_waited_for(world: Any, wire: Any) -> None:
    core = world.core(wire.script(wire.silence))
    with pytest.raises(AssertionError, match="wait for ever"):
        run(call(core, class_="batch").finish())


def test_progress_is_told_and_asked_for(world: Any, wire: Any) -> None:
    def script(g: Any) -> list[m.DaemonMessage]:
        started, chunk, done = wire.answer(g.id, "a")
        queued = m.Queued(id=g.id, rid="r", position=3, ahead={"batch": 2}, expected_wait_ms=40)
        paused = m.Paused(id=g.id)
        return [queued, started, chunk, paused, m.Resumed(id=g.id), done]

    seen: list[type] = []
    request = call(
        world.core(wire.script(script)), progress=lambda message: seen.append(type(message))
    )
    run(request.finish())
    assert seen == [m.Queued, m.Started, m.Paused, m.Resumed]
    assert world.sent[0].progress is True


def test_progress_that_raises_cancels(world: Any, wire: Any) -> None:
    def progress(message: object) -> None:
        raise ZeroDivisionError

    core = world.core(wire.script(lambda g: wire.answer(g.id, "a")[:1]))
    with pytest.raises(ZeroDivisionError):
        run(call(core, progress=progress).finish())
    assert kinds(world) == [m.Generate, m.Cancel]


def test_the_rid_is_known_as_soon_as_the_daemon_names_it(world: Any, wire: Any) -> None:
    request = call(world.core(wire.script(lambda g: wire.answer(g.id, "a")[:2])))
    assert request.rid is None
    run(request.next_chunk())
    assert request.rid is not None
    request.abandon()


def test_a_request_that_is_too_large_leaves_nothing_behind(world: Any, wire: Any) -> None:
    core = world.core(wire.script(wire.text("a")))
    with pytest.raises(InvalidRequest):
        run(Call(core, "x" * (1 << 21), {}, stream=True).finish())
    assert world.links[0].session.live == 0
    assert world.sent == []
    assert texts(call(core)) == ["a"]


@pytest.mark.parametrize("name", ["timeout", "ttft_timeout"])
def test_bad_timeouts_are_found_at_once(world: Any, name: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call(world.core(), **{name: -1.0})
    assert caught.value.path == name


def test_two_restarts_far_apart_are_both_survived(world: Any, wire: Any) -> None:
    def restart(message: m.Generate) -> list[Any]:
        world.now_ns += 100 * 10**9
        return [wire.failed(Reason.SHUTTING_DOWN, message.id)]

    core = world.core(
        wire.script(restart),
        wire.script(restart),
        wire.script(wire.text("a")),
        restart_timeout=30.0,
    )
    assert texts(call(core)) == ["a"]
