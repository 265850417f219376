"""The nouns: immutable, and in the words of the wire."""

import dataclasses
import inspect

import pytest

from onegate.admission import model
from onegate.protocol.errors import LimitedBy, Reason

NOUNS = [
    noun
    for _, noun in inspect.getmembers(model, dataclasses.is_dataclass)
    if noun.__module__ == model.__name__
]


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.__name__)
def test_nothing_of_it_changes(noun: type) -> None:
    made = noun.__new__(noun)
    name = dataclasses.fields(noun)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, 1)
    assert not hasattr(made, "__dict__")


def test_all_the_nouns_were_looked_at() -> None:
    assert {"RequestSpec", "ClassSpec", "PoolSpec", "GateLimits", "Refusal", "View"} <= {
        noun.__name__ for noun in NOUNS
    }


@pytest.mark.parametrize("refused", model.Refused)
def test_every_refusal_is_a_reason_of_the_wire(refused: model.Refused) -> None:
    assert Reason[refused.name].value == refused.value


@pytest.mark.parametrize("binding", model.Binding)
def test_every_binding_limit_is_one_of_the_wire(binding: model.Binding) -> None:
    assert LimitedBy[binding.name].value == binding.value


def test_what_a_caller_leaves_out_bounds_nothing() -> None:
    capacity = model.PoolCapacity(1, 100, model.Reservation.FULL)
    assert (capacity.kv_tok, capacity.max_step_tok, capacity.block_tok) == (None, None, 1)
    spec = model.ClassSpec("chat", 0, 1, 1.0, 1)
    assert spec.floor_share == 0.0
    assert not spec.waits_when_closed
    request = model.RequestSpec(1, "a", "chat", "alice", "", 1, 1, 0)
    assert request.ttft_deadline_ns is None
    assert request.deadline_ns is None
    assert not request.counted
    assert not request.ttft_is_own
    assert not request.lease
