from onegate import __version__
from onegate.config import check
from onegate.engines.base import EngineCapacity, Feature, PoolInfo, PoolState, Reservation
from onegate.server.classify import Decision
from onegate.server.greeting import peer_facts, welcome
from onegate.server.peercred import Peer
from onegate.source import build

PEER = Peer(
    pid=9,
    uid=1000,
    gid=1001,
    groups=(1001,),
    source="peer_pidfd",
    slice="user-1000.slice",
    owner_uid=1000,
    unit="session-2.scope",
    tty=True,
)


def test_the_peer_as_the_kernel_says() -> None:
    facts = peer_facts(PEER)
    assert (facts.uid, facts.gid, facts.pid) == (1000, 1001, 9)
    assert (facts.unit, facts.slice, facts.tty) == ("session-2.scope", "user-1000.slice", True)


def test_the_limits_are_those_of_the_classes_it_may_use() -> None:
    config = check("gate.frame_timeout_s = 2.5\ngate.in_flight_per_session = 7")
    decision = Decision(
        principal="uid:1000",
        flow="uid:1000",
        class_="batch",
        ceiling="loop",
        allowed=("loop", "batch"),
        why=("because",),
        delegate=False,
        admin=False,
    )
    capacity = EngineCapacity(max_seqs=2, max_context_tok=77, reservation=Reservation.GROW)
    features = frozenset({Feature.TOOLS, Feature.IMAGES, Feature.ABORT})
    pools = [PoolInfo(model="tiny", state=PoolState.LOADING, capacity=capacity, features=features)]
    said = welcome(PEER, decision, config, pools, ["v1"])
    assert (said.class_, said.ceiling, said.why) == ("batch", "loop", ["because"])
    assert set(said.limits.classes) == {"loop", "batch"}
    assert said.limits.classes["loop"].max_tokens_max == config.classes[1].max_tokens_max
    assert (said.limits.frame_timeout_ms, said.limits.in_flight_per_session) == (2500, 7)
    assert [(each.model, each.state, each.max_context_tok) for each in said.models] == [
        ("tiny", "loading", 77)
    ]
    assert said.models[0].features == ["images", "tools"]
    assert (said.features, said.version) == (["v1"], build(__version__))
