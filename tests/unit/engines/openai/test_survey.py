import pytest
from tests.unit.engines.openai.fakes import TableLink

from onegate.config import OpenAiConfig, OpenAiPool
from onegate.engines.base import EngineBroke, EngineError, EngineUnavailable, Feature, PoolState
from onegate.engines.http.link import HttpStatus
from onegate.engines.openai.survey import (
    expected_pools,
    missing_pools,
    offload_of,
    pools_of,
    survey,
)

LLAMA_MODELS = {"data": [{"id": "m", "owned_by": "llamacpp", "meta": {"n_ctx": 2048}}]}


async def pools(link, config=None):
    config = config or OpenAiConfig()
    return pools_of(await survey(link, config), config, boundary="unknown", priority=False)


async def test_a_llama_server():
    props = {
        "total_slots": 3,
        "modalities": {"vision": True},
        "chat_template_caps": {"supports_tools": True, "supports_tool_calls": True},
        "chat_template": "if enable_thinking",
    }
    (pool,) = await pools(TableLink(v1__models=LLAMA_MODELS, props=props))
    assert pool.capacity.max_seqs == 3
    assert pool.capacity.max_context_tok == 2048
    assert {Feature.TOOLS, Feature.IMAGES, Feature.THINKING} <= pool.features


async def test_a_vllm():
    models = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 512}]}
    link = TableLink(
        v1__models=models,
        version={"version": "1.2"},
        metrics='vllm:cache_config_info{num_gpu_blocks="10",block_size="16"} 1.0\n',
    )
    config = OpenAiConfig(max_seqs=9, context_tok=4000)
    (pool,) = await pools(link, config)
    assert (pool.capacity.max_seqs, pool.capacity.kv_tok) == (9, 160)
    assert pool.capacity.max_context_tok == 512
    assert pool.identity.engine_version == "1.2"


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        ('cpu_offload_gb="4.0"', "4 GiB of it"),
        ('cpu_offload_gb="0.0"', None),
        ('cpu_offload_gb="nan"', None),
        ('cpu_offload_gb="1e999"', None),
        ('cpu_offload_gb="None"', None),
        ('block_size="16"', None),
    ],
)
async def test_what_a_vllm_keeps_off_the_gpu(said, detail):
    link = TableLink(
        v1__models={"data": [{"id": "m", "owned_by": "vllm"}]},
        metrics=f"vllm:cache_config_info{{{said}}} 1.0\n",
    )
    found = offload_of(await survey(link, OpenAiConfig()))
    assert found is None if detail is None else detail in found


async def test_what_the_owner_says_of_a_model():
    said = OpenAiPool(model="b", max_seqs=2, context_tok=64, images=True, embeddings=True)
    models = {"data": [{"id": "a"}, {"id": "b"}]}
    (pool,) = await pools(TableLink(v1__models=models), OpenAiConfig(pools=(said,)))
    assert pool.model == "b"
    assert (pool.capacity.max_seqs, pool.capacity.max_context_tok) == (2, 64)
    assert {Feature.IMAGES, Feature.EMBEDDINGS} <= pool.features
    (expected,) = expected_pools(OpenAiConfig(pools=(said,)))
    assert expected.state is PoolState.LOADING
    assert expected.capacity.max_seqs == 2
    # A request that comes before the server is there is not refused for what every server takes.
    assert "max_tokens" in expected.params
    assert {Feature.IMAGES, Feature.EMBEDDINGS, Feature.SCHEMA} <= expected.features


async def test_a_model_that_the_server_does_not_have():
    config = OpenAiConfig(pools=(OpenAiPool(model="b"), OpenAiPool(model="x")))
    models = {"data": [{"id": f"{name}"} for name in "abcdefghij"]}
    (gone,) = missing_pools(await survey(TableLink(v1__models=models), config), config)
    assert (gone.model, gone.state) == ("x", PoolState.FAILED)
    assert "no model x (it has a, b, c, d, e, f, g, h and others): correct" in gone.error


async def test_two_models_have_two_digests():
    def listing(**meta):
        return {"data": [{"id": "m", "owned_by": "llamacpp", "meta": meta}]}

    one, two, again = [
        (await pools(TableLink(v1__models=listing(n_params=n))))[0].identity.digest
        for n in (1, 2, 1)
    ]
    assert one == again != two


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (HttpStatus(503, b"", None), EngineUnavailable),
        (HttpStatus(401, b"", None), EngineBroke),
        (HttpStatus(500, b"", None), EngineBroke),
        ({"data": []}, EngineBroke),
        ({"data": [{"id": str(i)} for i in range(65)]}, EngineBroke),
        ("<html>", EngineError),
    ],
)
async def test_a_listing_that_is_none(answer, kind):
    with pytest.raises(kind):
        await survey(TableLink(v1__models=answer), OpenAiConfig())


async def test_a_server_that_cannot_list_serves_what_the_owner_names():
    config = OpenAiConfig(pools=(OpenAiPool(model="m"),))
    (pool,) = await pools(TableLink(v1__models=HttpStatus(500, b"", None)), config)
    assert pool.model == "m"


async def test_names_that_no_client_could_say_are_left_out_and_none_is_there_twice():
    names = ["m", "", "a\nb", "x" * 257, "\x1b[2J", "m", "n"]
    models = {"data": [{"id": name} for name in names]}
    assert [pool.model for pool in await pools(TableLink(v1__models=models))] == ["m", "n"]


@pytest.mark.parametrize("blocks", ["²", "", "-1", "1" * 4000, "1e3", "0"])
async def test_a_size_of_the_cache_that_is_no_number(blocks):
    models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    metrics = f'vllm:cache_config_info{{num_gpu_blocks="{blocks}",block_size="16"}} 1.0\n'
    (pool,) = await pools(TableLink(v1__models=models, metrics=metrics))
    assert pool.capacity.kv_tok is None


async def test_a_version_is_one_printable_line():
    models = {"data": [{"id": "m", "owned_by": "vllm"}]}
    link = TableLink(v1__models=models, version={"version": "1.0\x1b[2J\nx"})
    (pool,) = await pools(link)
    assert pool.identity.engine_version.isprintable()
