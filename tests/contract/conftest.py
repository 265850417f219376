"""One engine per adapter, a sink that remembers, and a check that every seat was told of once."""

import asyncio
import contextlib
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import pytest_asyncio
from tests.contract.ollama_stand_in import StandIn as OllamaStandIn
from tests.contract.standin import StandIn, in_a_thread
from tests.contract.trtllm import is_running, model_folder, stand_in, trtllm_config
from tests.integration.hosts import Manager

from onegate.clock import monotonic_ns
from onegate.config import (
    EngineConfig,
    OllamaConfig,
    OllamaModel,
    OpenAiConfig,
    ScriptedConfig,
    ScriptedPool,
)
from onegate.engines.base import (
    Accepted,
    Engine,
    EngineChunk,
    EngineError,
    EngineEvent,
    EngineLost,
    EngineRequest,
    Finished,
    GenerateItem,
    PoolChanged,
    PoolState,
    Progress,
    SeatFreed,
    Stopped,
)
from onegate.engines.registry import build_engine

PATIENCE_S = 120.0 * float(os.environ.get("ONEGATE_TIMEOUT_FACTOR", "1"))


@dataclass
class Outcome:
    """Everything that one request said, and how it ended."""

    items: list[GenerateItem] = field(default_factory=list)
    error: EngineError | None = None

    def of(self, kind: type) -> list:
        return [item for item in self.items if isinstance(item, kind)]

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.of(EngineChunk))

    @property
    def ids(self) -> list[int]:
        return [id for chunk in self.of(EngineChunk) for id in chunk.token_ids or ()]

    @property
    def n_tok(self) -> int:
        return sum(chunk.n_tok for chunk in self.of(EngineChunk))

    @property
    def finished(self) -> Finished:
        assert self.error is None, self.error
        assert isinstance(self.items[-1], Finished), self.items[-1]
        return self.items[-1]

    @property
    def prompt_tok(self) -> int:
        return self.of(Accepted)[0].prompt_tok

    def check_order(self) -> None:
        """Accepted first, progress before output, one end and nothing behind it."""
        kinds = [type(item) for item in self.items]
        if kinds:
            assert kinds[0] is Accepted
            assert kinds.count(Accepted) == 1
        if EngineChunk in kinds:
            assert Progress not in kinds[kinds.index(EngineChunk) :]
        assert not {Finished, Stopped} & set(kinds[:-1])


class Box:
    """An engine with everything it told, and the requests that were iterated."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[EngineEvent] = []
        self.log: list[str] = []
        self.iterated: set[int] = set()
        self._ids = iter(range(1, 1_000_000))
        self._heard = asyncio.Event()

    @property
    def model(self) -> str:
        return self.engine.pools()[0].model

    @property
    def pool(self):
        return self.engine.pools()[0]

    def sink(self, event: EngineEvent) -> None:
        self.events.append(event)
        self._heard.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                self._heard.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01):  # not everything is told to the sink
                        await self._heard.wait()

    async def start(self) -> None:
        await self.engine.start(self.sink)

    async def ready(self) -> None:
        await self.until(lambda: [p.state for p in self.engine.pools()[:1]] == [PoolState.READY])

    def request(self, prompt: str | None = None, **given) -> EngineRequest:
        given.setdefault("model", self.model)
        given.setdefault("max_tokens", 8)
        return EngineRequest(id=next(self._ids), prompt=prompt, **given)

    def generate(self, request: EngineRequest):
        self.iterated.add(request.id)
        return self.engine.generate(request)

    async def collect(self, request: EngineRequest, *, into: Outcome | None = None) -> Outcome:
        outcome = Outcome() if into is None else into
        async with asyncio.timeout(PATIENCE_S):
            try:
                async for item in self.generate(request):
                    outcome.items.append(item)
            except EngineError as error:
                outcome.error = error
        outcome.check_order()
        return outcome

    async def run(self, prompt: str | None = None, **given) -> Outcome:
        return await self.collect(self.request(prompt, **given))

    def told(self) -> Counter[int]:
        """How often each request's seat was told of."""
        told = Counter(e.id for e in self.events if isinstance(e, SeatFreed))
        for event in self.events:
            if isinstance(event, EngineLost):
                told.update(event.ids)
        return told

    async def all_told(self) -> None:
        await self.until(lambda: set(self.told()) >= self.iterated)
        assert self.told() == Counter(dict.fromkeys(self.iterated, 1))

    async def serves_again(self) -> None:
        await self.ready()
        assert (await self.run("hello", max_tokens=3)).finished
        await self.all_told()

    def of(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def states(self) -> list[PoolState]:
        return [event.pool.state for event in self.of(PoolChanged)]


@pytest.fixture(scope="session")
def hosts() -> Callable[[], list[int]]:
    """Pids of the engine hosts that this process has started and that still exist."""
    return children


@pytest.fixture(scope="session")
def scripted() -> Callable[..., EngineConfig]:
    """Configurations of the scripted engine: pools, `loadable`, and keys of `[engine]`."""
    return scripted_config


def children() -> list[int]:
    """Engine hosts that an engine of this process has started and that still exist."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            command = stat.with_name("cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"onegate.engines.host\0--fd" in command:
            found.append(int(stat.parent.name))
    return found


def scripted_config(*pools: ScriptedPool, loadable: int = 1, **given) -> EngineConfig:
    fast = ScriptedPool(a_ms=0.0, b_ms_per_prefill_tok=0.0, c_ms_per_seq=0.0)
    given.setdefault("restart_backoff_ms", 1)
    return EngineConfig(
        kind="scripted",
        scripted=ScriptedConfig(pools=pools or (fast,), loadable=loadable),
        **given,
    )


@pytest_asyncio.fixture(loop_scope="function")
async def new_box() -> AsyncIterator[Callable[..., Box]]:
    """Builds engines of one test; afterwards every seat was told of and no process is left."""
    boxes: list[Box] = []
    crashes: list[BaseException] = []

    def crashed(name: str, error: BaseException) -> None:
        crashes.append(error)

    def build(config: EngineConfig | None = None, step_target_ms: float | None = None) -> Box:
        log: list[str] = []
        engine = build_engine(
            config or scripted_config(),
            step_target_ms=step_target_ms,
            log=log.append,
            crashed=crashed,
        )
        box = Box(engine)
        box.log = log
        boxes.append(box)
        return box

    yield build
    for box in boxes:
        await box.engine.aclose(10.0)
        assert set(box.told()) == box.iterated
    assert children() == []
    assert crashes == []


@pytest_asyncio.fixture(loop_scope="function")
async def started(new_box: Callable[..., Box]) -> Callable[..., Awaitable[Box]]:
    """Builds an engine, starts it and waits until its first pool is ready."""

    async def start(config: EngineConfig | None = None) -> Box:
        box = new_box(config)
        await box.start()
        await box.ready()
        return box

    return start


@pytest.fixture
def strict_trtllm(tmp_path: Path) -> Iterator[None]:
    """TensorRT-LLM's stand-in never had to object, and none of its workers is left: they are in
    sessions of their own and do not end by themselves."""
    yield
    log = tmp_path / "calls.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    calls = [json.loads(line) for line in lines]
    workers = [call["pid"] for call in calls if call["call"] == "worker"]
    ends_ns = monotonic_ns() + int(PATIENCE_S * 1e9)
    while left := [pid for pid in workers if is_running(pid)]:
        if monotonic_ns() > ends_ns:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            pytest.fail(f"workers are left: {left}")
    assert [call for call in calls if call["call"] == "strict"] == []


@pytest.fixture
def serve(strict_trtllm: None, started: Callable[..., Awaitable[Box]], tmp_path: Path):
    """Starts TensorRT-LLM with options of the stand-in, and under `config` keys of `[engine]`."""

    async def start(*, config: dict | None = None, **options) -> Box:
        made = stand_in(tmp_path, **options)
        box = await started(trtllm_config(made.python, model_folder(tmp_path), **(config or {})))
        box.stand_in = made
        return box

    return start


# What an engine that is somebody else's server cannot do, or nobody can see of it from outside:
# ids of tokens, going on from them, steps, loading; and what it can do that the others cannot.
_NOT_OVER_HTTP = {
    "test_a_pool_says_what_it_is": "has no cache of known size, and resumes nothing",
    "test_a_stream_from_acceptance_to_its_end": "no ids",
    "test_resuming_by_ids_says_what_would_have_been_said": "no ids",
    "test_stopped_again_and_again_it_says_the_same": "no ids",
    "test_a_stop_string_across_the_cut_is_found": "no ids",
    "test_the_snapshot_tells_figures_and_their_age": "no steps",
    "test_a_pool_can_be_unloaded_and_loaded_again": "is the server's own affair",
    "test_min_tokens_above_the_maximum_cannot_be_honoured": "has no min_tokens",
    "test_embedding_is_unsupported": "may be supported",
}

# And what a real llama.cpp server does in another way.
_NOT_ON_LLAMA_SERVER = {
    "test_a_prompt_of_several_steps_shows_its_progress": "reads 2048 tokens in a step",
    "test_a_stop_string_across_tokens_does_not_show": "draws its tokens unless told otherwise",
    "test_text_held_back_for_a_stop_string_comes_at_the_end": "the same",
}


# And what Ollama has no question for, or the stand-in does not do as Ollama would: stop strings
# are looked for in tests/live.
_NOT_ON_OLLAMA = {
    "test_a_prompt_of_several_steps_shows_its_progress": "says nothing before its first token",
    "test_messages_and_a_prompt_of_ids": "takes no ids",
    "test_counting_agrees_with_what_a_request_is_charged": "counts nothing beforehand",
    "test_a_question_that_nobody_waits_for_disturbs_nothing": "the same",
    "test_too_large_names_both_numbers": "the same",
    "test_a_huge_prompt_is_too_large_as_well": "the same",
    "test_output_is_fitted_to_the_context_where_nobody_named_a_bound": "takes no ids",
    "test_a_stop_string_across_tokens_does_not_show": "the stand-in looks for none",
    "test_text_held_back_for_a_stop_string_comes_at_the_end": "the same",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_left_out(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    adapter = None if call is None else call.params.get("adapter")
    name = item.name.partition("[")[0]
    if adapter == "llama-server" and name in _NOT_ON_LLAMA_SERVER:
        return True
    if adapter == "ollama" and name in _NOT_ON_OLLAMA:
        return True
    return adapter in ("openai", "llama-server", "ollama") and name in _NOT_OVER_HTTP


@pytest.fixture(
    scope="module",
    params=["scripted", "attached", "openvino", "tensorrt-llm", "openai", "ollama"],
)
def adapter(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineConfig]:
    """Each adapter, in a configuration that a small machine runs. `attached`: the scripted one, in
    a host that is a service of its own."""
    if request.param == "scripted":
        yield scripted_config()
    elif request.param == "attached":
        service = Manager(tmp_path_factory.mktemp("host"))
        yield scripted_config(host_socket=service.path)
        service.close()
    elif request.param == "tensorrt-llm":
        directory = tmp_path_factory.mktemp("trtllm")
        yield trtllm_config(stand_in(directory).python, model_folder(directory))
    elif request.param == "openai":
        with in_a_thread(StandIn(width=16, token_s=0.002)) as server:
            yield EngineConfig(
                kind="openai", openai=OpenAiConfig(base_url=server.url, boundary="local")
            )
    elif request.param == "ollama":
        with in_a_thread(OllamaStandIn(parallel=16, token_s=0.002)) as server:
            model = OllamaModel(model="tiny", max_seqs=16, context_tok=1024)
            yield EngineConfig(
                kind="ollama",
                ollama=OllamaConfig(base_url=server.url, models=(model,), boundary="local"),
            )
    else:
        yield EngineConfig(kind="openvino", kv_tok=8192, max_seqs=16, context_tok=1024)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(adapter: EngineConfig) -> AsyncIterator[Box]:
    """One started engine for a whole module: the embedded model takes seconds to load."""
    crashes: list[BaseException] = []
    box = Box(
        build_engine(
            adapter,
            log=lambda line: None,
            crashed=lambda name, error: crashes.append(error),
        )
    )
    await box.start()
    await box.ready()
    yield box
    await box.engine.aclose(10.0)
    assert children() == []
    assert crashes == []


@pytest_asyncio.fixture(loop_scope="module")
async def box(shared: Box) -> AsyncIterator[Box]:
    """The shared engine; after each test every seat that it took has been told of, once."""
    yield shared
    await shared.all_told()
