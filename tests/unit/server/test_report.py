"""The status document: every figure from where it lives, none that is not known."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from onegate import __version__, clock
from onegate.admission.model import Binding, StepView
from onegate.engines.base import EngineSnapshot, PoolState
from onegate.protocol import messages as m
from onegate.protocol.errors import LimitedBy, NoticeCode
from onegate.protocol.status import Quantiles, StepModel
from onegate.server.report import limited_by, request_rows, step_model, unix_ms
from onegate.source import build

Box = Any  # of conftest.py


def status(box: Box) -> Any:
    return box.services.reporter.status()


async def test_an_idle_daemon(box: Box) -> None:
    document = status(box)
    assert (document.state, document.version) == ("serving", build(__version__))
    assert document.uptime_s >= 0
    gate = document.gate
    assert (gate.in_flight, gate.max_in_flight, gate.queued, gate.queued_tok) == (0, 64, 0, 0)
    assert (gate.max_queued_tok, gate.inbound_bytes, gate.sessions) == (262_144, 0, 0)
    assert gate.limited_by is None
    assert document.notices == []
    (pool,) = document.pools
    assert (pool.model, pool.state, pool.seats, pool.seats_used) == ("tiny", "ready", 2, 0)
    assert (pool.kv_tok, pool.kv_tok_used, pool.max_context_tok) == (8192, 0, 4096)
    assert pool.identity.engine == "played"
    assert [class_.name for class_ in document.classes] == ["interactive", "loop", "batch"]


async def test_what_is_not_known_is_none(box: Box) -> None:
    (pool,) = status(box).pools
    assert (pool.step_ms, pool.tok_per_s, pool.ledger_minus_engine_tok) == (None,) * 3
    assert (pool.max_step_tok, pool.error) == (None, None)
    batch = status(box).classes[2]
    assert (batch.ttft_ms, batch.paused_until_ms) == (None, None)
    (encoded,) = msgspec.json.decode(msgspec.json.encode(status(box)))["pools"]
    assert encoded["tok_per_s"] is None


async def test_a_busy_daemon(box: Box) -> None:
    client = box.greeted()
    for id in (1, 2):
        await box.run(client, id)
    await box.ask(client, 3)
    document = status(box)
    gate = document.gate
    assert (gate.in_flight, gate.queued, gate.sessions) == (2, 1, 1)
    assert gate.queued_tok > 0
    assert gate.inbound_bytes > 0
    assert gate.limited_by is LimitedBy.SEATS
    loop = document.classes[1]
    assert (loop.queued, loop.running, loop.max_queued_tok) == (1, 2, 65_536)
    assert document.pools[0].seats_used == 2
    assert document.pools[0].features == box.engine.pools()[0].offers != []


async def test_what_the_engine_says_stands_beside_what_we_charge(box: Box) -> None:
    client = box.greeted()
    await box.run(client)
    used = box.pool.kv_tok_used
    box.engine.snapshots["tiny"] = EngineSnapshot(
        model="tiny", kv_tok_used=used - 5, step_ms_p50=1.5, step_ms_p95=2.5, tok_per_s=0.0
    )
    (pool,) = status(box).pools
    assert pool.ledger_minus_engine_tok == 5
    assert pool.step_ms == Quantiles(p50=1.5, p95=2.5)
    assert pool.tok_per_s == 0.0
    box.engine.snapshots["tiny"] = EngineSnapshot(model="tiny", step_ms_p50=1.5)
    assert status(box).pools[0].step_ms is None


async def test_a_pool_that_failed_says_why(box: Box) -> None:
    box.change(state=PoolState.FAILED, error="out of memory")
    box.services.accounts.engine_losses = 3
    (pool,) = status(box).pools
    assert (pool.state, pool.error, pool.restarts) == ("failed", "out of memory", 3)


async def test_how_requests_ended(box: Box) -> None:
    client = box.greeted()
    run = await box.run(client, 1)
    run.chunk("Because.")
    run.finish()
    await box.quiet()
    await box.run(client, 2)
    client.say(m.Cancel(id=2))
    await box.ask(client, 3, model="huge")
    loop = status(box).classes[1]
    assert (loop.admitted, loop.finished, loop.cancelled) == (2, 1, 1)
    assert loop.rejected == {"wrong_model": 1}
    assert (loop.expired, loop.failed, loop.preempted) == (0, 0, 0)
    assert loop.ttft_ms is not None


async def test_a_paused_class(box: Box) -> None:
    box.gate.close_class("batch", clock.monotonic_ns() + 5_000_000_000)
    box.gate.close_class("loop", None)
    interactive, loop, batch = status(box).classes
    assert (interactive.paused, loop.paused, batch.paused) == (False, True, True)
    assert loop.paused_until_ms is None
    assert abs(batch.paused_until_ms - clock.wall_ms() - 5000) < 5000


async def test_a_notice_holds_until_it_is_taken_back(box: Box) -> None:
    reporter = box.services.reporter
    reporter.notice(NoticeCode.ENGINE_DOWN, None)
    assert status(box).notices == []
    reporter.notice(NoticeCode.ENGINE_DOWN, "it is")
    (notice,) = status(box).notices
    assert (notice.code, notice.detail) == ("engine_down", "it is")
    assert notice.since_ms <= clock.wall_ms()
    reporter.notice(NoticeCode.ENGINE_DOWN, None)
    assert status(box).notices == []


def test_a_time_of_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "monotonic_ns", lambda: 7_000_000)
    monkeypatch.setattr(clock, "wall_ms", lambda: 1000)
    assert unix_ms(9_000_000) == 1002
    assert unix_ms(5_000_000) == 998
    assert unix_ms(None) is None


@pytest.mark.parametrize("binding", list(Binding))
def test_every_limit_has_a_word(binding: Binding) -> None:
    assert limited_by(binding) in set(LimitedBy)
    assert limited_by(None) is None


async def test_rows_of_requests(box: Box) -> None:
    await box.run(box.greeted(uid=1))
    (live,) = box.services.live
    (row,) = request_rows([live], principal="uid:1", admin=False)
    assert (row.rid, row.class_, row.state) == (live.rid, "loop", "granted")
    assert (row.mine, row.principal, row.output_tok) == (True, "uid:1", 0)
    assert row.prompt_tok == live.prompt_tok > 0
    assert row.age_ms >= 0
    (row,) = request_rows([live], principal="uid:2", admin=False)
    assert (row.mine, row.principal) == (False, None)
    (row,) = request_rows([live], principal="uid:2", admin=True)
    assert (row.mine, row.principal) == (False, "uid:1")


async def test_what_the_core_knows_of_the_steps(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    assert status(box).pools[0].step_model is None
    view = box.gate.view()
    pace = StepView(15e6, 0.5e6, 0.25e6, 0.07, 300, 2_500_000)
    pools = (replace(view.pools[0], pace=pace),)
    monkeypatch.setattr(box.gate, "view", lambda: replace(view, pools=pools))
    assert status(box).pools[0].step_model == StepModel(
        step_ms=15.0,
        prefill_ms_per_tok=0.5,
        decode_ms_per_seq=0.25,
        error=0.07,
        steps=300,
        age_ms=2,
    )
    little = replace(pace, prefill_ns=None, error=None)
    assert step_model(little) == StepModel(
        step_ms=15.0,
        prefill_ms_per_tok=None,
        decode_ms_per_seq=0.25,
        error=None,
        steps=300,
        age_ms=2,
    )


async def test_what_a_class_took(box: Box) -> None:
    batch = box.services.accounts.of("batch")
    batch.prompt_tok, batch.output_tok, batch.recomputed_tok, batch.discarded_tok = 9, 8, 7, 6
    found = status(box).classes[2]
    assert (found.prompt_tok, found.output_tok) == (9, 8)
    assert (found.recomputed_tok, found.discarded_tok) == (7, 6)
    assert found.cached_tok is None
    batch.told_tok, batch.cached_tok = 9, 5
    assert status(box).classes[2].cached_tok == 5


async def test_how_often_a_pool_was_loaded(box: Box) -> None:
    box.change(loads=3)
    (pool,) = status(box).pools
    assert (pool.loads, pool.released_until_ms) == (3, None)
