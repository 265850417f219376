import pytest
from tests.unit.engines.openai.fakes import TableLink

from onegate.clock import monotonic_ns
from onegate.config import OpenAiConfig
from onegate.engines.base import EmbedRequest, EngineMalformed, EngineRefused, EngineUnavailable
from onegate.engines.http.dialect import Leaving, Phase
from onegate.engines.openai.dialect import OpenAiDialect
from onegate.protocol.content import Message

MODELS = {"data": [{"id": "m", "owned_by": "llamacpp"}]}


def leaving(others=0, foreign=0, since_ns=None):
    since_ns = monotonic_ns() if since_ns is None else since_ns
    return Leaving(1, "m", Phase.DECODE, since_ns, others=others, foreign=foreign)


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


async def test_a_look_has_pools_and_figures():
    dialect, link = await llama(True, False)
    watched = await dialect.watch(link)
    assert [pool.model for pool in watched.pools] == ["m"]
    assert [(s.model, s.seats_used) for s in watched.snapshots] == [("m", 1)]


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
