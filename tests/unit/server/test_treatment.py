"""Behaviour, rations and hours where requests meet them: through a connection."""

from typing import Any

import pytest

from onegate.protocol import messages as m
from onegate.protocol.content import Params
from onegate.protocol.errors import Reason


def answer(client: Any, message: m.ClientMessage) -> Any:
    client.say(message)
    return client.heard()[-1]


async def test_a_shell_loop_in_a_terminal_does_not_become_a_person(box: Any) -> None:
    client = box.greeted(tty=True)
    for id in range(6):
        await box.ask(client, id)
    by_id = {live.id: live for live in box.services.live}
    assert [by_id[id].class_ for id in range(6)] == ["interactive"] * 4 + ["loop"] * 2
    assert by_id[5].asked_class == "interactive"
    queued = {view.name: view.queued + view.running for view in box.gate.view().classes}
    assert queued == {"interactive": 4, "loop": 2, "batch": 0}
    assert box.services.accounts.lowered == {("interactive", "loop"): 2}
    text = answer(box.greeted(uid=5), m.Metrics(id=1)).text
    assert 'onegate_lowered_total{asked="interactive",class="loop"} 2.0' in text


async def test_the_answer_says_that_it_was_lowered(box: Any) -> None:
    client = box.greeted(tty=True)
    for id in range(5):
        await box.ask(client, id)
    for _ in range(5):
        run = next(run for run in box.engine.runs if run.iterated and not run.closed)
        run.accept()
        run.chunk("a")
        run.finish()
        await box.quiet()
        box.free(run)
        await box.quiet()
    done = {answer.id: answer for answer in client.heard() if isinstance(answer, m.Done)}
    assert [len(done[id].notices) for id in range(5)] == [0, 0, 0, 0, 1]
    (notice,) = done[4].notices
    assert notice.code == "class_lowered"
    assert notice.detail.startswith("treated as loop, not as interactive: ")


async def test_whoami_says_how_the_next_one_is_treated(box: Any) -> None:
    client = box.greeted(tty=True)
    before = answer(client, m.Whoami(id=90))
    assert (before.class_, before.treated_as) == ("interactive", None)
    for id in range(4):
        await box.ask(client, id)
    report = answer(client, m.Whoami(id=91))
    assert (report.class_, report.treated_as) == ("interactive", "loop")
    assert report.why[:-1] == before.why
    assert report.why[-1].startswith("treated as loop, not as interactive: ")
    # The same user's service is another program.
    assert answer(box.greeted(tty=True, unit="app.service"), m.Whoami(id=1)).treated_as is None


async def test_what_has_ended_counts_no_more(box: Any) -> None:
    client = box.greeted(tty=True)
    for id in range(5):
        await box.ask(client, id)
    client.hang_up()
    await box.quiet()
    again = box.greeted(tty=True)
    await box.ask(again, 1)
    assert [live.class_ for live in box.services.live] == ["interactive"]


async def test_other_verbs_do_not_count(box: Any) -> None:
    client = box.greeted(tty=True)
    for id in range(30):
        client.say(m.CountTokens(id=id, prompt="why?"))
        await box.quiet()
    assert answer(client, m.Whoami(id=90)).treated_as is None


async def test_a_lowered_request_keeps_the_bounds_that_it_was_told(make_box: Any) -> None:
    box = make_box('[[class]]\nname = "loop"\nmax_tokens_max = 10\nmax_tokens_default = 10\n')
    client = box.greeted(tty=True)
    for id in range(5):
        await box.ask(client, id, params=Params(max_tokens=200))
    assert not [answer for answer in client.heard() if isinstance(answer, m.Failed)]
    assert [live.class_ for live in box.services.live][-1] == "loop"


async def test_a_lease_is_lowered_too(box: Any) -> None:
    client = box.greeted(uid=2000, tty=True)
    for id in range(5):
        client.say(m.Lease(id=id, prompt_tok=1, max_tok=1))
        await box.quiet()
    assert [live.class_ for live in box.services.live] == ["interactive"] * 4 + ["loop"]


async def test_capacity_is_that_of_the_class_that_it_would_be(box: Any) -> None:
    client = box.greeted(tty=True)
    for id in range(4):
        await box.ask(client, id)
    report = answer(client, m.Capacity(id=90, prompt_tok=10, max_tok=10))
    # Behind two of the better class that wait.
    assert (report.verdict, report.position) == ("queue", 3)
    box.services.gate.close_class("loop", None)
    assert answer(client, m.Capacity(id=91, prompt_tok=10, max_tok=10)).reason is Reason.PAUSED


RATION = '[[class]]\nname = "loop"\ndaily_tok = 8\n'


async def used_up(box: Any, client: Any) -> None:
    run = await box.run(client, 1)
    run.accept(prompt_tok=5)
    run.chunk("abc", n_tok=3)
    run.finish(n_tok=3)
    await box.quiet()
    box.free(run)
    client.heard()


async def test_beyond_its_ration_a_user_is_refused(make_box: Any) -> None:
    box = make_box(RATION)
    client = box.greeted()
    await used_up(box, client)
    failed = answer(client, m.Generate(id=2, prompt="why?"))
    assert (failed.reason, failed.used, failed.limit) == (Reason.PEER_QUOTA, 8, 8)
    assert 0 < failed.retry_after_ms <= 86_400_000
    capacity = answer(client, m.Capacity(id=3, prompt_tok=1))
    assert (capacity.verdict, capacity.reason) == ("refuse", Reason.PEER_QUOTA)
    assert (capacity.used, capacity.retry_after_ms is not None) == (8, True)
    # Others, other classes and other verbs go on.
    await box.run(box.greeted(uid=7), 1)
    await box.run(client, 4, class_="batch")
    assert isinstance(answer(client, m.Whoami(id=5)), m.WhoamiReport)


async def test_whoami_and_usage_say_what_is_left(make_box: Any) -> None:
    box = make_box(RATION)
    client = box.greeted()
    await used_up(box, client)
    for message in (m.Whoami(id=2), m.GetUsage(id=3)):
        daily = answer(client, message).daily
        assert daily.keys() == {"loop"}
        assert (daily["loop"].used_tok, daily["loop"].limit_tok) == (8, 8)
    assert answer(box.greeted(uid=7), m.Whoami(id=1)).daily["loop"].used_tok == 0


async def test_a_lowered_request_uses_the_ration_of_its_new_class(make_box: Any) -> None:
    box = make_box(RATION)
    await used_up(box, box.greeted())
    client = box.greeted(tty=True)
    for id in range(4):
        await box.ask(client, id)
    assert answer(client, m.Generate(id=9, prompt="why?")).reason is Reason.PEER_QUOTA


async def test_unpausing_says_whether_there_was_anything_to_open(make_box: Any) -> None:
    box = make_box('[[class]]\nname = "batch"\nrun_window = ["00:00-00:01"]\n')
    admin = box.greeted(uid=0)
    box.services.hours.review()
    (batch,) = [view for view in box.gate.view().classes if view.name == "batch"]
    if batch.closed:  # but for one minute of the day
        assert batch.opens_at_ns is not None
        assert answer(admin, m.Unpause(id=1, class_="batch")).applied is True
    assert answer(admin, m.Unpause(id=2, class_="batch")).applied is False
    box.services.hours.close()


@pytest.mark.parametrize("when_closed", ["refuse", "wait"])
async def test_outside_its_times_a_class_refuses_or_waits(make_box: Any, when_closed: str) -> None:
    # Open for a minute that is twelve hours away, whenever this runs.
    from datetime import datetime

    from onegate import clock

    hour = (datetime.fromtimestamp(clock.wall_ms() / 1000).hour + 12) % 24
    keys = f'run_window = ["{hour:02}:30-{hour:02}:31"]\nwhen_closed = "{when_closed}"\n'
    box = make_box(f'[[class]]\nname = "batch"\n{keys}')
    box.services.hours.review()
    client = box.greeted()
    await box.ask(client, 1, class_="batch", progress=True)
    (answer,) = client.heard()
    if when_closed == "wait":
        assert answer.opens_in_ms > 10 * 3_600_000
    else:
        assert answer.reason is Reason.PAUSED
        assert answer.retry_after_ms > 10 * 3_600_000
    box.services.hours.close()
