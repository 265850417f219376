import hashlib
import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.unit.engines.host.conftest import EOS

from onegate.engines.base import Feature, PoolState
from onegate.engines.host import forms, step_size
from onegate.engines.host.embedded import EmbeddedEngine, openvino_pool
from onegate.engines.host.engine import LoadFailed, Refusal
from onegate.engines.host.grammar.json_rules import any_object
from onegate.engines.host.grammar.rest import rest_of
from onegate.engines.host.step_size import StepCosts
from onegate.engines.host.wire import CountCall
from onegate.protocol.content import FunctionSpec, Params, ResponseFormat, Tool


@pytest.fixture
def engine(settings, pipeline, tmp_path):
    engine = EmbeddedEngine(
        settings, lambda settings: pipeline, version="1", digest_cache=tmp_path / "cache.json"
    )
    assert engine.pools()[0].state is PoolState.LOADING
    assert engine.busy
    report = engine.step()
    assert report.pools_changed
    assert not report.stepped
    assert not engine.busy
    return engine


class Opened:
    """Opens the same pipeline again and again, and notes with how many tokens a step."""

    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.step_tok = []

    def __call__(self, settings):
        self.step_tok.append(settings.max_step_tok)
        return self.pipeline


def test_steps_are_as_short_as_wanted_and_measured_once(
    settings, pipeline, tmp_path, monkeypatch, capsys
):
    costs = StepCosts(1.0, 1.0, 9.0)
    measured = []
    monkeypatch.setattr(step_size, "measure", lambda *_: (measured.append(1) or costs, True))
    opened = Opened(pipeline)
    for target_ms, tok in ((30.0, 4 + 21), (30.0, 4 + 21), (27.0, 4 + 18), (1000.0, 32)):
        wanted = replace(settings, step_target_ms=target_ms)
        engine = EmbeddedEngine(wanted, opened, version="1", digest_cache=tmp_path / "d.json")
        engine.step()
        assert engine.pools()[0].capacity.max_step_tok == tok
        assert engine.pools()[0].state is PoolState.READY
    assert opened.step_tok == [32, 25, 25, 22, 32]
    assert len(measured) == 1
    assert "at most 25 tokens: 30 ms are wanted" in capsys.readouterr().err


def test_a_model_whose_steps_are_short_enough_is_opened_once(
    settings, pipeline, tmp_path, monkeypatch
):
    monkeypatch.setattr(step_size, "measure", lambda *_: (StepCosts(0.1, 0.1, 0.2), True))
    opened = Opened(pipeline)
    wanted = replace(settings, step_target_ms=50.0)
    EmbeddedEngine(wanted, opened, version="1", digest_cache=tmp_path / "d.json").step()
    assert opened.step_tok == [32]


def refusal(call, *arguments):
    with pytest.raises(Refusal) as refused:
        call(*arguments)
    return refused.value


def test_a_loaded_pool_says_what_was_measured(engine):
    (pool,) = engine.pools()
    assert pool.state is PoolState.READY
    assert pool.loads == 1
    assert pool.capacity.kv_tok == 800
    assert pool.capacity.block_tok == 8
    assert pool.capacity.max_context_tok == 500
    assert pool.capacity.max_bytes_per_tok == 7
    assert pool.identity.digest.startswith("sha256:")
    assert pool.identity.boundary == "local"
    assert Feature.PREFIX_CACHE not in pool.features
    assert Feature.RESUME_EXACT in pool.features


@pytest.mark.parametrize(
    ("facts", "context_tok"), [({"encode_max_tok": 90}, 90), ({"kv_blocks": 10}, 80)]
)
def test_the_context_is_bounded_by_tokenizer_and_cache(
    settings, make_pipeline, tmp_path, facts, context_tok
):
    engine = EmbeddedEngine(
        settings,
        lambda settings: make_pipeline(**facts),
        version="1",
        digest_cache=tmp_path / "cache.json",
    )
    engine.step()
    assert engine.pools()[0].capacity.max_context_tok == context_tok


def test_a_model_that_samples_by_itself_resumes_nothing_exactly(settings, tmp_path, make_pipeline):
    engine = EmbeddedEngine(
        settings,
        lambda settings: make_pipeline(samples_by_default=True),
        version="1",
        digest_cache=tmp_path / "cache.json",
    )
    engine.step()
    assert Feature.RESUME_EXACT not in engine.pools()[0].features


def test_a_model_that_does_not_load_fails_with_its_sentence(settings, tmp_path):
    def broken(settings):
        raise LoadFailed("no such thing: buy one")

    engine = EmbeddedEngine(settings, broken, version="1", digest_cache=tmp_path / "cache.json")
    with pytest.raises(LoadFailed, match="buy one"):
        engine.step()
    (pool,) = engine.pools()
    assert (pool.state, pool.error) == (PoolState.FAILED, "no such thing: buy one")


@pytest.fixture
def opened(settings, make_pipeline, tmp_path):
    """An engine, and what it has opened so far."""
    files = []

    def opens(settings):
        files.append(Path(settings.path).read_bytes())
        return make_pipeline()

    engine = EmbeddedEngine(settings, opens, version="1", digest_cache=tmp_path / "cache.json")
    engine.step()
    return engine, files


def replace_file(settings, content):
    new = Path(f"{settings.path}.new")
    new.write_bytes(content)
    os.utime(new, ns=(1, 1))
    new.rename(settings.path)


def test_a_file_that_is_as_it_was_is_not_looked_into(opened, settings):
    engine, files = opened
    (before,) = engine.pools()
    engine.look_again()
    engine.load("m")
    assert not engine.busy
    assert engine.pools() == [before]
    assert files == [b"weights"]


@pytest.mark.parametrize("how", ["a daemon comes", "a load is asked for"])
def test_a_file_that_was_replaced_is_loaded_anew(opened, settings, how):
    engine, files = opened
    (before,) = engine.pools()
    replace_file(settings, b"WEIGHTS")  # as long as before
    engine.look_again() if how == "a daemon comes" else engine.load("m")
    assert engine.pools()[0].state is PoolState.LOADING
    report = engine.step()
    (after,) = engine.pools()
    assert report.pools_changed
    assert files == [b"weights", b"WEIGHTS"]
    assert (after.state, after.loads) == (PoolState.READY, 2)
    assert after.identity.digest == f"sha256:{hashlib.sha256(b'WEIGHTS').hexdigest()}"
    assert after.identity.digest != before.identity.digest
    engine.look_again()
    assert not engine.busy


def test_other_files_with_the_same_weights_are_no_other_model(opened, settings):
    engine, files = opened
    (before,) = engine.pools()
    replace_file(settings, b"weights")
    engine.look_again()
    assert engine.busy
    assert engine.step().pools_changed
    assert engine.pools() == [before]
    engine.look_again()
    assert not engine.busy
    assert files == [b"weights"]


def test_a_file_that_is_gone_leaves_what_is_loaded(opened, settings, capsys):
    engine, _ = opened
    os.unlink(settings.path)
    engine.look_again()
    assert engine.pools()[0].state is PoolState.READY
    assert not engine.busy
    assert "cannot be looked at" in capsys.readouterr().err


def test_what_runs_goes_on_with_the_model_that_it_began_with(opened, settings, make_request):
    engine, _ = opened
    engine.submit(make_request("hi", id=3))
    replace_file(settings, b"other")
    engine.load("m")
    assert engine.pools()[0].state is PoolState.READY
    assert engine.running("m") == [3]


def test_a_file_that_is_replaced_while_it_is_loaded_is_no_model(settings, make_pipeline, tmp_path):
    def opens(given):
        replace_file(settings, b"other")
        return make_pipeline()

    engine = EmbeddedEngine(settings, opens, version="1", digest_cache=tmp_path / "cache.json")
    with pytest.raises(LoadFailed, match="replaced while"):
        engine.step()
    assert engine.pools()[0].state is PoolState.FAILED


def test_what_is_cached_of_a_prompt_is_told_where_there_is_a_cache(
    settings, make_request, pipeline, tmp_path
):
    for prefix_cache, told in ((False, [None, None]), (True, [0, 32])):
        with_cache = replace(settings, prefix_cache=prefix_cache)
        engine = EmbeddedEngine(
            with_cache, lambda _: pipeline, version="1", digest_cache=tmp_path / "c.json"
        )
        engine.step()
        found = []
        for id in (1, 2):
            request = make_request(prompt_tok_ids=[7] * 40, id=id, max_tokens=1)
            found.append(engine.submit(request).cached_tok)
            while engine.running("m"):
                engine.step()
        assert found == told


def test_accepted_with_the_prompts_length(engine, make_request, pipeline):
    accepted = engine.submit(make_request("hi", id=3))
    assert accepted.prompt_tok == len(pipeline.handles[3].ids)
    assert engine.running("m") == [3]
    assert engine.busy


def test_resumed_ids_follow_the_prompts(engine, make_request, pipeline):
    accepted = engine.submit(make_request(prompt_tok_ids=[1, 2], resume_tok_ids=[97], id=3))
    assert pipeline.handles[3].ids == [1, 2, 97]
    assert accepted.prompt_tok == 2


FORM = ResponseFormat(type="json_object")


def test_a_form_is_a_grammar_and_resumed_what_is_left_of_it(engine, make_request, pipeline):
    params = Params(response_format=FORM)
    engine.submit(make_request("x", params=params, id=1))
    whole = pipeline.handles[1].sampling
    assert whole.grammar == any_object().ebnf()
    said = list(b'{"a": [')
    engine.submit(make_request("x", params=params, resume_tok_ids=said, id=2))
    rest = pipeline.handles[2].sampling
    assert rest.grammar == rest_of(any_object(), '{"a": [').ebnf() != whole.grammar
    assert pipeline.handles[2].ids[-len(said) :] == said
    assert rest.values["max_new_tokens"] == 100
    engine.submit(make_request("x", id=3))
    assert pipeline.handles[3].sampling.grammar is None


def test_cut_inside_a_character_it_is_said_again_and_told_once(engine, make_request, pipeline):
    text = '{"\u20ac": 1}'.encode()
    said, left = list(text[:4]), list(text[4:])
    pipeline.says = [*text[2:], EOS]
    request = make_request(
        "x", params=Params(response_format=FORM), resume_tok_ids=said, resume_shown_chars=2, id=1
    )
    engine.submit(request)
    handle = pipeline.handles[1]
    assert handle.ids[-2:] == list(b'{"')
    assert handle.sampling.values["max_new_tokens"] == 102
    assert handle.sampling.grammar == rest_of(any_object(), '{"').ebnf()
    chunks = []
    while engine.running("m"):
        report = engine.step()
        chunks += [output.chunk for output in report.outputs]
        ended = report.ended
    assert [id for chunk in chunks for id in chunk.token_ids or ()] == [*left, EOS]
    assert "".join(chunk.text for chunk in chunks) == '\u20ac": 1}'
    assert ended[0].usage.output_tok == len(left) + 1


def test_another_character_than_before_ends_the_request(engine, make_request, pipeline):
    pipeline.says = list('{"\u20ad": 1}'.encode())[2:]
    said = list('{"\u20ac'.encode())[:4]
    pipeline.says[1] += 1
    engine.submit(make_request("x", params=Params(response_format=FORM), resume_tok_ids=said, id=1))
    ended = []
    while engine.running("m"):
        ended += engine.step().ended
    assert "differently" in ended[0].error


def test_after_many_forms_it_is_loaded_anew_once_nothing_runs(
    engine, make_request, pipeline, monkeypatch
):
    monkeypatch.setattr(forms, "WORN_BYTES", 1)
    pipeline.says = [*b"{}", EOS]
    engine.submit(make_request("x", params=Params(response_format=FORM), id=1))
    engine.submit(make_request("x", id=2, max_tokens=1))
    while len(engine.running("m")) == 2:
        assert not engine.step().pools_changed
    while engine.running("m"):
        report = engine.step()
    assert report.pools_changed
    assert engine.pools()[0].state is PoolState.LOADING
    assert engine.busy
    assert refusal(engine.submit, make_request("x", id=3)).code == "unavailable"
    engine.step()
    assert (engine.pools()[0].state, engine.pools()[0].loads) == (PoolState.READY, 2)
    engine.submit(make_request("x", id=4, max_tokens=1))
    while engine.running("m"):
        assert not engine.step().pools_changed


def test_what_does_not_begin_the_form_is_not_gone_on_with(engine, make_request, pipeline):
    for said in (b"no", b"\xff\xff\xff\xff\xff"):
        request = make_request("x", params=Params(response_format=FORM), resume_tok_ids=list(said))
        assert refusal(engine.submit, request).path == "resume_tok_ids"
    assert pipeline.handles == {}


def test_output_is_fitted_only_where_nobody_named_a_bound(engine, make_request, pipeline):
    request = make_request(prompt_tok_ids=[1] * 490, max_tokens=400, fit_max_tokens=True)
    engine.submit(request)
    assert pipeline.handles[1].sampling.values["max_new_tokens"] == 10
    error = refusal(engine.submit, make_request(prompt_tok_ids=[1] * 490, max_tokens=400, id=2))
    assert error.code == "too_large"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"params": Params(top_logprobs=1)}, "params.top_logprobs"),
        ({"params": Params(min_tokens=101)}, "params.min_tokens"),
        ({"params": Params(response_format=FORM, ignore_eos=True)}, "params.ignore_eos"),
        ({"suffix": "x"}, "suffix"),
    ],
)
def test_nothing_is_submitted_that_cannot_be_honoured(engine, make_request, pipeline, given, path):
    assert refusal(engine.submit, make_request("x", **given)).path == path
    assert pipeline.handles == {}


def test_counting(engine, make_request):
    count = engine.count(CountCall(call=1, model="m", prompt="hello"))
    assert count == (engine.submit(make_request("hello")).prompt_tok, True)
    assert refusal(engine.count, CountCall(call=1, model="other", prompt="x")).path == "model"
    tools = [Tool(function=FunctionSpec(name="f"))]
    error = refusal(engine.count, CountCall(call=1, model="m", prompt="x", tools=tools))
    assert error.code == "unsupported"


def test_unloaded_it_takes_nothing_and_loads_again(engine, make_request):
    engine.unload("m")
    assert engine.pools()[0].state is PoolState.COLD
    assert not engine.busy
    assert refusal(engine.submit, make_request("x")).code == "unavailable"
    engine.abort(1)
    assert engine.running("m") == []
    engine.load("m")
    assert engine.busy
    engine.step()
    assert engine.pools()[0].loads == 2
    engine.load("m")
    assert not engine.busy
    for change in (engine.load, engine.unload):
        assert refusal(change, "other").path == "model"


def test_the_pool_before_it_is_loaded(settings):
    pool = openvino_pool(settings)
    assert pool.state is PoolState.LOADING
    assert "temperature" in pool.params
