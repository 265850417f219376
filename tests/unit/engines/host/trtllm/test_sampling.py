import pytest

from onegate.engines.base import EngineRequest
from onegate.engines.host.engine import Refusal
from onegate.engines.host.trtllm.sampling import guide_of, params_of, priority_of, sampling_of
from onegate.protocol.content import JsonSchema, Params, ResponseFormat


def asked(**params):
    return EngineRequest(id=1, model="m", max_tokens=100, prompt="x", params=Params(**params))


@pytest.mark.parametrize("params", [{}, {"temperature": 0.0}, {"top_p": 0.5, "top_k": 7}])
def test_greedy_without_a_temperature(params):
    said = sampling_of(asked(**params), max_tokens=9)
    assert said == {"max_tokens": 9, "n": 1, "detokenize": False, "top_k": 1}


def test_what_is_set_is_passed():
    params = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "ignore_eos": True}
    assert sampling_of(asked(**params), max_tokens=9) == {
        **params,
        "max_tokens": 9,
        "n": 1,
        "detokenize": False,
    }


def test_top_k_of_zero_is_none():
    assert "top_k" not in sampling_of(asked(temperature=1.0, top_k=0), max_tokens=1)


def test_guides():
    schema = JsonSchema(schema={"type": "object", "title": "ñ"})
    by_schema = ResponseFormat(type="json_schema", json_schema=schema)
    assert guide_of(asked()) is None
    assert guide_of(asked(response_format=ResponseFormat(type="text"))) is None
    assert guide_of(asked(response_format=ResponseFormat(type="json_object"))) == {
        "json_object": True
    }
    assert guide_of(asked(response_format=by_schema)) == {
        "json": '{"type": "object", "title": "\\u00f1"}'
    }
    with pytest.raises(Refusal):
        guide_of(asked(response_format=ResponseFormat(type="json_schema")))


def test_every_request_has_settings_of_its_own(library):
    values = {"max_tokens": 3}
    one = params_of(library, values, {"json_object": True})
    assert one == (
        "SamplingParams",
        {"max_tokens": 3, "guided_decoding": ("GuidedDecodingParams", {"json_object": True})},
    )
    assert params_of(library, values, None) is not params_of(library, values, None)
    assert values == {"max_tokens": 3}


def test_better_classes_have_higher_priorities():
    found = [priority_of(rank) for rank in (0, 1, 2, 1000)]
    assert found == sorted(found, reverse=True)
    assert found[0] == 1.0
    assert found[-1] > 0
