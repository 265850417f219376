import pytest

from onegate.engines.base import Feature, PoolState, Reservation
from onegate.engines.host.trtllm.pool import honoured, known_capacity, trtllm_pool


def test_what_is_known_before_anything_is_loaded(make_settings):
    pool = trtllm_pool(make_settings())
    assert pool.state is PoolState.LOADING
    assert pool.features >= {Feature.ABORT, Feature.RESUME_EXACT, Feature.PREFIX_CACHE}
    assert not pool.features & {Feature.LOGPROBS, Feature.SCHEMA, Feature.PRIORITY}
    ignored = {"seed", "min_p", "min_tokens", "presence_penalty", "logprobs", "response_format"}
    assert not pool.params & ignored
    assert pool.capacity.kv_tok is None


def test_what_is_configured_makes_the_difference(make_settings):
    assert Feature.PREFIX_CACHE not in trtllm_pool(make_settings(prefix_cache=False)).features
    guided = make_settings(guided="xgrammar")
    assert Feature.SCHEMA in trtllm_pool(guided).features
    assert "response_format" in honoured(guided)


@pytest.mark.parametrize(
    ("policy", "reservation"),
    [("guaranteed_no_evict", Reservation.FULL), ("max_utilization", Reservation.GROW)],
)
def test_08_the_limits_are_the_ones_that_it_is_started_with(make_settings, policy, reservation):
    capacity = known_capacity(make_settings(policy=policy, kv_tok=300))
    assert capacity.reservation is reservation
    assert (capacity.max_seqs, capacity.max_step_tok, capacity.kv_tok) == (4, 128, 300)
    assert capacity.max_context_tok == 300
