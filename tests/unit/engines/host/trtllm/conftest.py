"""A library that does what a test tells it to, in place of TensorRT-LLM."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.library import Library
from onegate.engines.host.trtllm.surface import KNOWN, Surface


class Output:
    """What `generate_async` returns. A test puts (ids, reason) or an exception into it."""

    def __init__(self, given=None):
        self.given = given
        self.outputs = [SimpleNamespace(token_ids_diff=[], finish_reason=None)]
        self.finished = False
        self.cached_tokens = 0
        self.aborts = 0
        self.abort_raises = None
        self.queue = asyncio.Queue()
        self.waited = 0

    def put(self, *responses):
        for response in responses:
            self.queue.put_nowait(response)

    def abort(self):
        self.aborts += 1
        if self.abort_raises is not None:
            raise self.abort_raises

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.finished:
            raise StopAsyncIteration
        self.waited += 1
        # The same list again, as in the package.
        self.outputs[0].token_ids_diff.clear()
        response = await self.queue.get()
        if isinstance(response, BaseException):
            raise response
        ids, reason = response
        self.outputs[0].token_ids_diff.extend(ids)
        if reason is not None:
            self.outputs[0].finish_reason = reason
            self.finished = True
        return self


class RequestError(RuntimeError):
    """Named as the package's."""


class Llm:
    """An LLM object whose requests answer at once with one token, unless `answers` is None."""

    def __init__(self, **given):
        self.given = given
        self.answers = ([7], "length")
        self.raises = None
        self.outputs = []
        self.threads = set()
        self.entries = []
        self.healthy = True
        self.shutdowns = []
        self.may_shut_down = threading.Event()
        self.may_shut_down.set()
        self.shutdown_raises = None

    def generate_async(self, inputs, sampling_params, streaming, cache_salt=None):
        if self.raises is not None:
            raise self.raises
        asyncio.get_running_loop()
        self.threads.add(threading.current_thread().name)
        given = {"inputs": inputs, "sampling": sampling_params, "streaming": streaming}
        output = Output({**given, "cache_salt": cache_salt})
        self.outputs.append(output)
        if self.answers is not None:
            output.put(self.answers)
        return output

    def get_stats(self, timeout):
        entries, self.entries = self.entries, []
        return entries

    def _check_health(self):
        return self.healthy

    def shutdown(self):
        self.shutdowns.append(threading.current_thread().name)
        if self.shutdown_raises is not None:
            raise self.shutdown_raises
        self.may_shut_down.wait()


@pytest.fixture
def make_output():
    return Output


@pytest.fixture
def request_error():
    return RequestError


@pytest.fixture
def library():
    def kind(name):
        return lambda **given: (name, given)

    signatures = {call: None for call in KNOWN}
    return Library(
        version="1.2.1",
        surface=Surface("1.2.1", signatures),
        llm=Llm,
        sampling_params=kind("SamplingParams"),
        guided=kind("GuidedDecodingParams"),
        kv_cache_config=kind("KvCacheConfig"),
        scheduler_config=kind("SchedulerConfig"),
        policies=None,
    )


@pytest.fixture
def make_settings(tmp_path):
    def make(**given):
        return TensorRtLlmSettings(
            **{
                "model": "m",
                "path": str(tmp_path),
                "tensor_parallel": 1,
                "context_tok": 512,
                "kv_tok": None,
                "kv_share": 0.9,
                "kv_dtype": "auto",
                "max_seqs": 4,
                "max_step_tok": 128,
                "chunked_prefill": True,
                "policy": "guaranteed_no_evict",
                "guided": None,
                "prefix_cache": True,
                "salted": True,
                "trust_remote_code": False,
                "step_target_ms": None,
                "stall_s": 30.0,
                "load_s": 600.0,
                **given,
            }
        )

    return make


@pytest.fixture
def llm():
    return Llm()
