"""The one interface of engines: its words agree with the core's, its shapes cross a wire."""

from typing import Any, get_args

import msgspec
import pytest

from onegate.admission import model
from onegate.engines import base
from onegate.engines.base import (
    EngineBroke,
    EngineCapacity,
    EngineError,
    EngineMalformed,
    EngineRefused,
    EngineRequest,
    EngineTooLarge,
    EngineUnavailable,
    PoolInfo,
)
from onegate.protocol.content import Message, Params

CAPACITY = EngineCapacity(max_seqs=1, max_context_tok=10, reservation=base.Reservation.GROW)


def test_a_pool_offers_what_a_request_can_ask_for() -> None:
    """How the gate goes about it is nobody's business."""
    features = frozenset({base.Feature.TOOLS, base.Feature.ABORT, base.Feature.IMAGES})
    pool = PoolInfo(model="m", state=base.PoolState.READY, capacity=CAPACITY, features=features)
    assert pool.offers == ["images", "tools"]


@pytest.mark.parametrize("name", ["Reservation", "PoolState"])
def test_the_core_has_the_same_words(name: str) -> None:
    ours, cores = getattr(base, name), getattr(model, name)
    assert [word.value for word in ours] == [word.value for word in cores]


@pytest.mark.parametrize("union", [base.GenerateItem, base.EngineEvent])
def test_members_of_a_union_can_be_told_apart(union: Any) -> None:
    members = get_args(union)
    tags = [member.__struct_config__.tag for member in members]
    assert len(set(tags)) == len(members)
    assert None not in tags


def round_trip(value: Any) -> Any:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=type(value))


def test_a_request_crosses_a_wire() -> None:
    request = EngineRequest(
        id=7,
        model="tiny",
        max_tokens=5,
        messages=[Message(role="user", content="why?")],
        params=Params(temperature=0.5, stop=["x"]),
        resume_tok_ids=[1, 2],
        resume_shown_chars=3,
    )
    assert round_trip(request) == request
    bare = round_trip(EngineRequest(id=7, model="tiny", max_tokens=5))
    assert (bare.prompt, bare.messages, bare.prompt_tok_ids, bare.cache_salt) == (None,) * 3 + ("",)


def test_a_pool_crosses_a_wire() -> None:
    pool = PoolInfo(
        model="tiny",
        state=base.PoolState.READY,
        capacity=CAPACITY,
        features=frozenset({base.Feature.ABORT}),
        params=frozenset({"seed"}),
    )
    assert round_trip(pool) == pool


def test_what_is_not_said_is_unknown() -> None:
    assert (CAPACITY.kv_tok, CAPACITY.max_step_tok, CAPACITY.max_bytes_per_tok) == (None,) * 3
    snapshot = base.EngineSnapshot(model="tiny")
    values = [getattr(snapshot, name) for name in snapshot.__struct_fields__ if name != "model"]
    assert set(values) == {None}


def test_shapes_do_not_change() -> None:
    with pytest.raises(AttributeError):
        CAPACITY.max_seqs = 2  # type: ignore[misc]


@pytest.mark.parametrize(
    "error",
    [
        EngineRefused("no"),
        EngineTooLarge(need_tok=9, limit_tok=8),
        EngineUnavailable("away"),
        EngineBroke("died"),
        EngineMalformed("garbled"),
    ],
)
def test_every_error_of_an_engine_is_one(error: Exception) -> None:
    assert isinstance(error, EngineError)


def test_garbage_is_a_way_to_break() -> None:
    assert issubclass(EngineMalformed, EngineBroke)
    assert not issubclass(EngineUnavailable, EngineBroke)


def test_errors_say_what_was_wrong() -> None:
    error = EngineTooLarge(need_tok=9, limit_tok=8)
    assert (error.need_tok, error.limit_tok) == (9, 8)
    assert "9" in str(error)
    assert "8" in str(error)
    refused = EngineRefused("no", path="params.seed", unsupported=True)
    assert (str(refused), refused.path, refused.unsupported) == ("no", "params.seed", True)
    assert (EngineRefused("no").path, EngineRefused("no").unsupported) == (None, False)
