"""What `generate_async` returns: one object, updated in place."""

import asyncio
from dataclasses import dataclass, field

from tensorrt_llm._base import note, strict
from tensorrt_llm.executor.utils import RequestError


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list = field(default_factory=list)
    prompt_logprobs: list = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    generation_logits: object = None
    additional_context_outputs: dict | None = None
    additional_generation_outputs: dict | None = None
    disaggregated_params: object = None
    request_perf_metrics: object = None

    def __post_init__(self):
        self._diff = []

    @property
    def length(self):
        return len(self.token_ids)

    @property
    def text_diff(self):
        return ""  # nothing was detokenised

    @property
    def token_ids_diff(self):
        return self._diff

    @property
    def logprobs_diff(self):
        return []


class RequestOutput:
    def __init__(self, engine, request_id, ids, params, streaming):
        self.id = self.request_id = request_id
        self.prompt = None
        self.prompt_token_ids = ids
        self.outputs = [CompletionOutput(0)]
        self.finished = False
        self.context_logits = None
        self.cached_tokens = 0
        self.decoding_iter = 0
        self.avg_decoded_tokens_per_iter = None
        self.metrics_dict = {}
        self.disaggregated_params = None
        self.trace_headers = None
        self.mm_embedding_handle = None
        self._engine = engine
        self._params = params
        self._streaming = streaming
        self._loop = asyncio.get_running_loop()
        self._responses = asyncio.Queue()
        self._aborted = False
        self._awaited = False
        self._failed = False

    def abort(self):
        note("abort", id=self.request_id)
        self._engine.abort()
        self._aborted = True

    def aborted(self):
        return self._aborted

    def result(self, timeout=None):
        strict(False, "result() waits without a limit, whatever its timeout")

    async def aresult(self):
        strict(False, "aresult() shows nothing before the end")

    def __await__(self):
        strict(False, "an output was awaited as a whole")

    def __iter__(self):
        strict(False, "an output was read without a loop")

    def __next__(self):
        strict(False, "an output was read without a loop")

    def _deliver(self, response):
        """From the engine's thread."""
        if not self._loop.is_running():
            raise RuntimeError("event loop is not running")
        self._loop.call_soon_threadsafe(self._responses.put_nowait, response)

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.finished:
            raise StopAsyncIteration
        strict(asyncio.get_running_loop() is self._loop, "an output was read on another loop")
        strict(not self._awaited, "awaited twice at a time")
        self._awaited = True
        completion = self.outputs[0]
        # Whoever kept the list and not a copy of it has nothing now.
        completion._diff.clear()
        try:
            if self._failed:
                note("awaited after its error", id=self.request_id)
                await asyncio.Event().wait()
            response = await self._responses.get()
        finally:
            self._awaited = False
        if isinstance(response, RequestError):
            self._failed = True
            raise response
        if isinstance(response, BaseException):
            raise response
        ids, reason, cached_tok = response
        self.cached_tokens = cached_tok
        completion.token_ids += ids
        completion._diff.extend(ids)
        if reason is not None:
            completion.finish_reason = reason
            self.finished = True
        return self
