import threading
from types import SimpleNamespace

import pytest

from onegate.engines.base import EngineCapacity, EngineRequest, Feature, PoolState, Reservation
from onegate.engines.host import digest
from onegate.engines.host.engine import LoadFailed, Refusal
from onegate.engines.host.pipeline import TextFacts
from onegate.engines.host.trtllm import engine as module
from onegate.engines.host.trtllm.engine import EngineBroken, TrtLlmEngine
from onegate.engines.host.trtllm.load import Loaded
from onegate.engines.host.trtllm.loader import Outcome
from onegate.engines.host.trtllm.messages import Broken, Finished, Tokens
from onegate.engines.host.wire import CountCall
from onegate.protocol.content import FunctionSpec, Identity, Params, ResponseFormat, Tool


class Session:
    def __init__(self):
        self.submitted = []
        self.aborted = []
        self.raises = None
        self.ends = True
        self.ended = []

    def submit(self, id, ids, values, guide, *, salt, priority):
        if self.raises is not None:
            raise self.raises
        self.submitted.append((id, ids, values, guide, salt, priority))

    def abort(self, id):
        self.aborted.append(id)

    def end(self, timeout_s):
        self.ended.append(timeout_s)
        return self.ends


class Text:
    facts = TextFacts(
        vocabulary=300,
        encode_max_tok=2**31 - 1,
        max_bytes_per_tok=1,
        specials=(),
        has_template=False,
    )

    def encode(self, text, *, add_special):
        return list(text.encode())

    def decode(self, batch):
        return [bytes(ids).decode("utf-8", "replace") for ids in batch]


@pytest.fixture
def session():
    return Session()


@pytest.fixture
def loaded(session):
    capacity = EngineCapacity(max_seqs=4, max_context_tok=100, reservation=Reservation.FULL)
    identity = Identity(engine="tensorrt-llm", model="m", digest="sha256:1")
    return Loaded((), session, Text(), capacity, identity, has_priority=False, load_ms=5.0)


@pytest.fixture
def begin(monkeypatch):
    """Whether a load is to begin, in place of the thread."""
    begun = []
    monkeypatch.setattr(module.Loader, "start", lambda self, before: begun.append(before))
    monkeypatch.setattr(module.Loader, "loading", property(lambda self: bool(begun)))
    monkeypatch.setattr(module.Loader, "heard", lambda self: begun.clear())
    return begun


@pytest.fixture
def engine(make_settings, begin, tmp_path):
    return TrtLlmEngine(make_settings(), digest_cache=tmp_path / "cache.json")


@pytest.fixture
def ready(engine, loaded):
    engine.step()
    engine._mail.post(Outcome(loaded))
    report = engine.step()
    assert report.pools_changed
    assert not report.stepped
    return engine


def request(prompt="hello", **given):
    given = {"id": 1, "model": "m", "max_tokens": 10, **given}
    return EngineRequest(prompt=prompt, **given)


def test_02_a_load_begins_in_a_step_that_does_not_wait_for_it(engine, begin, loaded):
    assert engine.due
    assert engine.busy
    assert not engine.step().pools_changed
    assert begin == [None]
    assert not engine.due
    assert engine.busy
    engine._mail.post(Outcome(loaded))
    assert engine.due
    engine.step()
    assert (engine.due, engine.busy) == (False, False)
    pool = engine.pools()[0]
    assert (pool.state, pool.loads, pool.load_ms) == (PoolState.READY, 1, 5.0)
    assert pool.capacity is loaded.capacity
    assert pool.identity is loaded.identity


def test_24_a_warden_is_there_before_anything_is_started(make_settings, monkeypatch, tmp_path):
    order = []
    monkeypatch.setattr(module, "Warden", lambda: order.append("warden") or "warden")
    monkeypatch.setattr(module.Loader, "start", lambda self, before: order.append("load"))
    engine = TrtLlmEngine(make_settings(), digest_cache=tmp_path / "c")
    assert order == []
    engine.step()
    engine.step()
    assert order == ["warden", "load", "load"]


def test_06_priority_is_a_feature_where_there_is_one(engine, loaded):
    engine.step()
    with_one = Loaded(*list(vars(loaded).values())[:5], has_priority=True, load_ms=1.0)
    engine._mail.post(Outcome(with_one))
    engine.step()
    assert Feature.PRIORITY in engine.pools()[0].features


def test_a_load_that_fails_is_told_and_ends_the_host(engine):
    engine.step()
    engine._mail.post(Outcome(None, "put it there"))
    with pytest.raises(LoadFailed, match="put it there"):
        engine.step()
    assert engine.pools()[0].state is PoolState.FAILED
    assert engine.pools()[0].error == "put it there"


def test_only_the_first_outcome_of_a_load_counts(ready):
    ready._mail.post(Outcome(None, "it did not come up in time"))
    ready.step()
    assert ready.pools()[0].state is PoolState.READY


def test_a_request_goes_in(ready, session):
    assert ready.submit(request(rank=1, cache_salt="uid:1")).prompt_tok == 5
    values = {"max_tokens": 10, "n": 1, "detokenize": False, "top_k": 1}
    assert session.submitted == [(1, list(b"hello"), values, None, "uid:1", 0.5)]
    assert ready.running("m") == [1]
    assert ready.busy
    ready._mail.post(Tokens(1, [104]), Finished(1, "length", None))
    report = ready.step()
    assert report.outputs[0].chunk.text == "h"
    assert report.freed == [1]
    assert not ready.busy


def test_a_resumed_request_goes_on_behind_its_text(ready, session):
    ready.submit(request(resume_tok_ids=list(b"ab"), resume_shown_chars=1))
    assert session.submitted[0][1] == list(b"helloab")
    ready._mail.post(Tokens(1, [99]))
    assert ready.step().outputs[0].chunk.text == "bc"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"params": Params(seed=1)}, "params.seed"),
        ({"params": Params(logprobs=True)}, "params.logprobs"),
        ({"params": Params(response_format=ResponseFormat(type="text"))}, "params.response_format"),
        ({"params": Params(min_tokens=1)}, "params.min_tokens"),
        ({"suffix": "x"}, "suffix"),
        ({"prompt": ""}, "prompt"),
    ],
)
def test_what_cannot_be_is_refused_before_the_library(ready, session, given, path):
    with pytest.raises(Refusal) as refused:
        ready.submit(request(**given))
    assert refused.value.path == path
    assert session.submitted == []
    assert ready.running("m") == []


def test_11_the_context_is_kept_to(ready, session):
    with pytest.raises(Refusal) as refused:
        ready.submit(request(max_tokens=96))
    assert (refused.value.need_tok, refused.value.limit_tok) == (101, 100)
    ready.submit(request(max_tokens=500, fit_max_tokens=True))
    assert session.submitted[0][2]["max_tokens"] == 95


def test_11_a_step_is_the_limit_without_chunks(make_settings, begin, loaded, tmp_path):
    settings = make_settings(chunked_prefill=False, max_step_tok=5)
    engine = TrtLlmEngine(settings, digest_cache=tmp_path / "c")
    engine.step()
    engine._mail.post(Outcome(loaded))
    engine.step()
    engine.submit(request())
    with pytest.raises(Refusal) as refused:
        engine.submit(request(prompt="hello!"))
    assert (refused.value.code, refused.value.limit_tok) == ("too_large", 5)


def test_what_the_library_says_of_a_request(ready, session, request_error):
    for error in (request_error("the prompt"), ValueError("the prompt"), TypeError("x")):
        session.raises = error
        with pytest.raises(Refusal) as refused:
            ready.submit(request())
        assert refused.value.code == "invalid"
        assert "the prompt" not in str(refused.value)
        assert ready._inside._handles == {}
    assert not ready.due


def test_what_cannot_be_resumed_leaves_nothing_behind(ready, session, monkeypatch):
    def breaks(batch):
        raise ValueError("no such token")

    monkeypatch.setattr(ready._loaded.text, "decode", breaks)
    with pytest.raises(Refusal):
        ready.submit(request(resume_tok_ids=[1]))
    assert session.submitted == []
    assert ready._inside._handles == {}


@pytest.mark.parametrize("error", [RuntimeError("LLM is shutting down"), TimeoutError()])
def test_16_and_of_itself(ready, session, error):
    session.raises = error
    with pytest.raises(Refusal) as refused:
        ready.submit(request())
    assert refused.value.code == "unavailable"
    with pytest.raises(EngineBroken, match=type(error).__name__):
        ready.step()


def test_16_a_broken_engine_ends_the_host(ready):
    ready._mail.post(Tokens(1, [1]), Broken("CUDA"))
    with pytest.raises(EngineBroken, match="CUDA"):
        ready.step()


def test_17_an_abort_goes_on_to_the_library(ready, session):
    ready.abort(1)
    ready.submit(request())
    ready.abort(1)
    assert session.aborted == [1]


def test_counting(ready):
    assert ready.count(CountCall(call=1, model="m", prompt="abc")) == (3, True)
    with pytest.raises(Refusal):
        ready.count(CountCall(call=1, model="x", prompt="abc"))
    tools = [Tool(function=FunctionSpec(name="f"))]
    with pytest.raises(Refusal):
        ready.count(CountCall(call=1, model="m", prompt="abc", tools=tools))


def test_nothing_is_taken_before_there_is_something(engine):
    for ask in (
        lambda: engine.submit(request()),
        lambda: engine.count(CountCall(call=1, model="m", prompt="x")),
    ):
        with pytest.raises(Refusal) as refused:
            ask()
        assert refused.value.code == "unavailable"
    engine.abort(1)
    engine.look_again()
    assert engine.running("m") == []


def test_24_unloaded_and_loaded_again(ready, session, begin):
    ready.unload("m")
    assert ready.pools()[0].state is PoolState.COLD
    assert len(session.ended) == 1
    assert not ready.due
    ready.load("m")
    assert ready.due
    ready.step()
    assert begin == [None]


def test_24_what_does_not_go_takes_the_process_with_it(ready, session):
    session.ends = False
    ready.unload("m")
    with pytest.raises(EngineBroken, match="did not free its memory"):
        ready.step()


def test_24_a_load_can_only_be_stopped_with_the_process(engine):
    engine.step()
    engine.unload("m")
    assert engine.pools()[0].state is PoolState.COLD
    with pytest.raises(EngineBroken, match="while it was loaded"):
        engine.step()


def test_what_was_replaced_is_loaded_anew(ready, begin, loaded, tmp_path):
    (tmp_path / "m.safetensors").write_bytes(b"new")
    ready.look_again()
    assert ready.pools()[0].state is PoolState.LOADING
    ready.step()
    assert begin == [loaded]
    kept = Loaded(("new",), *list(vars(loaded).values())[1:])
    ready._mail.post(Outcome(kept))
    assert ready.step().pools_changed
    assert (ready.pools()[0].state, ready.pools()[0].loads) == (PoolState.READY, 1)


def test_what_cannot_be_looked_at_stays(ready, monkeypatch, capsys):
    def fails(path):
        raise OSError("gone")

    monkeypatch.setattr(digest, "weights_stamp", fails)
    ready.load("m")
    assert ready.pools()[0].state is PoolState.READY
    assert "cannot be looked at" in capsys.readouterr().err


def test_24_leaving_leaves_nothing_behind(ready, session, engine, monkeypatch):
    killed = []
    monkeypatch.setenv(module.MARK, "ours")
    monkeypatch.setattr(module, "started_by", lambda pid, mark: [f"worker of {mark}"])
    monkeypatch.setattr(module, "kill", killed.append)
    ready.close()
    assert session.ended == [module._CLOSE_S]
    assert killed == [["worker of ours"]]


def test_another_pool_is_not_there(engine):
    for ask in (engine.load, engine.unload):
        with pytest.raises(Refusal):
            ask("another")


def test_the_loader_of_its_own_is_a_thread(make_settings, tmp_path, monkeypatch):
    go = threading.Event()
    failed = SimpleNamespace(thread=None)

    def load(settings, cache, post):
        failed.thread = threading.current_thread().name
        go.wait()
        raise LoadFailed("no")

    monkeypatch.setattr("onegate.engines.host.trtllm.loader.load", load)
    engine = TrtLlmEngine(make_settings(), digest_cache=tmp_path / "c")
    assert not engine.step().pools_changed
    assert not engine.due
    go.set()
    while not engine.due:
        pass
    with pytest.raises(LoadFailed, match="no"):
        engine.step()
    assert failed.thread == "trtllm load"
