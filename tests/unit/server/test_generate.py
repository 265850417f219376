"""The verbs that become requests: generate, lease and count."""

import asyncio
from typing import Any

import msgspec
import pytest

from onegate.engines.base import (
    EngineBroke,
    EngineRefused,
    EngineUnavailable,
    PoolState,
    TokenCount,
)
from onegate.protocol import messages as m
from onegate.protocol.content import FunctionSpec, ImagePart, Message, Params, Tool, Usage
from onegate.protocol.errors import Phase, Reason
from onegate.server import generate as generate_module
from onegate.server import progress as progress_module
from onegate.server.gate import Permit
from onegate.server.outcome import Outcome

Box = Any  # of conftest.py


def kinds(answers: list[Any]) -> list[str]:
    return [type(answer).__name__ for answer in answers]


# --- generate -------------------------------------------------------------------------------------


async def test_the_model_of_the_hello_is_meant_where_none_is_named(make_box: Any) -> None:
    box = make_box()
    (tiny,) = box.engine.pools()
    for model in ("first", "tiny"):
        box.engine.infos = {}
        box.engine.infos["first"] = msgspec.structs.replace(tiny, model="first")
        box.engine.infos["tiny"] = tiny
        box.change(model)
    client = box.connect()
    client.hello(model="tiny")
    assert (await box.run(client, 1)).request.model == "tiny"
    assert (await box.run(client, 2, model="first")).request.model == "first"
    assert (await box.run(box.greeted(), 3)).request.model == "first"


async def test_a_wrong_model_is_an_answer(box: Box) -> None:
    client = box.greeted()
    await box.ask(client, model="huge")
    (failed,) = client.heard()
    assert (failed.reason, failed.models, failed.rid) == (Reason.WRONG_MODEL, ["tiny"], "b-1")
    assert box.outcomes() == {Outcome.REJECTED: 1}
    assert [line["reason"] for line in box.ends()] == ["wrong_model"]


async def test_what_a_request_holds_is_charged_while_it_lives(box: Box) -> None:
    client = box.greeted()
    image = ImagePart(data=b"x" * 50_000, media_type="image/png")
    run = await box.run(
        client, prompt=None, messages=[Message(role="user", content=[image])], stream=False
    )
    assert box.services.inbound.total_bytes > 50_000
    run.finish()
    await box.quiet()
    assert box.services.inbound.total_bytes == 0


async def test_too_many_bytes_are_refused(make_box: Any) -> None:
    box = make_box("[gate]\ninbound_bytes_per_principal = 8388608\n")
    client = box.greeted()
    image = ImagePart(data=b"x" * 5_000_000, media_type="image/png")
    messages = [Message(role="user", content=[image])]
    await box.run(client, 1, prompt=None, messages=messages)
    client.heard()
    await box.ask(client, 2, prompt=None, messages=messages)
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (2, Reason.BYTES_FULL, Phase.ARRIVAL)
    assert failed.limit == 8388608
    await box.run(box.greeted(uid=2), 1, prompt=None, messages=messages)


async def test_progress_is_for_those_who_want_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PERIOD_S", 0.0)
    client = box.greeted()
    await box.run(client, 1)
    await box.run(client, 2)
    client.heard()
    await box.ask(client, 3)
    await box.ask(client, 4, progress=True)
    queued = client.heard()
    assert len(queued) > 1
    assert {(type(x), x.id) for x in queued} == {(m.Queued, 4)}
    assert (queued[0].position, queued[0].ahead, queued[0].rid) == (2, {"loop": 1}, "b-4")


async def test_a_prompt_that_may_not_fit_is_counted_first(box: Box) -> None:
    client = box.greeted()
    tools = [Tool(function=FunctionSpec(name="add"))]
    messages = [Message(role="user", content="x" * 5000)]
    run = await box.run(client, prompt=None, messages=messages, tools=tools)
    assert box.engine.counts == [
        {"model": "tiny", "prompt": None, "messages": messages, "tools": tools}
    ]
    assert run.request.max_tokens == 4096 - 7
    usual_tok = box.services.class_config("loop").max_tokens_default
    assert box.gate.view().pools[0].kv_tok_used == 7 + usual_tok
    (live,) = box.services.live
    assert live.prompt_tok == 7


async def test_a_count_that_does_not_fit(box: Box) -> None:
    async def count(**asked: Any) -> TokenCount:
        return TokenCount(n_tok=4096, exact=True)

    box.engine.on_count = count
    client = box.greeted()
    await box.ask(client, prompt="x" * 5000)
    (failed,) = client.heard()
    assert (failed.reason, failed.used, failed.limit) == (Reason.TOO_LARGE, 4097, 4096)
    assert failed.phase is Phase.ARRIVAL
    box.all_is_given_back()


@pytest.mark.parametrize("error", [EngineUnavailable("away"), EngineBroke("died")])
async def test_an_engine_that_cannot_count_now_finds_out_later(box: Box, error: Exception) -> None:
    async def count(**asked: Any) -> TokenCount:
        raise error

    box.engine.on_count = count
    await box.run(box.greeted(), prompt="x" * 5000)


async def test_an_engine_that_does_not_answer_keeps_nobody_waiting(
    box: Box, monkeypatch: pytest.MonkeyPatch, timeout_factor: float
) -> None:
    monkeypatch.setattr(generate_module, "COUNT_S", 0.0)

    async def count(**asked: Any) -> TokenCount:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    box.engine.on_count = count
    await box.run(box.greeted(), prompt="x" * 5000)
    client = box.greeted()
    client.say(m.CountTokens(id=5, prompt="hm"))
    await box.quiet()
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (5, Reason.ENGINE_UNAVAILABLE)
    assert len(box.services.counting) == 0


async def test_a_refusal_of_the_count_is_the_answer(box: Box) -> None:
    async def count(**asked: Any) -> TokenCount:
        raise EngineRefused("no such role", path="messages[0].role")

    box.engine.on_count = count
    client = box.greeted()
    await box.ask(client, prompt="x" * 5000)
    (failed,) = client.heard()
    assert (failed.reason, failed.path) == (Reason.INVALID, "messages[0].role")


async def test_cancelled_while_it_is_counted(box: Box) -> None:
    async def count(**asked: Any) -> TokenCount:
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    box.engine.on_count = count
    client = box.greeted()
    await box.ask(client, prompt="x" * 5000)
    client.say(m.Cancel(id=1))
    await box.quiet()
    ack, failed = client.heard()
    assert (ack.applied, failed.reason, failed.phase) == (True, Reason.CANCELLED, Phase.ARRIVAL)
    box.all_is_given_back()
    assert len(box.services.counting) == 0


# --- count ----------------------------------------------------------------------------------------


async def test_counting(box: Box) -> None:
    client = box.greeted()
    messages = [Message(role="user", content="why?")]
    tools = [Tool(function=FunctionSpec(name="add"))]
    client.say(m.CountTokens(id=1, messages=messages, tools=tools))
    await box.quiet()
    (counted,) = client.heard()
    assert counted == m.Counted(id=1, n_tok=7, exact=True)
    asked = {"model": "tiny", "prompt": None, "messages": messages, "tools": tools}
    assert box.engine.counts == [asked]
    box.all_is_given_back()
    assert box.ends() == []
    assert box.outcomes() == {}


async def test_counting_holds_memory_too(make_box: Any) -> None:
    box = make_box("[gate]\ninbound_bytes_per_principal = 8388608\n")
    go = asyncio.Event()

    async def count(**asked: Any) -> TokenCount:
        await go.wait()
        return TokenCount(n_tok=1, exact=False)

    box.engine.on_count = count
    client = box.greeted()
    client.say(*(m.CountTokens(id=id, prompt="x" * 3_000_000) for id in (1, 2, 3)))
    await box.quiet()
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (3, Reason.BYTES_FULL)
    go.set()
    await box.quiet()
    assert [(x.id, x.exact) for x in client.heard()] == [(1, False), (2, False)]
    box.all_is_given_back()


async def test_few_are_counted_at_a_time_and_one_for_somebody_else(box: Box) -> None:
    go = asyncio.Event()

    async def count(**asked: Any) -> TokenCount:
        await go.wait()
        return TokenCount(n_tok=1, exact=True)

    box.engine.on_count = count
    client, same, other = box.greeted(), box.greeted(), box.greeted(uid=1001)
    client.say(*(m.CountTokens(id=id, prompt="hm") for id in range(10)))
    same.say(m.CountTokens(id=1, prompt="mine too"))
    await box.ask(same, 2, prompt="x" * 5000)
    await box.quiet()
    assert len(box.engine.counts) == 3
    other.say(m.CountTokens(id=1, prompt="another's"))
    await box.quiet()
    assert len(box.engine.counts) == 4
    assert box.engine.counts[-1]["prompt"] == "another's"
    await box.ask(other, 2, prompt="y" * 5000)
    assert len(box.engine.counts) == 4
    go.set()
    await box.quiet()
    assert len(client.heard()) == 10
    # Of those that waited the first of each came first.
    assert [x["prompt"][0] for x in box.engine.counts[4:6]] == ["h", "y"]
    assert len(box.engine.counts) == 14
    assert len(box.services.counting) == 0


async def test_an_id_in_use_ends_a_count(box: Box) -> None:
    go = asyncio.Event()

    async def count(**asked: Any) -> TokenCount:
        await go.wait()
        return TokenCount(n_tok=1, exact=True)

    box.engine.on_count = count
    client = box.greeted()
    client.say(m.CountTokens(id=1, prompt="hm"))
    await box.quiet()
    go.set()
    client.say_anyway(m.Whoami(id=1))
    await box.quiet()
    assert kinds(client.heard()) == ["Failed"]
    box.all_is_given_back()


# --- lease ----------------------------------------------------------------------------------------


async def leased(box: Box, client: Any, id: int = 1, **fields: Any) -> None:
    client.say(m.Lease(id=id, **({"prompt_tok": 10, "max_tok": 20} | fields)))
    await box.quiet()


async def test_a_lease_is_settled(box: Box) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client)
    (started,) = client.heard()
    assert (started.id, started.rid) == (1, "b-1")
    assert box.pool.seats_used == 1
    assert len(box.engine.runs) == 0
    client.say(m.Settle(id=1, usage=Usage(prompt_tok=11, output_tok=5)))
    await box.quiet()
    (ack,) = client.heard()
    assert (ack.id, ack.verb, ack.applied) == (1, "settle", True)
    box.all_is_given_back()
    assert box.pool.seats_used == 0
    (line,) = box.ends()
    assert (line["outcome"], line["prompt_tok"], line["out_tok"]) == ("finished", "11", "5")
    assert box.services.accounts.of("loop").admitted == 1


async def test_a_lease_counts_for_what_it_was_at_most(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In shares and floors; what it says is in the table of use."""
    told: list[int] = []
    monkeypatch.setattr(Permit, "produced", lambda _, tok: told.append(tok))
    client = box.greeted(uid=2000)
    for id, said_tok in ((1, 5), (2, 2**32 - 1)):
        await leased(box, client, id, max_tok=9)
        client.say(m.Settle(id=id, usage=Usage(prompt_tok=7, output_tok=said_tok)))
        await box.quiet()
    assert told == [5, 9]
    (row,) = box.services.usage.rows()
    assert row.output_tok == 5 + 2**32 - 1


async def test_a_lease_without_figures_is_settled_too(box: Box) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client)
    client.say(m.Settle(id=1))
    await box.quiet()
    assert isinstance(client.heard()[-1], m.Ack)
    assert [line["prompt_tok"] for line in box.ends()] == ["10"]


async def test_settling_twice(box: Box) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client)
    client.heard()
    client.say(m.Settle(id=1), m.Settle(id=1))
    await box.quiet()
    assert sorted(ack.applied for ack in client.heard()) == [False, True]
    assert box.outcomes() == {Outcome.FINISHED: 1}
    client.say(m.Settle(id=1))
    assert [ack.applied for ack in client.heard()] == [False]


async def test_settling_what_still_waits(box: Box) -> None:
    client = box.greeted(uid=2000)
    for id in (1, 2, 3):
        await leased(box, client, id)
    client.heard()
    client.say(m.Settle(id=3))
    assert [ack.applied for ack in client.heard()] == [False]
    assert box.gate.view().queued == 1


@pytest.mark.parametrize("way", ["cancel", "close", "safety"])
async def test_a_lease_ends_otherwise(box: Box, way: str) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client)
    client.heard()
    match way:
        case "cancel":
            client.say(m.Cancel(id=1))
        case "close":
            client.hang_up()
        case "safety":
            box.skip(2700)
    await box.quiet()
    box.all_is_given_back()
    assert box.pool.seats_used == 0
    assert client.session.leases == {}
    expected = {
        "cancel": Outcome.CANCELLED,
        "close": Outcome.DISCONNECTED,
        "safety": Outcome.ABORTED,
    }
    assert box.outcomes() == {expected[way]: 1}
    if way == "safety":
        (failed,) = client.heard()
        assert (failed.reason, failed.phase) == (Reason.ENGINE_TIMEOUT, Phase.GRANTED)


async def test_settled_and_superseded_in_one_piece(box: Box) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client)
    client.heard()
    client.say(m.Settle(id=1))
    client.say_anyway(m.Lease(id=1, prompt_tok=1, max_tok=1))
    await box.quiet()
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (1, Reason.INVALID)
    box.all_is_given_back()
    await leased(box, client)
    assert kinds(client.heard()) == ["Started"]
    assert list(client.session.leases) == [1]


async def test_a_lease_is_not_generated_and_survives_the_engine(box: Box) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client)
    box.lose()
    box.change(state=PoolState.READY)
    client.heard()
    client.say(m.Settle(id=1))
    await box.quiet()
    assert [ack.applied for ack in client.heard()] == [True]
    box.all_is_given_back()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"model": "huge"}, Reason.WRONG_MODEL),
        ({"prompt_tok": 5000}, Reason.TOO_LARGE),
        ({"max_tok": 20_000}, Reason.INVALID),
    ],
)
async def test_a_lease_can_be_refused(box: Box, fields: dict[str, Any], reason: Reason) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client, **fields)
    (failed,) = client.heard()
    assert (failed.reason, failed.phase) == (reason, Phase.ARRIVAL)
    assert failed.rid == "b-1"


async def test_a_lease_that_waits_may_be_drained_away(box: Box) -> None:
    client = box.greeted(uid=2000)
    for id in (1, 2, 3):
        await leased(box, client, id)
    client.heard()
    box.gate.drain()
    await box.quiet()
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (3, Reason.SHUTTING_DOWN, Phase.QUEUED)


async def test_a_lease_hears_how_long_it_waited(box: Box) -> None:
    client = box.greeted(uid=2000)
    for id in (1, 2, 3):
        await leased(box, client, id)
    box.skip(5)
    client.heard()
    client.say(m.Settle(id=1))
    await box.quiet()
    (started,) = [x for x in client.heard() if isinstance(x, m.Started)]
    assert (started.id, started.queue_ms >= 5000) == (3, True)


async def test_a_lease_and_a_count_mean_the_model_of_the_hello(box: Box) -> None:
    tiny = box.engine.infos.pop("tiny")
    for model in ("first", "second"):
        box.engine.infos[model] = msgspec.structs.replace(tiny, model=model)
        box.change(model)
    client = box.connect(uid=2000)
    client.hello(model="second")
    await leased(box, client)
    await leased(box, client, 2, model="first")
    used = {pool.model: pool.seats_used for pool in box.gate.view().pools}
    assert (used["first"], used["second"]) == (1, 1)
    client.say(m.CountTokens(id=7, prompt="hm"), m.CountTokens(id=8, prompt="hm", model="first"))
    await box.quiet()
    assert [asked["model"] for asked in box.engine.counts] == ["second", "first"]


async def test_a_lease_hears_where_it_stands(box: Box) -> None:
    client = box.greeted(uid=2000)
    await leased(box, client, 1)
    await leased(box, client, 2)
    client.heard()
    await leased(box, client, 3, progress=True)
    (queued,) = client.heard()
    assert (queued.id, queued.position) == (3, 1)


async def test_an_answer_that_fits_into_no_frame(make_box: Any) -> None:
    box = make_box("[gate]\nmax_frame_bytes = 4096\n")
    client = box.greeted()
    run = await box.run(client, stream=False, params=Params(max_tokens=9))
    for _ in range(3):
        run.chunk("x" * 2000)
    run.finish()
    await box.quiet()
    *_, failed = client.heard()
    assert (failed.reason, failed.phase) == (Reason.TOO_LARGE, Phase.DECODE)
    assert "stream" in failed.message
    box.all_is_given_back()
