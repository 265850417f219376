"""The device is lent: who is told what, when the pools are unloaded, and how it comes back."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from onegate import clock
from onegate.admission.model import PoolState as CoreState
from onegate.engines.base import EngineBroke, EngineUnavailable, PoolState, Stopped
from onegate.protocol import messages as m
from onegate.protocol.content import Params, Usage
from onegate.protocol.errors import Phase, Reason
from onegate.server import release as release_module
from onegate.server.closures import NAME, Closure
from onegate.server.outcome import Outcome
from onegate.server.state import StateDirectory

Box = Any  # of conftest.py

WAITING_BATCH = '[[class]]\nname = "batch"\nwhen_closed = "wait"\n'


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "POLL_S", 0)


@pytest.fixture
async def box(make_box: Any) -> Box:
    """One seat, an engine that does as it is told, and a clock of the wall that stands still."""
    box = make_box(WAITING_BATCH)
    obedient(box)
    return box


def obedient(box: Box) -> None:
    async def unload(model: str) -> None:
        box.change(model, state=PoolState.COLD)

    async def load(model: str) -> None:
        box.change(model, state=PoolState.READY)

    box.engine.on_unload = unload
    box.engine.on_load = load


def release(box: Box, **fields: Any) -> Any:
    admin = box.greeted(uid=0)
    admin.say(m.ReleaseEngine(id=1, **fields))
    return admin


def ack(client: Any) -> Any:
    (heard,) = client.heard()
    assert isinstance(heard, m.Ack), heard
    return heard


async def test_an_idle_device_is_free_at_once(box: Box) -> None:
    admin = release(box)
    await box.quiet()
    assert (ack(admin).verb, box.engine.unloads) == ("release_engine", ["tiny"])
    assert box.pool.state is CoreState.RELEASED
    (pool,) = box.services.reporter.status().pools
    assert (pool.state, pool.released_until_ms) == ("released", None)
    assert box.services.pools()["tiny"].state is PoolState.RELEASED
    log = box.log.getvalue()
    assert "engine_released principal=uid:0" in log
    assert "engine_free" in log
    assert box.outcomes() == {}, "it is no request for text"


async def test_newcomers_are_told_when_it_is_back(box: Box, monkeypatch: Any) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_000_000)
    release(box, until_ms=1_060_000)
    await box.quiet()
    (pool,) = box.services.reporter.status().pools
    assert pool.released_until_ms is not None
    assert abs(pool.released_until_ms - 1_060_000) <= 1000
    client = box.greeted()
    await box.ask(client)
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (Reason.RELEASED, Phase.ARRIVAL)
    assert 59_000 < failed.retry_after_ms <= 60_000
    assert box.engine.loads == []


async def test_it_is_loaded_again_for_whoever_asks(box: Box) -> None:
    admin = release(box)
    await box.quiet()
    ack(admin)
    admin.say(m.ReleaseEngine(id=2, end=True))
    assert ack(admin).applied
    assert box.pool.state is CoreState.COLD
    assert box.engine.loads == [], "nobody asks yet"
    run = await box.run(box.greeted())
    assert box.engine.loads == ["tiny"]
    run.finish()
    await box.quiet()
    box.free(run)
    box.all_is_given_back()
    admin.say(m.ReleaseEngine(id=3, end=True))
    assert ack(admin).applied is False
    assert box.log.getvalue().count("engine_taken_back principal=uid:0") == 1


async def test_what_runs_ends_first(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    admin = release(box)
    await box.quiet()
    assert admin.heard() == []
    assert box.engine.unloads == []
    run.finish()
    await box.quiet()
    assert isinstance(client.heard()[-1], m.Done)
    assert ack(admin).applied
    assert box.engine.unloads == ["tiny"]
    box.free(run)


async def test_or_is_ended_now(box: Box) -> None:
    client, delegate = box.greeted(), box.greeted(uid=2000)
    run = await box.run(client)
    delegate.say(m.Lease(id=5, prompt_tok=1, max_tok=1))
    await box.quiet()
    admin = release(box, now=True)
    await box.quiet()
    for who in (client, delegate):
        failed = who.heard()[-1]
        assert (failed.reason, failed.retryable) == (Reason.RELEASED, True)
        assert failed.retry_after_ms is None
    assert box.outcomes() == {Outcome.ABORTED: 2}
    assert ack(admin).applied
    box.free(run)
    box.all_is_given_back()


async def test_a_question_is_no_request_that_could_be_ended(box: Box) -> None:
    asked = asyncio.Event()

    async def count(**_: object) -> Any:
        asked.set()
        await asyncio.Event().wait()

    box.engine.on_count = count
    client = box.greeted()
    client.say(m.CountTokens(id=7, prompt="x"))
    await asked.wait()
    release(box, now=True)
    await box.quiet()
    assert client.heard() == []
    client.say(m.Cancel(id=7))
    await box.quiet()


async def test_what_waits_is_told_unless_its_class_waits(box: Box, monkeypatch: Any) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_000_000)
    first, second, patient = box.greeted(), box.greeted(), box.greeted()
    runs = [await box.run(first, 1), await box.run(first, 2)]
    await box.ask(second)
    await box.ask(patient, class_="batch")
    release(box, until_ms=1_030_000)
    await box.quiet()
    (failed,) = second.heard()
    assert (failed.reason, failed.phase, failed.retry_after_ms) == (
        Reason.RELEASED,
        Phase.QUEUED,
        30_000,
    )
    assert patient.heard() == []
    assert box.outcomes() == {Outcome.REJECTED: 1}
    for run in runs:
        run.finish()
    await box.quiet()
    for run in runs:
        box.free(run)
    assert box.gate.view().queued == 1
    box.services.release.end()
    await box.quiet()
    assert isinstance(patient.heard()[0], m.Started)
    box.engine.runs[-1].finish()
    await box.quiet()
    box.free(box.engine.runs[-1])


async def test_what_waits_again_has_started_and_is_aborted(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    release(box)
    await box.quiet()
    box.lose(run)
    run.say(EngineBroke("it died"))
    await box.quiet()
    assert client.heard()[-1].reason is Reason.RELEASED
    assert box.outcomes() == {Outcome.ABORTED: 1}


# --- what can go on later, and what cannot --------------------------------------------------------

GREEDY = Params(temperature=0.0)


async def batch(box: Box, client: Any, id: int = 1, **fields: Any) -> Any:
    """A batch request that runs, and of which some has been seen."""
    fields = {"class_": "batch", "params": GREEDY} | fields
    run = await box.run(client, id, **fields)
    run.accept()
    run.chunk("a")
    await box.quiet()
    return run


async def stop(box: Box, run: Any) -> None:
    """The engine does as it was told."""
    assert run.id in box.engine.stops
    run.say(Stopped())
    await box.quiet()
    box.free(run)
    await box.quiet()


@pytest.fixture
def strict(make_box: Any) -> Box:
    """As shipped: no class waits when it is closed."""
    box = make_box()
    obedient(box)
    return box


async def test_batch_is_stopped_and_goes_on_when_it_is_back(strict: Box) -> None:
    client = strict.greeted()
    run = await batch(strict, client)
    admin = release(strict)
    await strict.quiet()
    await stop(strict, run)
    assert ack(admin).applied
    assert strict.engine.unloads == ["tiny"]
    assert [type(heard) for heard in client.heard()] == [m.Started, m.Chunk, m.Paused]
    admin.say(m.ReleaseEngine(id=2, end=True))
    await strict.quiet()
    assert strict.engine.loads == ["tiny"]
    again = strict.engine.runs[-1]
    assert again.request.resume_tok_ids == [ord("a")]
    again.finish()
    await strict.quiet()
    strict.free(again)
    assert [type(heard) for heard in client.heard()] == [m.Resumed, m.Done]
    assert strict.outcomes() == {Outcome.FINISHED: 1}
    strict.all_is_given_back()


async def test_what_was_stopped_before_that_waits_too(strict: Box) -> None:
    """For a person, who is told when to come back."""
    strict.change(capacity=structs.replace(strict.engine.infos["tiny"].capacity, max_seqs=1))
    client, person = strict.greeted(), strict.greeted(uid=1001)
    run = await batch(strict, client)
    await strict.ask(person, class_="interactive")
    await stop(strict, run)
    admin = release(strict)
    strict.engine.runs[-1].finish()
    await strict.quiet()
    strict.free(strict.engine.runs[-1])
    assert ack(admin).applied
    assert isinstance(client.heard()[-1], m.Paused)
    assert isinstance(person.heard()[-1], m.Done)
    client.say(m.Cancel(id=1))
    await strict.quiet()
    strict.all_is_given_back()


@pytest.mark.parametrize(
    "fields",
    [{"class_": "interactive"}, {"class_": "loop"}, {"params": Params(temperature=0.5)}],
)
async def test_the_others_have_a_while_to_finish(strict: Box, fields: Any) -> None:
    client = strict.greeted()
    run = await batch(strict, client, **fields)
    admin = release(strict)
    strict.skip(29)
    await strict.quiet()
    assert strict.engine.stops == []
    assert admin.heard() == []
    strict.skip(1)
    await strict.quiet()
    failed = client.heard()[-1]
    assert (failed.reason, failed.phase) == (Reason.RELEASED, Phase.DECODE)
    assert ack(admin).applied
    assert strict.outcomes() == {Outcome.ABORTED: 1}
    strict.free(run)
    strict.all_is_given_back()


async def test_an_engine_that_does_not_stop_has_no_longer(strict: Box) -> None:
    client = strict.greeted()
    run = await batch(strict, client)
    admin = release(strict)
    run.say(Stopped())
    await strict.quiet()
    assert isinstance(client.heard()[-1], m.Paused)
    strict.skip(30)
    await strict.quiet()
    assert client.heard()[-1].reason is Reason.RELEASED
    assert ack(admin).applied
    strict.free(run)
    strict.all_is_given_back()


async def test_a_second_one_does_not_lengthen_it(strict: Box) -> None:
    client = strict.greeted()
    run = await strict.run(client)
    release(strict)
    strict.skip(29)
    release(strict)
    strict.skip(1)
    await strict.quiet()
    assert client.heard()[-1].reason is Reason.RELEASED
    strict.free(run)


async def test_now_ends_only_what_cannot_go_on(strict: Box) -> None:
    client, person = strict.greeted(), strict.greeted(uid=1001)
    run = await batch(strict, client)
    other = await strict.run(person)
    release(strict, now=True)
    await strict.quiet()
    assert person.heard()[-1].reason is Reason.RELEASED
    await stop(strict, run)
    assert isinstance(client.heard()[-1], m.Paused)
    strict.free(other)
    client.say(m.Cancel(id=1))
    await strict.quiet()
    strict.all_is_given_back()


# --- time -----------------------------------------------------------------------------------------


class Timers:
    """The loop's timers, to be looked at and set off."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ms = 1_000_000
        self.set: list[tuple[float, Any]] = []
        timers, loop = self, asyncio.get_running_loop()

        class Handle:
            def cancel(self) -> None:
                timers.set = [entry for entry in timers.set if entry[1] is not self]

        class Loop:
            def __getattr__(self, name: str) -> Any:
                return getattr(loop, name)

            def call_later(self, delay_s: float, callback: Any) -> Any:
                handle = Handle()
                handle.callback = callback  # type: ignore[attr-defined]
                timers.set.append((delay_s, handle))
                return handle

        monkeypatch.setattr(clock, "wall_ms", lambda: self.now_ms)
        monkeypatch.setattr(release_module.asyncio, "get_running_loop", Loop)

    def fire(self) -> None:
        (entry,) = self.set
        self.set = []
        entry[1].callback()


async def test_it_ends_by_itself_and_by_the_wall(box: Box, monkeypatch: Any) -> None:
    lent = box.services.release
    with monkeypatch.context() as patched:
        timers = Timers(patched)
        lent.begin(until_ms=1_090_000, now=False, principal="uid:0")
        assert [delay for delay, _ in timers.set] == [60.0]
        timers.now_ms += 60_000
        timers.fire()
        assert lent.in_force
        assert [delay for delay, _ in timers.set] == [30.0]
        timers.now_ms += 3_600_000  # the machine has slept
        timers.fire()
        assert not lent.in_force
        assert timers.set == []
    await box.quiet()
    assert "engine_taken_back\n" in box.log.getvalue()


async def test_the_last_word_on_the_time_holds(box: Box, monkeypatch: Any) -> None:
    lent = box.services.release
    with monkeypatch.context() as patched:
        timers = Timers(patched)
        lent.begin(until_ms=1_010_000, now=False, principal="uid:0")
        lent.begin(until_ms=1_020_000, now=False, principal="uid:0")
        assert [delay for delay, _ in timers.set] == [20.0]
        lent.begin(until_ms=None, now=False, principal="uid:0")
        assert timers.set == []
        lent.begin(until_ms=1_005_000, now=False, principal="uid:0")
        lent.end()
        assert timers.set == []
    await box.quiet()


@pytest.mark.parametrize("verb", [m.ReleaseEngine, partial(m.Pause, class_="loop")])
@pytest.mark.parametrize(
    ("until_ms", "says"),
    [
        (0, "has passed already"),
        (999_999, "has passed already"),
        (1_000_000, "has passed already"),
        (1_000_001 + 30 * 86_400_000, "more than 30 days ahead"),
        (253_402_300_799_000, "more than 30 days ahead"),  # the last second of the calendar
        (2**53, "more than 30 days ahead"),
    ],
)
async def test_a_time_that_it_cannot_be_closed_until(
    box: Box, monkeypatch: Any, verb: Any, until_ms: int, says: str
) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_000_000)
    admin = box.greeted(uid=0)
    admin.say(verb(id=1, until_ms=until_ms))
    (failed,) = admin.heard()
    assert (failed.reason, failed.path) == (Reason.INVALID, "until_ms")
    assert says in failed.message
    assert not box.services.release.in_force
    assert not any(view.closed for view in box.gate.view().classes)


@pytest.mark.parametrize("verb", [m.ReleaseEngine, partial(m.Pause, class_="loop")])
async def test_the_furthest_time_there_is(box: Box, monkeypatch: Any, verb: Any) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_000_000)
    admin = box.greeted(uid=0)
    admin.say(verb(id=1, until_ms=1_000_000 + 30 * 86_400_000))
    await box.quiet()
    assert ack(admin).applied


async def test_a_clock_that_is_set_back_lends_it_no_longer(box: Box, monkeypatch: Any) -> None:
    lent = box.services.release
    with monkeypatch.context() as patched:
        timers = Timers(patched)
        lent.begin(until_ms=1_090_000, now=False, principal="uid:0")
        timers.now_ms -= 500_000
        box.skipped_ns += 60 * 10**9
        timers.fire()
        assert lent.in_force
        assert timers.set[0][0] <= 31.0
        box.skipped_ns += 31 * 10**9
        timers.fire()
        assert not lent.in_force
    await box.quiet()


async def test_after_a_sleep_of_the_machine_the_time_is_told_anew(
    box: Box, monkeypatch: Any
) -> None:
    lent = box.services.release
    with monkeypatch.context() as patched:
        timers = Timers(patched)
        lent.begin(until_ms=4_600_000, now=False, principal="uid:0")
        timers.now_ms += 1_800_000  # and no other clock has gone on
        timers.fire()
        (pool,) = box.services.reporter.status().pools
        assert abs(pool.released_until_ms - 4_600_000) <= 1000
        lent.end()
    await box.quiet()


# --- giving up, taking back, again ----------------------------------------------------------------


async def test_hanging_up_gives_up_the_waiting_only(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    admin = release(box)
    await box.quiet()
    admin.hang_up()
    await box.quiet()
    assert box.services.release.in_force
    run.finish()
    await box.quiet()
    assert box.engine.unloads == ["tiny"]
    box.free(run)


async def test_taken_back_before_it_was_free(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client)
    admin, other = release(box), box.greeted(uid=0)
    await box.quiet()
    other.say(m.ReleaseEngine(id=9, end=True))
    await box.quiet()
    assert ack(other).applied
    assert ack(admin).applied is False
    assert box.engine.unloads == []
    assert box.pool.state is CoreState.READY
    run.finish()
    await box.quiet()
    box.free(run)
    assert box.engine.unloads == []


async def test_lent_again_it_is_waited_for_again(box: Box) -> None:
    box.services.release.begin(until_ms=None, now=False, principal="uid:0")
    await box.quiet()
    box.services.release.end()
    client = box.greeted()
    run = await box.run(client)
    admin = release(box)
    await box.quiet()
    assert admin.heard() == []
    run.finish()
    await box.quiet()
    assert ack(admin).applied
    box.free(run)


async def test_a_second_one_waits_for_the_same(box: Box) -> None:
    first = release(box)
    await box.quiet()
    ack(first)
    second = release(box, until_ms=clock.wall_ms() + 1000)
    await box.quiet()
    assert ack(second).applied
    assert box.engine.unloads == ["tiny"]


# --- the engine -----------------------------------------------------------------------------------


async def test_what_loads_by_itself_is_unloaded_again(box: Box) -> None:
    release(box)
    await box.quiet()
    box.change(state=PoolState.LOADING)
    await box.quiet()
    assert box.engine.unloads == ["tiny", "tiny"]
    assert box.pool.state is CoreState.RELEASED
    assert box.log.getvalue().count("engine_free") == 1


async def test_an_engine_that_cannot_be_told_yet_is_told_again(box: Box) -> None:
    tries = []

    async def unload(model: str) -> None:
        tries.append(model)
        if len(tries) < 4:
            raise EngineUnavailable("the engine is starting")
        box.change(model, state=PoolState.COLD)

    box.engine.on_unload = unload
    box.change(state=PoolState.LOADING)
    admin = release(box)
    await box.quiet()
    assert ack(admin).applied
    assert len(tries) == 4
    assert box.log.getvalue().count("the engine is starting") == 1


@pytest.mark.parametrize("state", [PoolState.COLD, PoolState.FAILED])
async def test_what_is_not_loaded_need_not_be_unloaded(box: Box, state: PoolState) -> None:
    box.change(state=state)
    admin = release(box)
    await box.quiet()
    assert ack(admin).applied
    assert box.engine.unloads == []
    box.services.release.end()
    assert box.pool.state.value == state.value


async def test_every_pool_is_unloaded(make_box: Any) -> None:
    box = make_box()
    box.engine.infos["other"] = structs.replace(box.engine.infos["tiny"], model="other")
    box.change("other")
    obedient(box)
    admin = release(box)
    await box.quiet()
    ack(admin)
    assert sorted(box.engine.unloads) == ["other", "tiny"]
    assert {pool.state for pool in box.gate.view().pools} == {CoreState.RELEASED}


async def test_a_settled_lease_is_an_end_like_any_other(box: Box) -> None:
    delegate = box.greeted(uid=2000)
    delegate.say(m.Lease(id=5, prompt_tok=1, max_tok=1))
    await box.quiet()
    admin = release(box)
    await box.quiet()
    assert admin.heard() == []
    delegate.say(m.Settle(id=5, usage=Usage(prompt_tok=1, output_tok=1)))
    await box.quiet()
    assert ack(admin).applied


# --- questions that only an engine can answer -----------------------------------------------------


async def test_a_count_is_told_what_a_request_would_be(box: Box, monkeypatch: Any) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_000_000)
    release(box, until_ms=1_060_000)
    await box.quiet()
    client = box.greeted()
    client.say(m.CountTokens(id=7, prompt="x"))
    await box.quiet()
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (Reason.RELEASED, Phase.ARRIVAL)
    assert (failed.retryable, failed.retry_after_ms) == (True, 60_000)
    assert box.engine.counts == []


async def test_a_count_that_the_release_overtakes(box: Box) -> None:
    asked = asyncio.Event()

    async def count(**_: object) -> Any:
        await asked.wait()
        raise EngineUnavailable("tiny is cold")

    box.engine.on_count = count
    client = box.greeted()
    client.say(m.CountTokens(id=7, prompt="x"))
    await box.quiet()
    release(box)
    asked.set()
    await box.quiet()
    assert [failed.reason for failed in client.heard()] == [Reason.RELEASED]
    box.services.release.end()
    client.say(m.CountTokens(id=8, prompt="x"))
    await box.quiet()
    assert [failed.reason for failed in client.heard()] == [Reason.ENGINE_UNAVAILABLE]


# --- the daemon after this one --------------------------------------------------------------------


class Slow(StateDirectory):
    """A disk that takes as long as the test wants."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.go_on = asyncio.Event()

    async def done(self, job: Any) -> Any:
        await self.go_on.wait()
        return await super().done(job)


@pytest.fixture
async def kept(make_box: Any, tmp_path: Path) -> AsyncIterator[Box]:
    """A box that keeps what is closed, on a slow disk."""
    disk = Slow(str(tmp_path))
    box = make_box(WAITING_BATCH, directory=disk)
    box.disk = disk
    obedient(box)
    running = box.services.tasks.spawn(box.services.closures.run(), name="closures")
    yield box
    disk.go_on.set()
    running.cancel()
    await asyncio.wait([running])
    await disk.aclose(60)


async def until_heard(box: Box, client: Any) -> Any:
    for _ in range(100_000):
        if heard := client.heard():
            return heard
        await asyncio.sleep(0)
    pytest.fail("nothing comes")


@pytest.mark.parametrize(
    ("close", "open_"),
    [
        (m.ReleaseEngine(id=1), m.ReleaseEngine(id=2, end=True)),
        (m.Pause(id=1, class_="loop"), m.Unpause(id=2, class_="loop")),
    ],
)
async def test_what_is_said_to_be_done_is_on_the_disk(
    kept: Box, tmp_path: Path, close: Any, open_: Any
) -> None:
    admin = kept.greeted(uid=0)
    for verb, there in ((close, True), (open_, False)):
        kept.disk.go_on.clear()
        admin.say(verb)
        await kept.quiet()
        assert admin.heard() == []
        kept.disk.go_on.set()
        (answer,) = await until_heard(kept, admin)
        assert isinstance(answer, m.Ack)
        assert (answer.id, answer.applied) == (verb.id, True)
        assert (tmp_path / NAME).exists() is there
    admin.say(open_)
    (answer,) = await until_heard(kept, admin)
    assert not answer.applied


async def test_it_is_still_lent_and_never_loaded(
    make_box: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_000_000)
    disk = StateDirectory(str(tmp_path))
    before = make_box(directory=disk)
    before.services.closures.close(Closure(principal="uid:7", since_ms=900_000, until_ms=1_090_000))
    before.services.closures.close(Closure(class_="batch", principal="uid:8", since_ms=900_000))
    before.services.closures.close(Closure(class_="gone", principal="uid:8", since_ms=900_000))
    await before.services.closures.aclose(60)
    box = make_box(directory=disk)
    obedient(box)
    box.change(state=PoolState.COLD)
    with monkeypatch.context() as patched:
        timers = Timers(patched)
        box.services.restore_closures()
        assert [round(delay) for delay, _ in timers.set] == [60, 60]  # it, and the class
    await box.quiet()
    assert box.engine.cold
    assert (box.engine.loads, box.engine.unloads) == ([], [])
    assert box.pool.state is CoreState.RELEASED
    log = box.log.getvalue()
    assert "engine_released principal=uid:7 until_ms=1090000 state=still" in log
    assert "class_paused class=batch principal=uid:8 state=still" in log
    assert "there is no class gone any more" in log
    client = box.greeted()
    await box.ask(client)
    (failed,) = client.heard()
    assert failed.reason is Reason.RELEASED
    await box.ask(client, 2, class_="batch")
    assert client.heard()[0].reason is Reason.PAUSED
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_089_999)
    box.services.release._look()
    assert box.services.release.in_force
    monkeypatch.setattr(clock, "wall_ms", lambda: 1_090_000)
    box.services.release._look()
    assert not box.services.release.in_force
    assert not box.engine.cold
    await box.services.closures.aclose(60)
    assert b"uid:7" not in (tmp_path / NAME).read_bytes()
    assert box.pool.state is CoreState.COLD
    await disk.aclose(60)


async def test_an_engine_that_comes_up_meanwhile_is_told(box: Box) -> None:
    box.services.release.begin(until_ms=None, now=False, principal="uid:0")
    assert box.engine.cold
    box.services.release.end()
    assert not box.engine.cold
    await box.quiet()
