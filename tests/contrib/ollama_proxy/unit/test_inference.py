"""Requests carried through the gate: in whose class, made to fit, given back on every way out."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from onegate.client.errors import RequestError, error_of
from onegate.client.reply import Reply
from onegate.protocol.content import FinishReason, Identity, Usage
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.messages import (
    Chunk,
    ClassLimits,
    Embeddings,
    Failed,
    ModelInfo,
    OnBehalf,
    Timings,
)
from onegate.tasks import Tasks
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.bodies import Bodies
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.config import Config, WaitingConfig
from onegate_ollama_proxy.dialects import ollama
from onegate_ollama_proxy.inference import (
    MAX_TRIES,
    TEXTS_AT_ONCE,
    Inference,
    cut_vector,
    ttft_timeout_s,
)
from onegate_ollama_proxy.refused import Refused
from onegate_ollama_proxy.told import Told

LIMITS = ClassLimits(max_tokens_default=16, max_tokens_max=64, ttft_timeout_ms_max=600_000)
REPLY = Reply(
    text="Hi there",
    thinking="",
    tool_calls=[],
    finish_reason=FinishReason.STOP,
    usage=Usage(prompt_tok=3, output_tok=2),
    timings=Timings(queue_ms=1.0, e2e_ms=2.0),
    notices=[],
    identity=Identity(engine="e", model="tiny"),
    rid="r",
    token_ids=[],
    logprobs=[],
)
CHAT: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}]}


def refused(reason: Reason = Reason.TOKENS_FULL, **fields: Any) -> RequestError:
    given: dict[str, Any] = {
        "reason": reason,
        "message": "no room",
        "retryable": True,
        "phase": Phase.ARRIVAL,
    }
    error = error_of(Failed(**(given | fields)), started=False)
    assert isinstance(error, RequestError)
    return error


class Stream:
    """An answer in pieces; a piece that is an error is raised."""

    def __init__(self, pieces: list[Any]) -> None:
        self._pieces = pieces
        self.reply: Reply | None = None
        self.left = False

    async def __aenter__(self) -> "Stream":
        return self

    async def __aexit__(self, *error: object) -> None:
        self.left = True

    async def __aiter__(self) -> Any:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield Chunk(id=1, n_tok=1, text=piece)
        self.reply = REPLY


class Client:
    """The gate, as it answers in these tests: each entry of `says` is the answer to one request."""

    def __init__(self, *says: Any) -> None:
        self.says = list(says)
        self.asked: list[dict[str, Any]] = []
        self.streams: list[Stream] = []
        self.loads: list[str] = []
        self.unloads: list[str] = []
        self.in_use = False
        classes = {"interactive": LIMITS, "loop": LIMITS, "batch": LIMITS}
        self.welcome = SimpleNamespace(
            models=[ModelInfo(model="tiny", state="ready", max_context_tok=1000)],
            limits=SimpleNamespace(classes=classes),
        )

    def _next(self) -> Any:
        answer = self.says.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def generate(self, prompt: str | None = None, **options: Any) -> Any:
        self.asked.append({"prompt": prompt, "stream": False, **options})
        return self._next()

    def stream(self, prompt: str | None = None, **options: Any) -> Stream:
        self.asked.append({"prompt": prompt, "stream": True, **options})
        self.streams.append(Stream(self.says.pop(0)))
        return self.streams[-1]

    async def embed(self, texts: Any, **options: Any) -> Any:
        self.asked.append({"texts": list(texts), **options})
        return self._next()

    async def load(self, model: str) -> None:
        self.loads.append(model)

    async def unload(self, model: str) -> bool:
        self.unloads.append(model)
        return not self.in_use


class Rig:
    """The inference routes around one client."""

    def __init__(self, asked: Any, *says: Any, config: Config | None = None) -> None:
        self.asked = asked
        self.client = Client(*says)
        self.told = Told()
        self.class_ = "interactive"
        self.crashes: list[BaseException] = []
        self.tasks = Tasks(lambda name, error: self.crashes.append(error))
        self.bodies = Bodies(each_bytes=10**6, total_bytes=10**7, timeout_s=5.0)
        self.one: Any = None
        self._inference = Inference(
            config or Config(models={"gpt": "tiny"}),
            boundary=Boundary(upstream=None, allow_remote=False),
            bodies=self.bodies,
            tasks=self.tasks,
        )

    async def ask(self, path: str = "/api/chat", **body: Any) -> web.StreamResponse:
        route = next(route for route in ollama.ROUTES if route.path == path)
        given = body if path != "/api/chat" else CHAT | body
        self.one = self.asked(json.dumps(given).encode()).end()

        async def client() -> Client:
            return self.client

        caller: Any = SimpleNamespace(
            name="uid:7",
            behalf=OnBehalf(source="sock_diag", uid=7),
            client=client,
            class_for=lambda client: (self.class_, ("chosen",)),
        )
        return await self._inference.answer(self.one.request, route, caller, self.told)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.one.written.body.splitlines()]


async def test_a_stream_is_written_as_it_comes(asked: Any) -> None:
    rig = Rig(asked, ["Hi", " there"])
    response = await rig.ask()
    assert response.status == 200
    assert [line["message"]["content"] for line in rig.lines] == ["Hi", " there", ""]
    assert rig.lines[-1]["done"] is True
    assert rig.one.written.ended
    (asked_for,) = rig.client.asked
    assert (asked_for["model"], asked_for["class_"], asked_for["stream"]) == (
        "tiny",
        "interactive",
        True,
    )
    assert (rig.told.class_, rig.told.model, rig.told.notices) == (
        "interactive",
        "tiny",
        ["chosen"],
    )
    assert rig.bodies.held_bytes == 0


async def test_a_whole_answer_is_asked_for_whole(asked: Any) -> None:
    rig = Rig(asked, REPLY)
    response = await rig.ask(stream=False)
    assert isinstance(response, web.Response)
    assert json.loads(response.body)["message"]["content"] == "Hi there"  # type: ignore[arg-type]
    assert rig.client.asked[0]["stream"] is False


async def test_a_prompt_and_an_alias(asked: Any) -> None:
    rig = Rig(asked, REPLY)
    await rig.ask("/api/generate", model="GPT:latest", prompt="x", stream=False)
    assert (rig.client.asked[0]["prompt"], rig.client.asked[0]["model"]) == ("x", "tiny")


async def test_a_refusal_before_the_first_byte_is_the_callers_to_say(asked: Any) -> None:
    rig = Rig(asked, [refused(retry_after_ms=2000)])
    with pytest.raises(Refused) as error:
        await rig.ask()
    assert "not now for class interactive" in error.value.no.sentence
    assert rig.told.reason == "tokens_full"
    assert rig.client.streams[0].left
    assert rig.one.written.status == ""


async def test_a_failure_after_it_is_a_line_and_no_clean_end(asked: Any) -> None:
    rig = Rig(asked, ["Hi", refused(Reason.ENGINE_FAILED, retryable=False)])
    await rig.ask()
    assert rig.lines[-1] == {"error": "no room"}
    assert not any(line.get("done") for line in rig.lines)


@pytest.mark.parametrize(
    "body", [{"model": "huge"}, {"options": {"num_ctx": 5000}}, {"model": "x:cloud"}]
)
async def test_what_is_refused_without_asking(asked: Any, body: dict[str, Any]) -> None:
    rig = Rig(asked)
    with pytest.raises((BadAsk, Refused)):
        await rig.ask(**body)
    assert rig.client.asked == []
    assert rig.bodies.held_bytes == 0


async def test_more_than_the_classes_maximum_is_lowered_and_said(asked: Any) -> None:
    rig = Rig(asked, REPLY)
    await rig.ask(stream=False, options={"num_predict": 1000})
    assert rig.client.asked[0]["max_tokens"] == 64
    assert "64 tokens" in rig.told.notices[-1]


async def test_what_is_too_large_is_made_smaller_until_it_fits(asked: Any) -> None:
    turns = [{"role": "user", "content": "x" * 1000} for _ in range(6)]
    too_large = refused(Reason.TOO_LARGE, used=1030, limit=1000)
    rig = Rig(asked, too_large, refused(Reason.TOO_LARGE, used=1500, limit=1000), REPLY)
    await rig.ask(stream=False, messages=turns, options={"num_predict": 50})
    first, second, third = rig.client.asked
    assert (first["max_tokens"], second["max_tokens"], third["max_tokens"]) == (50, 20, 20)
    assert [len(asked["messages"]) for asked in rig.client.asked] == [6, 6, 3]
    assert "20 tokens" in rig.told.notices[-2]
    assert "did not fit" in rig.told.notices[-1]


async def test_a_batch_class_is_refused_instead_of_cut(asked: Any) -> None:
    turns = [{"role": "user", "content": "x" * 1000} for _ in range(6)]
    rig = Rig(asked, refused(Reason.TOO_LARGE, used=1500, limit=1000, retryable=False))
    rig.class_ = "batch"
    with pytest.raises(Refused):
        await rig.ask(stream=False, messages=turns)
    assert len(rig.client.asked) == 1


async def test_it_is_not_tried_for_ever(asked: Any) -> None:
    turns = [{"role": "user", "content": "x"} for _ in range(50)]
    errors = [refused(Reason.TOO_LARGE, used=1001, limit=1000) for _ in range(20)]
    rig = Rig(asked, *errors)
    with pytest.raises(Refused):
        await rig.ask(stream=False, messages=turns)
    assert len(rig.client.asked) == MAX_TRIES


async def test_what_has_been_said_is_not_said_again(asked: Any) -> None:
    turns = [{"role": "user", "content": "x" * 1000} for _ in range(6)]
    rig = Rig(asked, ["Hi", refused(Reason.TOO_LARGE, used=1500, limit=1000)])
    await rig.ask(messages=turns)
    assert len(rig.client.asked) == 1
    assert "error" in rig.lines[-1]


async def test_a_batch_class_asks_for_an_early_refusal(asked: Any) -> None:
    rig = Rig(asked, REPLY, REPLY)
    rig.class_ = "batch"
    await rig.ask(stream=False)
    assert rig.client.asked[-1]["ttft_timeout"] == 240
    rig.class_ = "loop"
    await rig.ask(stream=False)
    assert "ttft_timeout" not in rig.client.asked[-1]


async def test_a_long_wait_is_padded(asked: Any) -> None:
    config = Config(classes={"interactive": WaitingConfig(pad_after_s=0.001)})
    rig = Rig(asked, config=config)
    gone = asyncio.Event()

    async def generate(prompt: str | None = None, **options: Any) -> Reply:
        await rig.one.written.until_tried(1)
        gone.set()
        return REPLY

    rig.client.generate = generate  # type: ignore[method-assign]
    await rig.ask(stream=False)
    assert gone.is_set()
    assert rig.one.written.body.startswith(b" ")
    assert json.loads(rig.one.written.body)["done"] is True
    assert (len(rig.tasks), rig.crashes) == (0, [])


async def test_who_leaves_ends_what_he_asked_for(asked: Any) -> None:
    rig = Rig(asked)
    begun, ended = asyncio.Event(), asyncio.Event()

    async def generate(prompt: str | None = None, **options: Any) -> Reply:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return REPLY

    rig.client.generate = generate  # type: ignore[method-assign]
    tasks = Tasks(lambda name, error: None)
    task = tasks.spawn(rig.ask(stream=False), name="ask")
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert rig.bodies.held_bytes == 0


# --- vectors and loads ----------------------------------------------------------------------------


def vectors(count: int, prompt_tok: int = 2) -> Embeddings:
    usage = Usage(prompt_tok=prompt_tok, output_tok=0)
    return Embeddings(id=1, vectors=[[3.0, 4.0, 12.0]] * count, usage=usage)


async def test_texts_are_embedded_some_at_a_time(asked: Any) -> None:
    rig = Rig(asked, vectors(TEXTS_AT_ONCE), vectors(5))
    response: Any = await rig.ask("/api/embed", model="tiny", input=["x"] * (TEXTS_AT_ONCE + 5))
    said = json.loads(response.body)
    assert len(said["embeddings"]) == TEXTS_AT_ONCE + 5
    assert said["prompt_eval_count"] == 4
    assert [len(asked["texts"]) for asked in rig.client.asked] == [TEXTS_AT_ONCE, 5]


async def test_vectors_are_cut_and_scaled(asked: Any) -> None:
    rig = Rig(asked, vectors(1))
    response: Any = await rig.ask("/api/embed", model="tiny", input="x", dimensions=2)
    assert json.loads(response.body)["embeddings"] == [[0.6, 0.8]]


async def test_texts_that_are_too_long_are_cut(asked: Any) -> None:
    rig = Rig(asked, refused(Reason.TOO_LARGE, used=2000, limit=1000), vectors(1))
    await rig.ask("/api/embed", model="tiny", input="x" * 2000)
    assert len(rig.client.asked[1]["texts"][0]) == 900
    rig = Rig(asked, refused(Reason.TOO_LARGE, used=2000, limit=1000))
    with pytest.raises(RequestError):
        await rig.ask("/api/embed", model="tiny", input="x" * 2000, truncate=False)


async def test_a_load_and_an_unload(asked: Any) -> None:
    rig = Rig(asked)
    response: Any = await rig.ask(messages=[])
    assert json.loads(response.body)["done_reason"] == "load"
    assert (rig.client.loads, rig.client.asked) == (["tiny"], [])
    response = await rig.ask(messages=[], keep_alive=0)
    assert json.loads(response.body)["done_reason"] == "unload"
    assert rig.client.unloads == ["tiny"]
    assert rig.told.notices == ["chosen", "chosen"]
    rig.client.in_use = True
    await rig.ask(messages=[], keep_alive=0)
    assert "stays" in rig.told.notices[-1]


@pytest.mark.parametrize(
    ("waiting", "most_ms", "seconds"),
    [(None, None, None), (5.0, None, 5.0), (5.0, 2000, 2.0), (5.0, 9000, 5.0)],
)
def test_how_long_it_may_wait(
    waiting: float | None, most_ms: int | None, seconds: float | None
) -> None:
    limits = ClassLimits(max_tokens_default=1, max_tokens_max=1, ttft_timeout_ms_max=most_ms)
    assert ttft_timeout_s(WaitingConfig(refuse_after_s=waiting), limits) == seconds


def test_cutting_a_vector() -> None:
    assert cut_vector([3.0, 4.0], 5) == [3.0, 4.0]
    assert cut_vector([0.0, 0.0, 1.0], 2) == [0.0, 0.0]
