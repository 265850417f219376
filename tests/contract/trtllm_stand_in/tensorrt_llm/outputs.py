"""What `generate_async` returns: one object, updated in place."""

import asyncio

from tensorrt_llm._base import note, strict
from tensorrt_llm.executor.utils import RequestError


class CompletionOutput:
    def __init__(self):
        self.index = 0
        self.text = ""
        self.token_ids = []
        self.finish_reason = None
        self.stop_reason = None
        self.token_ids_diff = []
        self.text_diff = ""


class RequestOutput:
    def __init__(self, engine, request_id, ids, params, streaming):
        self.engine = engine
        self.request_id = request_id
        self.prompt = None
        self.prompt_token_ids = ids
        self.params = params
        self.streaming = streaming
        self.outputs = [CompletionOutput()]
        self.finished = False
        self.cached_tokens = 0
        self._loop = asyncio.get_running_loop()
        self._responses = asyncio.Queue()
        self._aborted = False
        self._awaited = False
        self._failed = False

    def abort(self):
        note("abort", id=self.request_id)
        self.engine.abort()
        self._aborted = True

    def aborted(self):
        return self._aborted

    def deliver(self, response):
        """From the engine's thread."""
        if not self._loop.is_running():
            raise RuntimeError("event loop is not running")
        self._loop.call_soon_threadsafe(self._responses.put_nowait, response)

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.finished:
            raise StopAsyncIteration
        strict(not self._awaited, "awaited twice at a time")
        self._awaited = True
        completion = self.outputs[0]
        # Whoever kept the list and not a copy of it has nothing now.
        completion.token_ids_diff.clear()
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
        completion.token_ids_diff.extend(ids)
        if reason is not None:
            completion.finish_reason = reason
            self.finished = True
        return self
