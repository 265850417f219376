import asyncio
import errno
import os

import pytest
from msgspec import structs

from onegate.engines import attached
from onegate.engines.attached import AttachedEngine
from onegate.engines.base import (
    EmbedRequest,
    EngineBroke,
    EngineCapacity,
    EngineRefused,
    EngineRequest,
    EngineUnavailable,
    PoolChanged,
    PoolInfo,
    PoolState,
    Reservation,
    SeatFreed,
)
from onegate.engines.plan import EngineUnprepared, HostPlan

CAPACITY = EngineCapacity(max_seqs=2, max_context_tok=10, reservation=Reservation.GROW)


class Unprepared:
    """An engine that is never ready to start, and how often it was asked."""

    def __init__(self, python="/nowhere/python", prepared=False, host_socket=None):
        self.asked = 0
        self.prepared = prepared
        self.events = []
        self.heard = asyncio.Event()
        self.log = []
        plan = HostPlan(
            kind="k",
            python=python,
            host_socket=host_socket,
            table=self.table,
            pools=[PoolInfo(model="m", state=PoolState.LOADING, capacity=CAPACITY)],
            stall_floor_s=10.0,
            backoff_first_ms=1,
            backoff_max_ms=1,
            backoff_reset_s=10.0,
        )
        self.crashes = []
        self.engine = AttachedEngine(
            plan, log=self.log.append, crashed=lambda *crash: self.crashes.append(crash)
        )

    def table(self):
        self.asked += 1
        if not self.prepared:
            raise EngineUnprepared("no model: fetch one")
        return {}

    def request(self, **given):
        return EngineRequest(**{"id": 1, "model": "m", "max_tokens": 1, "prompt": "x", **given})

    async def first_failure(self):
        async with asyncio.timeout(30):
            while not (failed := [p for p in self.changed() if p.error]):
                await self.heard.wait()
                self.heard.clear()
        return failed[0]

    def changed(self):
        return [event.pool for event in self.events if isinstance(event, PoolChanged)]

    def hear(self, event):
        self.events.append(event)
        self.heard.set()


async def test_before_the_start_pools_are_known_and_nothing_is_taken():
    one = Unprepared()
    assert [pool.state for pool in one.engine.pools()] == [PoolState.LOADING]
    assert one.engine.health().state == "starting"
    assert one.engine.snapshot("m") is None
    with pytest.raises(EngineUnavailable):
        await anext(one.engine.generate(one.request()))
    with pytest.raises(EngineUnavailable):
        await one.engine.count("m", prompt="x")
    with pytest.raises(EngineUnavailable):
        await one.engine.load("m")
    with pytest.raises(EngineUnavailable):
        await one.engine.unload("m")
    with pytest.raises(EngineUnavailable):
        await one.engine.embed(EmbedRequest(id=1, model="m", input=["x"]))
    one.engine.stop(1)
    await one.engine.aclose(1.0)
    await one.engine.aclose(1.0)


async def test_why_it_cannot_start_is_the_pools_error_and_it_tries_again():
    one = Unprepared()
    await one.engine.start(one.hear)
    pool = await one.first_failure()
    assert (pool.state, pool.error) == (PoolState.FAILED, "no model: fetch one")
    async with asyncio.timeout(30):
        while one.asked < 3:  # noqa: ASYNC110 - the wait between two starts is what is looked at
            await asyncio.sleep(0.001)
    states = [event.pool.state for event in one.events]
    assert states[:3] == [PoolState.FAILED, PoolState.LOADING, PoolState.FAILED]
    await one.engine.aclose(1.0)
    assert one.engine.health().state == "stopped"


async def test_an_interpreter_that_is_not_there():
    one = Unprepared(prepared=True)
    await one.engine.start(one.hear)
    pool = await one.first_failure()
    assert "/nowhere/python" in pool.error
    assert "engine.python" in pool.error
    await one.engine.aclose(1.0)


async def test_a_machine_without_descriptors_is_no_fault_of_the_path(monkeypatch):
    def child(python, log):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(attached, "Child", child)
    one = Unprepared(prepared=True)
    await one.engine.start(one.hear)
    pool = await one.first_failure()
    assert "Too many open files" in pool.error
    assert "engine.python" not in pool.error
    await one.engine.aclose(1.0)


async def test_a_seat_is_told_free_before_its_reader_hears_and_never_from_within():
    one = Unprepared()
    await one.engine.start(one.hear)
    stream = one.engine.generate(one.request(id=5))
    inside = []

    def told():
        return SeatFreed(id=5) in one.events

    async def read():
        inside.append(told())
        try:
            await anext(stream)
        except EngineUnavailable:
            inside.append(told())

    await read()
    assert inside == [False, True]
    unknown = one.engine.generate(one.request(id=6, model="other"))
    with pytest.raises(EngineRefused) as refused:
        await anext(unknown)
    assert refused.value.path == "model"
    assert SeatFreed(id=6) in one.events
    await one.engine.aclose(1.0)


async def test_it_is_started_once():
    one = Unprepared()
    await one.engine.start(one.hear)
    with pytest.raises(RuntimeError):
        await one.engine.start(one.hear)
    await one.engine.aclose(1.0)


async def test_a_bug_in_the_keeper_is_told():
    one = Unprepared()

    def table():
        raise ZeroDivisionError

    object.__setattr__(one.engine._plan, "table", table)
    await one.engine.start(one.hear)
    async with asyncio.timeout(30):
        while not one.crashes:  # noqa: ASYNC110 - nothing else tells of it
            await asyncio.sleep(0)
    [(name, error)] = one.crashes
    assert (name, type(error)) == ("engine host", ZeroDivisionError)
    await one.engine.aclose(1.0)


async def test_a_service_that_is_not_there_yet_is_waited_for_and_then_not(monkeypatch, tmp_path):
    now_ns = [0]
    monkeypatch.setattr(attached, "monotonic_ns", lambda: now_ns[0])
    one = Unprepared(prepared=True, host_socket=str(tmp_path / "h.sock"))
    await one.engine.start(one.hear)
    pool = await one.first_failure()
    assert pool.state is PoolState.LOADING
    assert str(tmp_path / "h.sock") in pool.error
    assert "onegate-engine.service" in pool.error
    now_ns[0] = 10_000_000_000
    one.events.clear()
    async with asyncio.timeout(30):
        while PoolState.FAILED not in [p.state for p in one.changed()]:
            one.heard.clear()
            await one.heard.wait()
    assert one.engine.health().state == "failed"
    await one.engine.aclose(1.0)


async def test_one_that_has_served_is_expected_back_anew(monkeypatch, tmp_path):
    now_ns = [0]
    monkeypatch.setattr(attached, "monotonic_ns", lambda: now_ns[0])
    one = Unprepared(prepared=True, host_socket=str(tmp_path / "h.sock"))
    await one.engine.start(one.hear)
    now_ns[0] = 50_000_000_000

    class Life:
        was_ready = True
        seats = calls = type("", (), {"lose": lambda *given: None})

    one.engine._lose(Life, EngineBroke("killed"))
    assert one.engine._absent() is PoolState.LOADING
    now_ns[0] += 10_000_000_000
    assert one.engine._absent() is PoolState.FAILED
    await one.engine.aclose(1.0)


async def test_what_a_host_said_of_a_failed_load_is_not_waited_for():
    one = Unprepared(prepared=True, host_socket="/nowhere/h.sock")
    one.engine._expect()
    assert one.engine._absent() is PoolState.LOADING
    (pool,) = one.engine.pools()
    one.engine._hear_of_pool(structs.replace(pool, state=PoolState.FAILED, error="no file"))
    assert one.engine._absent() is PoolState.FAILED


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ECONNREFUSED, "is onegate-engine.service running"),
        (errno.EACCES, "--peer-uid"),
        (errno.EAGAIN, "it is tried again"),
    ],
)
async def test_why_a_service_cannot_be_attached_to(monkeypatch, number, says):
    def attachment(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(attached, "Attachment", attachment)
    one = Unprepared(prepared=True, host_socket="/run/h.sock")
    await one.engine.start(one.hear)
    assert says in (await one.first_failure()).error
    await one.engine.aclose(1.0)


async def test_a_host_that_does_not_answer_is_said_while_it_is_waited_for():
    one = Unprepared()
    await one.engine.start(one.hear)
    one.engine._hear_of_silence("it does not answer")
    assert "it does not answer" in one.log
    assert "it does not answer" in [pool.error for pool in one.changed()]
    await one.engine.aclose(1.0)


# --- nothing is to be loaded ----------------------------------------------------------------------


async def state_is(one, state):
    async with asyncio.timeout(30):
        while one.engine.pools()[0].state is not state:
            one.heard.clear()
            await one.heard.wait()


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ENOENT])
@pytest.mark.parametrize("cold_first", [True, False])
async def test_where_there_is_no_host_nothing_is_loaded(monkeypatch, number, cold_first):
    def attachment(path):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(attached, "Attachment", attachment)
    one = Unprepared(prepared=True, host_socket="/run/h.sock")
    one.engine.keep_cold(cold_first)
    await one.engine.start(one.hear)
    await one.first_failure()
    one.engine.keep_cold(True)
    assert one.engine.pools()[0].state is PoolState.COLD, "it is not waited for"
    for _ in range(20):
        await asyncio.sleep(0.001)
        assert one.engine.pools()[0].state is PoolState.COLD
    one.events.clear()
    one.engine.keep_cold(False)
    assert one.engine.pools()[0].state is PoolState.LOADING, "it is waited for again"
    await one.engine.aclose(1.0)


async def test_where_it_is_not_known_whether_there_is_a_host(monkeypatch):
    def attachment(path):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(attached, "Attachment", attachment)
    one = Unprepared(prepared=True, host_socket="/run/h.sock")
    one.engine.keep_cold(True)
    await one.engine.start(one.hear)
    assert (await one.first_failure()).state is PoolState.LOADING
    await one.engine.aclose(1.0)


@pytest.mark.parametrize(("served", "then"), [(True, PoolState.LOADING), (False, PoolState.FAILED)])
async def test_of_a_child_that_has_ended_nothing_is_loaded(monkeypatch, served, then):
    class Life:
        is_ours = attached = True
        was_ready = served
        seats = calls = type("", (), {"lose": lambda *given: None})

        def __init__(self, *given, **more):
            pass

        async def run(self, table, *, tick_s, cold):
            return EngineBroke("killed")

        async def gone(self):
            pass

        def leave(self):
            pass

        kill = leave

    monkeypatch.setattr(attached, "Child", lambda python, log: None)
    monkeypatch.setattr(attached, "HostLife", Life)
    one = Unprepared(prepared=True)
    one.engine.keep_cold(True)
    await one.engine.start(one.hear)
    await state_is(one, PoolState.COLD)
    one.engine.keep_cold(False)
    assert one.engine.pools()[0].state is then, "one that has served comes back"
    one.prepared = False
    await state_is(one, PoolState.FAILED)
    one.engine.keep_cold(True)
    one.engine.keep_cold(False)
    assert one.engine.pools()[0].state is PoolState.FAILED, "and not where it cannot be started"
    await one.engine.aclose(1.0)


async def test_a_request_that_is_too_long_for_the_host_is_refused_and_holds_nothing():
    one = Unprepared()

    class Life:
        attached = True
        seats: list[int] = []  # noqa: RUF012

        def send(self, message):
            raise EngineRefused("too long")

    one.engine._life = Life()
    (pool,) = one.engine.pools()
    one.engine._pools["m"] = structs.replace(pool, state=PoolState.READY)
    one.engine._sink = one.hear
    with pytest.raises(EngineRefused, match="too long"):
        await anext(one.engine.generate(one.request(id=5)))
    assert SeatFreed(id=5) in one.events
    one.engine._life = None
