"""The verbs that are answered at once."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from onegate import clock
from onegate.admission.model import Binding, Refusal, Refused, Verdict
from onegate.config.classes import SHIPPED_CLASSES
from onegate.engines.base import PoolState
from onegate.protocol import messages as m
from onegate.protocol.content import Usage
from onegate.protocol.errors import LimitedBy, Phase, Reason
from onegate.server import dispatch as dispatch_module
from onegate.server import state
from onegate.server.dispatch import HANDLERS, capacity_report, check_complete
from onegate.server.outcome import Ending, Outcome
from onegate.server.state import StateDirectory

Box = Any  # of conftest.py


def answer(client: Any, message: m.ClientMessage) -> Any:
    client.say(message)
    (heard,) = client.heard()
    return heard


def test_every_verb_is_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    check_complete()
    monkeypatch.delitem(HANDLERS, m.Whoami)
    with pytest.raises(RuntimeError, match="Whoami"):
        check_complete()


# --- permission -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (m.Pause(id=1, class_="batch"), "pause is for administrators"),
        (m.Unpause(id=1, class_="batch"), "unpause is for administrators"),
        (m.CancelAny(id=1, rid="b-1"), "cancel_any is for administrators"),
        (m.ReleaseEngine(id=1), "release_engine is for administrators"),
        (m.ReleaseEngine(id=1, end=True), "release_engine is for administrators"),
        (m.Lease(id=1, prompt_tok=1, max_tok=1), "lease is for delegates"),
    ],
)
async def test_verbs_that_are_not_for_everybody(box: Box, message: Any, said: str) -> None:
    failed = answer(box.greeted(), message)
    assert (failed.id, failed.reason, failed.phase) == (1, Reason.PERMISSION, Phase.ARRIVAL)
    assert failed.message.startswith(said)
    assert "whoami" in failed.message


@pytest.mark.parametrize(
    ("asked", "counted"),
    [(None, "loop"), ("batch", "batch"), ("interactive", "interactive"), ("nobodys", "loop")],
)
async def test_a_refusal_counts_for_the_class_that_was_asked_for(
    box: Box, asked: str | None, counted: str
) -> None:
    client = box.greeted()
    client.say(m.Lease(id=1, prompt_tok=1, max_tok=1, class_=asked))
    (failed,) = client.heard()
    assert failed.reason is Reason.PERMISSION
    rejected = {cls.name: box.services.accounts.of(cls.name).rejected for cls in SHIPPED_CLASSES}
    assert {name: sum(counts.values()) for name, counts in rejected.items() if counts} == {
        counted: 1
    }
    assert [row.class_ for row in box.services.usage.rows()] == [counted]


# --- cancel and settle ----------------------------------------------------------------------------


async def test_cancelling_what_is_not_there(box: Box) -> None:
    ack = answer(box.greeted(), m.Cancel(id=7))
    assert (ack.id, ack.verb, ack.applied) == (7, "cancel", False)


async def test_cancelling_is_acknowledged_and_the_end_follows(box: Box) -> None:
    client = box.greeted()
    await box.run(client)
    client.heard()
    ack = answer(client, m.Cancel(id=1))
    assert (ack.id, ack.verb, ack.applied) == (1, "cancel", True)
    await box.quiet()
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (1, Reason.CANCELLED)


async def test_cancelling_reaches_no_other_connection(box: Box) -> None:
    owner, other = box.greeted(), box.greeted()
    await box.run(owner)
    assert answer(other, m.Cancel(id=1)).applied is False
    await box.quiet()
    assert box.gate.view().in_flight == 1


async def test_settling_what_is_not_leased_ends_nothing(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    client.heard()
    ack = answer(client, m.Settle(id=1))
    assert (ack.id, ack.verb, ack.applied) == (1, "settle", False)
    run.finish()
    await box.quiet()
    assert isinstance(client.heard()[-1], m.Done)


async def test_settling_when_nothing_lives(box: Box) -> None:
    client = box.greeted()
    assert answer(client, m.Settle(id=9, usage=Usage(prompt_tok=1, output_tok=1))).applied is False
    assert not client.transport.closing


# --- capacity -------------------------------------------------------------------------------------


async def test_capacity_now(box: Box) -> None:
    report = answer(box.greeted(), m.Capacity(id=1, prompt_tok=10))
    assert (report.verdict, report.position, report.reason) == ("start", 0, None)


async def test_capacity_later(box: Box) -> None:
    client = box.greeted()
    await box.run(client, 1)
    await box.run(client, 2)
    client.heard()
    report = answer(client, m.Capacity(id=3, prompt_tok=10, max_tok=5))
    assert (report.verdict, report.position) == ("queue", 1)
    assert report.limited_by is LimitedBy.SEATS


async def test_capacity_never(box: Box) -> None:
    report = answer(box.greeted(), m.Capacity(id=1, prompt_tok=10, max_tok=5000))
    assert (report.verdict, report.reason) == ("refuse", Reason.TOO_LARGE)
    assert (report.used, report.limit) == (5010, 4096)


async def test_capacity_without_a_maximum_means_the_default_of_the_class(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ask(**question: Any) -> Verdict:
        asked.append(question)
        return Verdict(0)

    monkeypatch.setattr(box.gate, "ask", ask)
    client = box.greeted()
    answer(client, m.Capacity(id=1, prompt_tok=10, class_="batch"))
    answer(client, m.Capacity(id=2, prompt_tok=10, max_tok=3))
    assert [(q["class_"], q["max_tok"], q["pool"]) for q in asked] == [
        ("batch", 1024, "tiny"),
        ("loop", 3, "tiny"),
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"model": "huge"}, Reason.WRONG_MODEL), ({"class_": "none"}, Reason.INVALID)],
)
async def test_capacity_of_what_is_not_there(
    box: Box, fields: dict[str, Any], reason: Reason
) -> None:
    failed = answer(box.greeted(), m.Capacity(id=1, prompt_tok=10, **fields))
    assert (failed.id, failed.reason) == (1, reason)
    assert box.outcomes() == {}


def test_a_verdict_as_a_report() -> None:
    waits = capacity_report(7, Verdict(3, Binding.KV, expected_wait_ns=5_000_000))
    assert (waits.id, waits.verdict, waits.position) == (7, "queue", 3)
    assert (waits.limited_by, waits.expected_wait_ms) == (LimitedBy.KV, 5)
    no = Refusal(Refused.PEER_QUOTA, "no", limit=1, used=2, retry_after_ns=3_000_000)
    refused = capacity_report(7, Verdict(2, refusal=no))
    assert (refused.verdict, refused.position, refused.reason) == ("refuse", 2, Reason.PEER_QUOTA)
    assert (refused.limit, refused.used, refused.retry_after_ms) == (1, 2, 3)


# --- status, whoami, metrics ----------------------------------------------------------------------


async def test_status_shows_who_to_administrators_only(box: Box) -> None:
    owner, other, admin = box.greeted(uid=1), box.greeted(uid=2), box.greeted(uid=0)
    await box.run(owner)
    (mine,) = answer_rows(owner)
    assert (mine.mine, mine.principal, mine.state) == (True, "uid:1", "granted")
    (theirs,) = answer_rows(other)
    assert (theirs.mine, theirs.principal, theirs.rid) == (False, None, mine.rid)
    (seen,) = answer_rows(admin)
    assert (seen.mine, seen.principal) == (False, "uid:1")


def answer_rows(client: Any) -> Any:
    client.say(m.GetStatus(id=50, detail=True))
    return client.heard()[-1].requests


async def test_status_without_detail_has_no_requests(box: Box) -> None:
    client = box.greeted()
    await box.run(client)
    client.heard()
    report = answer(client, m.GetStatus(id=9))
    assert report.requests is None
    assert report.status.gate.in_flight == 1


async def test_a_status_that_fits_into_no_frame(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    client = box.greeted()
    row = m.StatusReport  # only the size matters
    monkeypatch.setattr(dispatch_module, "request_rows", lambda *args, **kw: [{"rid": "x" * 2**23}])
    failed = answer(client, m.GetStatus(id=9, detail=True))
    assert (failed.id, failed.reason) == (9, Reason.TOO_LARGE)
    assert isinstance(answer(client, m.GetStatus(id=9)), row)


async def test_whoami(box: Box) -> None:
    report = answer(box.greeted(uid=0, tty=True), m.Whoami(id=1))
    assert (report.peer.uid, report.principal) == (0, "uid:0")
    assert (report.class_, report.ceiling) == ("interactive", "interactive")
    assert report.allowed == ["interactive", "loop", "batch"]
    assert (report.admin, report.delegate) == (True, False)
    assert report.why
    assert answer(box.greeted(uid=2000), m.Whoami(id=1)).delegate is True


async def test_metrics(box: Box) -> None:
    report = answer(box.greeted(), m.Metrics(id=1))
    assert "onegate_sessions 1.0" in report.text


# --- administrators -------------------------------------------------------------------------------


async def test_pausing_and_unpausing(box: Box) -> None:
    admin, client = box.greeted(uid=0), box.greeted()
    ack = answer(admin, m.Pause(id=1, class_="loop"))
    assert (ack.id, ack.verb, ack.applied) == (1, "pause", True)
    await box.ask(client, 1)
    assert client.heard()[-1].reason is Reason.PAUSED
    assert answer(admin, m.Unpause(id=2, class_="loop")).verb == "unpause"
    await box.run(client, 2)
    log = box.log.getvalue()
    assert "class_paused class=loop principal=uid:0" in log
    assert "class_unpaused class=loop principal=uid:0" in log


async def test_a_pause_ends_by_itself(box: Box) -> None:
    until_ms = clock.wall_ms() + 60_000
    answer(box.greeted(uid=0), m.Pause(id=1, class_="loop", until_ms=until_ms))
    client = box.greeted()
    await box.ask(client, 1)
    failed = client.heard()[-1]
    assert failed.reason is Reason.PAUSED
    assert 0 < failed.retry_after_ms <= 60_000
    box.skip(61)
    await box.run(client, 2)


@pytest.mark.parametrize("verb", [m.Pause, m.Unpause])
async def test_a_class_that_is_not_there(box: Box, verb: Any) -> None:
    failed = answer(box.greeted(uid=0), verb(id=1, class_="none"))
    assert (failed.reason, failed.path) == (Reason.INVALID, "class")
    assert "interactive, loop, batch" in failed.message


async def test_cancelling_anybodys(box: Box) -> None:
    owner, admin = box.greeted(uid=1), box.greeted(uid=0)
    run = await box.run(owner)
    (live,) = box.services.live
    owner.heard()
    assert answer(admin, m.CancelAny(id=1, rid="b-99")).applied is False
    assert answer(admin, m.CancelAny(id=2, rid=live.rid)).applied is True
    await box.quiet()
    (failed,) = owner.heard()
    assert (failed.reason, failed.message) == (
        Reason.CANCELLED,
        "cancelled by an administrator",
    )
    assert run.closed == 1
    assert f"request_cancelled rid={live.rid} principal=uid:0" in box.log.getvalue()


# --- refused before it lived ----------------------------------------------------------------------


async def test_only_requests_are_counted_as_refused(box: Box) -> None:
    client = box.greeted()
    answer(client, m.Generate(id=1, prompt="why?", class_="none"))
    answer(client, m.Pause(id=2, class_="loop"))
    answer(client, m.Lease(id=3, prompt_tok=1, max_tok=1))
    assert box.outcomes() == {Outcome.REJECTED: 2}
    rejected = box.services.accounts.of("loop").rejected
    assert rejected == {Reason.INVALID: 1, Reason.PERMISSION: 1}


async def test_a_pool_that_failed_refuses_at_the_door(box: Box) -> None:
    box.change(state=PoolState.FAILED)
    client = box.greeted()
    await box.ask(client)
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (Reason.ENGINE_UNAVAILABLE, Phase.ARRIVAL)


# --- usage ----------------------------------------------------------------------------------------


async def used(box: Box, uid: int, id: int = 1, **fields: Any) -> Any:
    client = box.greeted(uid=uid)
    run = await box.run(client, id, **fields)
    run.accept(prompt_tok=7)
    run.chunk("word")
    run.finish()
    await box.quiet()
    box.free(run)
    client.heard()
    return client


async def test_usage_is_ones_own_or_everybodys(box: Box) -> None:
    one = await used(box, 1, class_="batch")
    await used(box, 2)
    report = answer(one, m.GetUsage(id=5))
    assert (report.id, report.everybody, report.stored) == (5, False, False)
    (row,) = report.rows
    assert (row.principal, row.class_, row.requests) == ("uid:1", "batch", {"finished": 1})
    assert (row.prompt_tok, row.output_tok) == (7, 1)
    report = answer(box.greeted(uid=0), m.GetUsage(id=5))
    assert report.everybody
    assert [row.principal for row in report.rows] == ["uid:1", "uid:2"]


async def test_usage_since_a_day(box: Box) -> None:
    client = await used(box, 1)
    today_ms = clock.wall_ms()
    assert len(answer(client, m.GetUsage(id=5, since_ms=today_ms)).rows) == 1
    assert answer(client, m.GetUsage(id=5, since_ms=today_ms + 2 * 86_400_000)).rows == []


async def test_a_refused_request_counts_for_who_asked(box: Box) -> None:
    client = box.greeted(uid=3)
    answer(client, m.Generate(id=1, prompt="why?", class_="none"))
    (row,) = answer(client, m.GetUsage(id=5)).rows
    assert (row.principal, row.class_, row.requests) == ("uid:3", "loop", {"rejected": 1})


async def test_more_rows_than_one_report_holds(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await used(box, 1)
    await used(box, 2)
    monkeypatch.setattr(dispatch_module, "MAX_REPORT_ROWS", 1)
    assert len(answer(client, m.GetUsage(id=5)).rows) == 1
    failed = answer(box.greeted(uid=0), m.GetUsage(id=5))
    assert (failed.reason, failed.path) == (Reason.TOO_LARGE, "since_ms")
    assert (failed.limit, failed.used) == (1, 2)


async def test_a_release_that_may_not_begin_does_not(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = box.greeted(uid=0)
    live = box.services.live
    monkeypatch.setattr(live, "full", lambda *_: Ending(Outcome.REJECTED, Reason.CLASS_FULL, "no"))
    assert answer(admin, m.ReleaseEngine(id=1)).reason is Reason.CLASS_FULL
    assert not box.services.release.in_force


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (m.Pause(id=1, class_="loop"), True),
        (m.Unpause(id=1, class_="loop"), False),
        (m.ReleaseEngine(id=1), True),
        (m.ReleaseEngine(id=1, end=True), False),
    ],
)
async def test_what_a_restart_would_not_know_is_said(box: Box, message: Any, said: bool) -> None:
    async def unload(model: str) -> None:
        box.change(model, state=PoolState.COLD)

    box.engine.on_unload = unload
    admin = box.greeted(uid=0)
    admin.say(message)
    async with asyncio.timeout(60):
        while not (heard := admin.heard()):  # noqa: ASYNC110  a release looks now and then
            await asyncio.sleep(0)
    (ack,) = heard
    assert [notice.code for notice in ack.notices] == ["closed_unwritten"] * said
    assert all("a restart of the daemon would not know: " in n.detail for n in ack.notices)


@pytest.mark.parametrize("broken", [True, False])
@pytest.mark.parametrize("verb", ["pause", "unpause", "release", "take back"])
async def test_what_the_disk_does_not_take_is_said(
    make_box: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, broken: bool
) -> None:
    directory = StateDirectory(str(tmp_path))
    box = make_box(directory=directory)
    admin, services = box.greeted(uid=0), box.services

    async def unload(model: str) -> None:
        box.change(model, state=PoolState.COLD)

    async def ask(message: m.ClientMessage) -> Any:
        admin.say(message)
        async with asyncio.timeout(60):
            while not (heard := admin.heard()):  # noqa: ASYNC110  a thread writes it
                await asyncio.sleep(0)
        return heard[0]

    box.engine.on_unload = unload
    writing = services.tasks.spawn(services.closures.run(), name="closures")
    assert (await ask(m.Pause(id=1, class_="loop"))).notices == []
    assert (await ask(m.ReleaseEngine(id=2))).notices == []

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        if broken:
            full.setattr(state, "replace", fail)
        message = {
            "pause": m.Pause(id=3, class_="batch"),
            "unpause": m.Unpause(id=3, class_="loop"),
            "release": m.ReleaseEngine(id=3, until_ms=clock.wall_ms() + 60_000),
            "take back": m.ReleaseEngine(id=3, end=True),
        }[verb]
        ack = await ask(message)
    assert ack.applied
    assert [notice.code for notice in ack.notices] == ["closed_unwritten"] * broken
    assert all("No space left" in notice.detail for notice in ack.notices)
    services.release.close()
    services.release.end()
    await services.tasks.aclose()
    assert writing.done()
    await directory.aclose(60)
