"""The verb `embed`: checked, queued, computed, and given back on every way out."""

import asyncio
from typing import Any

import pytest

from onegate.config import ClassConfig
from onegate.engines.base import (
    EmbedRequest,
    EmbedResult,
    EngineBroke,
    EngineCapacity,
    EngineRefused,
    EngineTooLarge,
    EngineUnavailable,
    Feature,
    PoolInfo,
    PoolState,
    Reservation,
)
from onegate.protocol import messages as m
from onegate.protocol.content import Identity, Usage
from onegate.protocol.errors import Phase, Reason
from onegate.server.embed import plan_embed
from onegate.server.live import LiveRequest, Mute
from onegate.server.outcome import Outcome, RequestEnded
from onegate.server.sizes import PromptSizes

Box = Any  # of conftest.py

MS = 1_000_000
POOL = PoolInfo(
    model="tiny",
    state=PoolState.READY,
    capacity=EngineCapacity(
        max_seqs=1, max_context_tok=1000, reservation=Reservation.GROW, max_bytes_per_tok=10
    ),
    features=frozenset({Feature.EMBEDDINGS}),
    identity=Identity(engine="played", model="tiny", boundary="remote"),
)
LOOP = ClassConfig(
    name="loop", rank=1, max_tokens_default=50, max_tokens_max=400, timeout_ms_max=9000
)


def plan(pool: PoolInfo = POOL, asked_class: ClassConfig = LOOP, **fields: Any) -> Any:
    client = Mute(principal="uid:1", uid=1)
    live = LiveRequest(client=client, id=3, serial=77, rid="b-77", verb="embed", arrived_ns=500)
    return plan_embed(
        m.Embed(id=1, **({"input": ["x" * 30]} | fields)),
        live,
        pool=pool,
        spec_class=LOOP,
        asked_class=asked_class,
        flow="uid:1/-",
        sizes=PromptSizes(),
    )


def test_the_texts_are_what_it_is_charged_for() -> None:
    spec = plan(input=["x" * 30, "y" * 60], ticket="t")
    assert (spec.prompt_tok, spec.max_tok, spec.prompt_bytes) == (30, 1, 90)
    assert (spec.rid, spec.pool, spec.class_, spec.ticket) == (77, "tiny", "loop", "t")
    assert (spec.lease, spec.counted) == (True, True)


def test_all_of_them_are_no_more_than_one_context_at_a_time() -> None:
    assert plan(input=["x" * 3000] * 4).prompt_tok == 999


def test_its_own_timeout_goes_before_the_classes() -> None:
    assert plan().deadline_ns == 500 + (LOOP.timeout_ms or 0) * MS
    assert plan(timeout_ms=5).deadline_ns == 500 + 5 * MS
    assert plan().ttft_deadline_ns == 500 + (LOOP.ttft_timeout_ms or 0) * MS


@pytest.mark.parametrize(
    ("change", "fields", "reason", "path"),
    [
        ({"features": frozenset()}, {}, Reason.UNSUPPORTED, "model"),
        ({}, {"input": ["ok", "x" * 10_001]}, Reason.TOO_LARGE, None),
        ({}, {"timeout_ms": 9001}, Reason.INVALID, "timeout_ms"),
        ({"class": "here"}, {}, Reason.BOUNDARY_REFUSED, None),
    ],
)
def test_what_is_refused_before_it_waits(
    change: dict[str, Any], fields: dict[str, Any], reason: Reason, path: str | None
) -> None:
    from msgspec import structs

    asked_class = LOOP
    if change.pop("class", None):
        asked_class = structs.replace(LOOP, refuse_on=("boundary",))
    with pytest.raises(RequestEnded) as error:
        plan(structs.replace(POOL, **change), asked_class, **fields)
    assert (error.value.ending.reason, error.value.ending.path) == (reason, path)


# --- carried out ----------------------------------------------------------------------------------


class Embeddings:
    """What the played engine embeds: it answers when it is told to."""

    def __init__(self, box: Box) -> None:
        self.asked: list[EmbedRequest] = []
        self.cancelled = 0
        self._answer: asyncio.Future[EmbedResult] = asyncio.get_running_loop().create_future()
        box.engine.on_embed = self._embed

    async def _embed(self, request: EmbedRequest) -> EmbedResult:
        self.asked.append(request)
        try:
            return await asyncio.shield(self._answer)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def say(self, result: EmbedResult | Exception) -> None:
        if isinstance(result, Exception):
            self._answer.set_exception(result)
        else:
            self._answer.set_result(result)


RESULT = EmbedResult(vectors=[[1.0, 2.0]], usage=Usage(prompt_tok=4, output_tok=0))


async def test_it_is_computed_under_a_permit(box: Box) -> None:
    played, client = Embeddings(box), box.greeted()
    client.say(m.Embed(id=1, input=["why?"]))
    await box.quiet()
    (started,) = client.heard()
    assert isinstance(started, m.Started)
    assert box.pool.seats_used == 1
    assert [(r.model, r.input) for r in played.asked] == [("tiny", ["why?"])]
    played.say(RESULT)
    await box.quiet()
    (said,) = client.heard()
    assert (said.vectors, said.usage) == (RESULT.vectors, RESULT.usage)
    box.all_is_given_back()
    assert box.pool.seats_used == 0
    (line,) = box.ends()
    assert (line["outcome"], line["prompt_tok"]) == ("finished", "4")


async def test_it_waits_for_a_seat_like_any_other_work(box: Box) -> None:
    played, client = Embeddings(box), box.greeted()
    runs = [await box.run(client, id) for id in (1, 2)]
    client.say(m.Embed(id=3, input=["why?"]))
    await box.quiet()
    assert (box.gate.view().queued, played.asked) == (1, [])
    runs[0].finish()
    box.free(runs[0])
    await box.quiet()
    assert len(played.asked) == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (EngineUnavailable("away"), Reason.ENGINE_UNAVAILABLE),
        (EngineBroke("died"), Reason.ENGINE_UNAVAILABLE),
        (EngineRefused("no", unsupported=True), Reason.UNSUPPORTED),
        (EngineTooLarge(need_tok=9, limit_tok=5), Reason.TOO_LARGE),
    ],
)
async def test_an_engine_that_says_no(box: Box, error: Exception, reason: Reason) -> None:
    played, client = Embeddings(box), box.greeted()
    client.say(m.Embed(id=1, input=["why?"]))
    await box.quiet()
    played.say(error)
    await box.quiet()
    failed = client.heard()[-1]
    assert (failed.id, failed.reason, failed.phase) == (1, reason, Phase.GRANTED)
    box.all_is_given_back()


@pytest.mark.parametrize("way", ["cancel", "close", "deadline"])
async def test_who_does_not_wait_ends_it_in_the_engine_too(box: Box, way: str) -> None:
    played, client = Embeddings(box), box.greeted()
    client.say(m.Embed(id=1, input=["why?"], timeout_ms=1000))
    await box.quiet()
    match way:
        case "cancel":
            client.say(m.Cancel(id=1))
        case "close":
            client.hang_up()
        case "deadline":
            box.skip(2)
    await box.quiet()
    assert played.cancelled == 1
    box.all_is_given_back()
    expected = {
        "cancel": Outcome.CANCELLED,
        "close": Outcome.DISCONNECTED,
        "deadline": Outcome.ABORTED,
    }
    assert box.outcomes() == {expected[way]: 1}


async def test_a_refusal_counts_for_its_class(box: Box) -> None:
    client = box.greeted()
    client.say(m.Embed(id=1, input=["x"], class_="royal"))
    (failed,) = client.heard()
    assert (failed.reason, failed.path) == (Reason.INVALID, "class")
    assert sum(box.services.accounts.of("loop").rejected.values()) == 1
