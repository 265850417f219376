import re

import pytest

from onegate.engines.base import PoolState, Reservation
from onegate.engines.host import directives, scripted
from onegate.engines.host.engine import Refusal
from onegate.engines.host.scripted import ScriptedEngine
from onegate.engines.host.settings import ScriptedPool, ScriptedSettings
from onegate.engines.host.wire import CountCall
from onegate.protocol.content import Message, Params

MS = 1_000_000


class Time:
    def __init__(self):
        self.ns = 0

    def now_ns(self):
        return self.ns

    def sleep(self, seconds):
        self.ns += int(seconds * 1e9)


def pool(model, **given):
    return ScriptedPool(
        **{
            "model": model,
            "max_seqs": 4,
            "kv_tok": 1000,
            "context_tok": 100,
            "max_step_tok": 256,
            "reservation": Reservation.GROW,
            "switch_cost_ms": 50.0,
            "a_ms": 1.0,
            "b_ms_per_prefill_tok": 0.0,
            "c_ms_per_seq": 0.0,
            **given,
        }
    )


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def engine(clock):
    return start(clock, pool("red"), pool("blue"))


def start(clock, *pools, loadable=1):
    settings = ScriptedSettings(pools=list(pools), loadable=loadable)
    return ScriptedEngine(settings, hang_up=lambda: None, now_ns=clock.now_ns, sleep=clock.sleep)


def settle(engine):
    """Step until nothing loads any more."""
    while PoolState.LOADING in states(engine).values():
        engine.step()


def states(engine):
    return {pool.model: pool.state for pool in engine.pools()}


def refusal(call, *arguments):
    with pytest.raises(Refusal) as refused:
        call(*arguments)
    return refused.value


def test_a_load_takes_its_time(engine, clock):
    assert states(engine) == {"red": "loading", "blue": "cold"}
    assert engine.busy
    while not (report := engine.step()).pools_changed:
        assert not report.stepped
    assert clock.ns >= 50 * MS
    assert states(engine)["red"] is PoolState.READY
    assert not engine.busy


def test_loading_another_pool_puts_the_idle_one_out(engine):
    settle(engine)
    engine.load("blue")
    assert states(engine) == {"red": "cold", "blue": "loading"}
    settle(engine)
    engine.load("blue")
    assert states(engine)["blue"] is PoolState.READY
    assert [pool.loads for pool in engine.pools()] == [1, 1]


def test_a_pool_that_loads_or_is_in_use_stays(engine, make_request):
    assert refusal(engine.load, "blue").code == "unavailable"
    settle(engine)
    engine.submit(make_request("x", model="red", max_tokens=5))
    assert "in use" in str(refusal(engine.load, "blue"))
    assert refusal(engine.load, "green").path == "model"


def test_the_pool_that_was_used_longest_ago_goes(clock, make_request):
    engine = start(clock, pool("a"), pool("b"), pool("c"), loadable=2)
    settle(engine)
    for id, model in enumerate(("a", "b", "a")):
        clock.ns += MS
        engine.submit(make_request("[[tokens:1]]", id=id, model=model, max_tokens=5))
        while engine.busy:
            engine.step()
    engine.load("c")
    assert states(engine) == {"a": "ready", "b": "cold", "c": "loading"}


def test_pools_take_turns(clock, make_request):
    engine = start(clock, pool("a"), pool("b"), loadable=2)
    settle(engine)
    for id, model in enumerate(("a", "b")):
        engine.submit(make_request("x", id=id, model=model, max_tokens=50))
    said = [engine.step().outputs[0].id for _ in range(4)]
    assert sorted(said[:2]) == sorted(said[2:]) == [0, 1]
    engine.abort(0)
    engine.abort(99)
    freed = [id for _ in range(2) for id in engine.step().freed]
    assert freed == [0]
    assert (engine.running("a"), engine.running("b"), engine.running("c")) == ([], [1], [])


def test_prompts_are_counted_by_bytes(engine, make_request):
    settle(engine)
    assert engine.submit(make_request("é" * 10, model="red", max_tokens=5)).prompt_tok == 5
    assert engine.count(CountCall(call=1, model="red", prompt="")) == (1, True)
    messages = [Message(role="user", content="abcd"), Message(role="user", content="efg")]
    assert engine.count(CountCall(call=1, model="blue", messages=messages)) == (2, True)
    assert refusal(engine.count, CountCall(call=1, model="green", prompt="")).path == "model"


def test_what_does_not_fit_or_cannot_be_honoured(engine, make_request):
    settle(engine)
    error = refusal(engine.submit, make_request("x" * 40, model="red", max_tokens=91))
    assert (error.need_tok, error.limit_tok) == (101, 100)
    accepted = make_request("x" * 40, model="red", max_tokens=91, fit_max_tokens=True)
    assert engine.submit(accepted).prompt_tok == 10
    cached = make_request("x" * 27 + "[[cached:4]]", model="red", max_tokens=5)
    assert engine.submit(cached).cached_tok == 4
    for given, path in (
        ({"params": Params(logprobs=True)}, "params.logprobs"),
        ({"params": Params(min_tokens=9)}, "params.min_tokens"),
        ({"suffix": "x"}, "suffix"),
    ):
        request = make_request("x", id=2, model="red", max_tokens=5, **given)
        assert refusal(engine.submit, request).path == path
    empty = make_request(prompt_tok_ids=[], model="red")
    assert refusal(engine.submit, empty).path == "prompt_token_ids"


def test_a_refusal_on_demand(engine, make_request):
    settle(engine)
    error = refusal(engine.submit, make_request("[[refuse:no]]", model="red", max_tokens=1))
    assert (error.code, str(error)) == ("invalid", "no")


def test_the_table_lists_every_directive():
    listed = set(re.findall(r"\[\[([a-z0-9-]+)", scripted.__doc__))
    known = {*directives._NUMBERS, *directives._TEXTS, *directives._FLAGS}
    assert listed == known
