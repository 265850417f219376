from onegate.engines.host.sampling import HONOURED, sampling_of
from onegate.protocol.content import Params


def values(make_request, params=None, *, default=False):
    request = make_request("x", params=params or Params())
    return sampling_of(request, max_tokens=9, samples_by_default=default).values


def test_unset_is_the_models_own_default(make_request):
    assert values(make_request) == {"max_new_tokens": 9, "do_sample": False}
    sampled = values(make_request, default=True)
    assert sampled.pop("rng_seed") >= 0
    assert sampled == {"max_new_tokens": 9, "do_sample": True}


def test_temperature_decides(make_request):
    assert values(make_request, Params(temperature=0.0), default=True)["do_sample"] is False
    sampled = values(make_request, Params(temperature=0.5))
    assert sampled["do_sample"] is True
    assert sampled["temperature"] == 0.5


def test_greedy_leaves_out_what_holds_trivially(make_request):
    params = Params(temperature=0.0, top_p=0.5, top_k=2, min_p=0.1, seed=3)
    assert values(make_request, params) == {"max_new_tokens": 9, "do_sample": False}


def test_every_setting_by_the_librarys_name(make_request):
    params = Params(
        temperature=1.0,
        top_p=0.5,
        top_k=2,
        min_p=1.0,
        seed=3,
        min_tokens=4,
        ignore_eos=True,
        logprobs=True,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repeat_penalty=1.5,
    )
    sampled = values(make_request, params)
    assert 0.999999 < sampled.pop("min_p") < 1.0  # the library takes less than 1
    assert sampled == {
        "max_new_tokens": 9,
        "min_new_tokens": 4,
        "ignore_eos": True,
        "logprobs": 1,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repetition_penalty": 1.5,
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 0.5,
        "top_k": 2,
        "rng_seed": 3,
    }


def test_no_top_k_is_none(make_request):
    assert "top_k" not in values(make_request, Params(temperature=1.0, top_k=0))


def test_an_unset_seed_is_a_fresh_one(make_request):
    seeds = {values(make_request, Params(temperature=1.0))["rng_seed"] for _ in range(5)}
    assert len(seeds) == 5


def test_a_grammar_goes_along_as_it_is(make_request):
    request = make_request("x", params=Params(temperature=0.5))
    given = {"max_tokens": 9, "samples_by_default": False}
    assert sampling_of(request, **given).grammar is None
    guided = sampling_of(request, **given, grammar='root ::= "a"')
    assert guided.grammar == 'root ::= "a"'
    assert guided.values["do_sample"] is True


def test_what_is_not_honoured_is_not_listed():
    assert "top_logprobs" not in HONOURED
    assert HONOURED < set(Params.__struct_fields__)
