from tests.unit.engines.http.fakes import pool_of

from onegate.engines.base import EngineNotice, EngineSnapshot, PoolChanged, PoolState
from onegate.engines.http.pools import Pools
from onegate.protocol.content import Identity


def make(*pools):
    told = []
    return Pools(list(pools), told.append), told


def test_what_is_probed_is_told_once():
    pools, told = make()
    assert pools.health().state == "starting"
    pools.probed([pool_of()])
    pools.probed([pool_of()])
    assert len(told) == 1
    assert pools.get("m").loads == 1
    assert pools.health().state == "ready"


def test_a_model_that_is_gone_cannot_be_served():
    pools, _ = make(pool_of(state=PoolState.LOADING))
    pools.probed([pool_of("other")])
    assert pools.get("m").state is PoolState.FAILED
    assert "no model m" in pools.get("m").error


def test_another_identity_forgets_what_was_learnt():
    pools, _ = make()
    pools.probed([pool_of(identity=Identity(engine="e", model="m", digest="a"))])
    pools.width("m").limit = 1
    pools.probed([pool_of(identity=Identity(engine="e", model="m", digest="a"))])
    assert pools.get("m").capacity.max_seqs == 1
    pools.probed([pool_of(identity=Identity(engine="e", model="m", digest="b"))])
    assert pools.get("m").capacity.max_seqs == 2


def test_a_lower_limit_is_told_with_a_notice_and_taken_back():
    pools, told = make()
    pools.probed([pool_of(max_seqs=8)])
    pools.width("m").limit = 3
    pools.show("m")
    changed, notice = told[1:]
    assert isinstance(changed, PoolChanged)
    assert changed.pool.capacity.max_seqs == 3
    assert isinstance(notice, EngineNotice)
    assert "max_seqs = 3" in notice.detail
    pools.width("m").limit = 8
    pools.show("m")
    assert told[-1] == EngineNotice(code="engine_queueing", model="m", detail=None)


def test_others_are_told_of_when_seen_twice():
    pools, told = make(pool_of())
    for _ in range(2):
        pools.observed(EngineSnapshot(model="m", seats_used=2, waiting=1))
    assert [event.code for event in told if isinstance(event, EngineNotice)] == ["foreign_load"]
    pools.observed(EngineSnapshot(model="unknown", seats_used=2))


def test_a_server_that_wants_rest_has_it_and_says_so_once(monkeypatch):
    now = [10**9]
    monkeypatch.setattr("onegate.engines.http.pools.monotonic_ns", lambda: now[0])
    pools, told = make(pool_of())
    pools.rest("m", 5000.0)
    assert pools.get("m").state is PoolState.LOADING
    now[0] += 4 * 10**9
    pools.tick()
    assert len(told) == 1
    now[0] += 2 * 10**9
    pools.tick()
    assert pools.get("m").state is PoolState.READY


def test_a_server_that_is_away():
    pools, _ = make()
    pools.probed([pool_of()])
    pools.taken_away(PoolState.FAILED, "gone")
    assert pools.health().detail == "gone"
    pools.probed([pool_of()])
    assert pools.get("m").loads == 2


def test_a_server_that_was_never_there_says_why():
    pools, told = make()
    for _ in range(2):
        pools.taken_away(PoolState.FAILED, "nobody answers")
    assert told == [EngineNotice(code="engine_down", model=None, detail="nobody answers")]
    pools.probed([pool_of()])
    assert told[1] == EngineNotice(code="engine_down", model=None, detail=None)
    pools.taken_away(PoolState.FAILED, "nobody answers")  # which its pool says from now on
    assert not [e for e in told[2:] if isinstance(e, EngineNotice)]


def test_what_a_server_asked_for_ends_with_it(monkeypatch):
    monkeypatch.setattr("onegate.engines.http.pools.monotonic_ns", lambda: 10**9)
    pools, _ = make()
    pools.probed([pool_of()])
    assert pools.resting_ms("m") is None
    pools.rest("m", 5000.0)
    assert pools.resting_ms("m") == 5000.0
    pools.taken_away(PoolState.LOADING, "gone")
    pools.probed([pool_of()])
    assert pools.get("m").state is PoolState.READY


def test_who_is_inside_is_known_to_the_next_model_of_that_name():
    pools, _ = make()
    pools.probed([pool_of(max_seqs=2)])
    pools.width("m").sent(1, 1, 0)
    pools.probed([pool_of(max_seqs=4)])
    pools.width("m").observed(1, 0, 0)
    assert pools.width("m").foreign == 0
    assert pools.limit("m") == 4


def test_models_beyond_the_bound_are_left_out_and_named(monkeypatch):
    monkeypatch.setattr("onegate.engines.http.pools._MAX_POOLS", 2)
    pools, _ = make()
    assert pools.probed([pool_of("a"), pool_of("b"), pool_of("c")]) == ["c"]
    assert pools.probed([pool_of("a"), pool_of("c")]) == ["c"]
    assert [pool.model for pool in pools.all()] == ["a", "b"]
