import pytest
from tests.unit.engines.openai.fakes import TableLink

from onegate.clock import monotonic_ns
from onegate.config import OpenAiConfig, OpenAiPool
from onegate.engines.base import (
    EmbedRequest,
    EngineMalformed,
    EngineRefused,
    EngineRequest,
    EngineUnavailable,
    Feature,
    PoolState,
)
from onegate.engines.http.dialect import Leaving, Phase
from onegate.engines.http.link import HttpStatus
from onegate.engines.openai.dialect import OpenAiDialect
from onegate.engines.openai.flavours import VLLM
from onegate.protocol.content import Message, Params

MODELS = {"data": [{"id": "m", "owned_by": "llamacpp"}]}


def leaving(others=0, foreign=0, since_ns=None, **given):
    since_ns = monotonic_ns() if since_ns is None else since_ns
    given = {"id": 1, "model": "m", "phase": Phase.DECODE} | given
    return Leaving(since_ns=since_ns, others=others, foreign=foreign, **given)


async def llama(*busy):
    link = TableLink(
        v1__models=MODELS,
        props={"total_slots": 4},
        slots=[{"is_processing": found} for found in busy],
        tokenize={"tokens": [1, 2, 3]},
    )
    link.answers["/apply-template"] = {"prompt": "rendered"}
    dialect = OpenAiDialect(OpenAiConfig(), boundary="local")
    await dialect.probe(link)
    return dialect, link


@pytest.mark.parametrize(
    ("busy", "others", "foreign", "gone"),
    [
        ((False,), 0, 0, True),
        ((True,), 0, 0, False),
        ((True, True), 2, 0, True),
        ((True, True), 1, 0, False),
        ((True, True), 0, 2, True),
    ],
)
async def test_a_seat_is_free_when_no_more_run_than_are_others(busy, others, foreign, gone):
    dialect, link = await llama(*busy)
    assert await dialect.confirm(link, leaving(others, foreign)) is gone


async def test_where_nothing_is_shown_time_has_to_do():
    dialect = OpenAiDialect(OpenAiConfig(), boundary="local")
    link = TableLink(v1__models={"data": [{"id": "m"}]})
    assert not await dialect.confirm(link, leaving())
    assert await dialect.confirm(link, leaving(since_ns=monotonic_ns() - 3 * 10**9))


async def test_what_is_surely_gone_is_not_held_up_by_somebody_else():
    dialect, link = await llama(True)
    long_ago_ns = monotonic_ns() - 6 * 10**9
    assert not await dialect.confirm(link, leaving(since_ns=long_ago_ns, phase=Phase.PREFILL))
    assert await dialect.confirm(link, leaving(since_ns=long_ago_ns))
    dialect._flavour = VLLM
    link.answers["/metrics"] = 'vllm:num_requests_running{model_name="m"} 1.0\n'
    dialect._counted_ns = 0
    assert not await dialect.confirm(link, leaving(phase=Phase.PREFILL))
    assert await dialect.confirm(link, leaving(since_ns=long_ago_ns, phase=Phase.PREFILL))


async def test_a_task_that_came_later_is_not_the_one_that_left():
    dialect, link = await llama()

    async def confirm(*tasks, **given):
        link.answers["/slots"] = [{"is_processing": True, "id_task": task} for task in tasks]
        dialect._counted_ns = 0
        return await dialect.confirm(link, leaving(phase=Phase.PREFILL, **given))

    assert not await confirm(5)
    assert not await confirm(5, 6)
    assert await confirm(6)
    assert dialect._suspects == {}
    # One of ours that came behind it makes up for nothing.
    assert not await confirm(5, 7, id=2)
    assert not await confirm(5, 9, 10, id=2, others=1)


async def test_older_ones_of_ours_are_no_suspects():
    dialect, link = await llama()
    link.answers["/slots"] = [{"is_processing": True, "id_task": task} for task in (3, 4, 9)]
    assert not await dialect.confirm(link, leaving(others=1, older=1, phase=Phase.PREFILL))
    link.answers["/slots"] = [{"is_processing": True, "id_task": task} for task in (4, 10, 11)]
    dialect._counted_ns = 0
    assert await dialect.confirm(link, leaving(others=1, older=1, phase=Phase.PREFILL))


async def test_a_server_that_was_too_busy_is_asked_again_for_its_priority(monkeypatch):
    now = [10**12]
    monkeypatch.setattr("onegate.engines.openai.dialect.monotonic_ns", lambda: now[0])
    link = TableLink(v1__models={"data": [{"id": "m", "owned_by": "vllm"}]})
    link.answers["/v1/completions"] = HttpStatus(503, b"", None)
    dialect = OpenAiDialect(OpenAiConfig(), boundary="local")
    (pool,) = await dialect.probe(link)
    assert Feature.PRIORITY not in pool.features
    link.answers["/v1/completions"] = {}
    for wait_s, expected in ((1, False), (60, True)):
        now[0] += wait_s * 10**9
        (pool,) = (await dialect.watch(link)).pools
        assert (Feature.PRIORITY in pool.features) is expected
    n_asked = len(link.asked)
    now[0] += 100 * 10**9
    await dialect.watch(link)
    assert len(link.asked) == n_asked


async def test_a_model_that_is_named_and_not_there_says_what_is():
    config = OpenAiConfig(pools=(OpenAiPool(model="x"),))
    dialect = OpenAiDialect(config, boundary="local")
    link = TableLink(v1__models={"data": [{"id": "m"}]})
    for pools in (await dialect.probe(link), (await dialect.watch(link)).pools):
        (pool,) = pools
        assert (pool.model, pool.state) == ("x", PoolState.FAILED)
        assert "it has m" in pool.error


async def test_a_vllm_may_be_asked_often_and_a_llama_server_may_not():
    seldom, _ = await llama()
    often = OpenAiDialect(OpenAiConfig(), boundary="local")
    assert often.confirm_every_s == seldom.confirm_every_s
    link = TableLink(v1__models={"data": [{"id": "m", "owned_by": "vllm"}]}, v1__completions={})
    await often.probe(link)
    assert often.confirm_every_s < 1.0 < seldom.confirm_every_s


async def test_logprobs_are_for_those_who_asked():
    dialect, link = await llama()
    (pool,) = await dialect.probe(link)
    for params, expected in (
        (Params(), None),
        (Params(logprobs=True), 0),
        (Params(logprobs=True, top_logprobs=3), 3),
    ):
        request = EngineRequest(id=1, model="m", max_tokens=1, prompt="x", params=params)
        assert dialect.decoder(request, pool)._top_logprobs == expected


async def test_a_look_has_pools_and_figures():
    dialect, link = await llama(True, False)
    watched = await dialect.watch(link)
    assert [pool.model for pool in watched.pools] == ["m"]
    assert [(s.model, s.seats_used) for s in watched.snapshots] == [("m", 1)]


async def test_what_is_not_on_the_gpu_is_told_once_and_once_that_it_is_over():
    dialect = OpenAiDialect(OpenAiConfig(), boundary="local")
    link = TableLink(v1__models={"data": [{"id": "m", "owned_by": "vllm"}]}, metrics="")
    told = []
    for said in ("4.0", "4.0", "0.0", "0.0"):
        link.answers["/metrics"] = f'vllm:cache_config_info{{cpu_offload_gb="{said}"}} 1.0\n'
        told.append([(n.code, n.model, n.detail) for n in (await dialect.watch(link)).notices])
    ((first,), again, (over,), still) = told
    assert first[:2] == ("offload", "m")
    assert "4 GiB" in first[2]
    assert (again, over, still) == ([], ("offload", "m", None), [])


async def test_counting_renders_first_unless_it_is_raw():
    dialect, link = await llama()
    messages = [Message(role="user", content="x")]
    for given in ({"prompt": "x", "raw": False, "messages": None}, {"prompt": None, "raw": False}):
        given = {"messages": messages} | given
        assert (await dialect.count(link, "m", tools=None, **given)).n_tok == 3
        assert link.asked[-1][1]["content"] == "rendered"
    await dialect.count(link, "m", prompt="x", raw=True, messages=None, tools=None)
    assert link.asked[-1][1]["content"] == "x"
    plain = OpenAiDialect(OpenAiConfig(), boundary="local")
    with pytest.raises(EngineRefused):
        await plain.count(link, "m", prompt="x", raw=True, messages=None, tools=None)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"index": 0, "embedding": [1.0]}],
        [{"index": 5, "embedding": [1.0]}, {"index": 0, "embedding": [1.0]}],
        [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0]}] * 50,
    ],
)
async def test_vectors_that_are_not_those_asked_for(rows):
    dialect = OpenAiDialect(OpenAiConfig(), boundary="local")
    link = TableLink(v1__embeddings={"data": rows})
    with pytest.raises(EngineMalformed):
        await dialect.embed(link, EmbedRequest(id=1, model="m", input=["a", "b"]))


async def test_loading_is_the_servers_own_affair():
    dialect = OpenAiDialect(OpenAiConfig(), boundary="local")
    for question in (dialect.load, dialect.unload):
        with pytest.raises(EngineUnavailable):
            await question(TableLink(), "m")
