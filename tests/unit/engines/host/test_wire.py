import msgspec
import pytest

from onegate.engines.base import EngineChunk, EngineRequest
from onegate.engines.host import wire


def test_both_directions_know_their_own_messages_only():
    abort = msgspec.msgpack.encode(wire.Abort(id=1))
    assert msgspec.msgpack.decode(abort, type=wire.ToHost) == wire.Abort(id=1)
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(abort, type=wire.FromHost)


def test_a_request_crosses_as_it_is():
    request = EngineRequest(id=1, model="m", max_tokens=5, prompt="hi", resume_tok_ids=[1])
    raw = msgspec.msgpack.encode(wire.Submit(request=request))
    assert msgspec.msgpack.decode(raw, type=wire.ToHost).request == request


def test_a_step_holds_everything_that_changed():
    step = wire.Step(n=3, outputs=[wire.Output(id=1, chunk=EngineChunk(n_tok=1))], freed=[2])
    raw = msgspec.msgpack.encode(step)
    assert msgspec.msgpack.decode(raw, type=wire.FromHost) == step


def test_unknown_fields_are_refused():
    raw = msgspec.msgpack.encode({"t": "abort", "id": 1, "more": 2})
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(raw, type=wire.ToHost)


def test_tags_are_unique():
    for union in (wire.ToHost, wire.FromHost):
        tags = [kind.__struct_config__.tag for kind in union.__args__]
        assert len(tags) == len(set(tags))
