import msgspec
import pytest

from onegate.engines.openai.flavours import FLAVOURS, LLAMA, NONE, VLLM, recognised
from onegate.protocol.content import Params


@pytest.mark.parametrize("flavour", FLAVOURS.values())
def test_every_parameter_is_one_of_ours(flavour):
    assert set(flavour.params) <= {field.name for field in msgspec.structs.fields(Params)}


def test_who_is_who():
    assert recognised({"vllm"}, False) is VLLM
    assert recognised({"llamacpp"}, False) is LLAMA
    assert recognised({"x"}, True) is LLAMA
    assert recognised(set(), False) is NONE


def test_a_better_rank_is_a_better_priority():
    assert VLLM.priority(0) < VLLM.priority(1)
    trtllm = FLAVOURS["trtllm"]
    assert 1 >= trtllm.priority(0) > trtllm.priority(1) >= 0
    assert LLAMA.priority is None
