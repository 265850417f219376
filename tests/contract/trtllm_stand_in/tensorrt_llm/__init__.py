"""See README.md beside this package."""

import asyncio
import json
import os
import pathlib
import threading
import time

from tensorrt_llm._base import OPTIONS, note, strict
from tensorrt_llm.engine import END, Engine
from tensorrt_llm.executor.utils import RequestError
from tensorrt_llm.llmapi import KvCacheConfig, SchedulerConfig
from tensorrt_llm.llmapi.llm_args import TorchLlmArgs
from tensorrt_llm.outputs import RequestOutput
from tensorrt_llm.sampling import SamplingParams

__version__ = "1.2.1"
__all__ = ["LLM", "SamplingParams"]
if OPTIONS.get("import_error"):
    raise ImportError(OPTIONS["import_error"])
note(
    "import",
    thread=threading.current_thread().name,
    environment={
        name: os.environ.get(name)
        for name in ("HF_HUB_OFFLINE", "DO_NOT_TRACK", "TRTLLM_NO_USAGE_STATS")
    },
)


class LLM:
    def __init__(
        self,
        model,
        tokenizer=None,
        tokenizer_mode="auto",
        skip_tokenizer_init=False,
        trust_remote_code=False,
        tensor_parallel_size=1,
        dtype="auto",
        revision=None,
        tokenizer_revision=None,
        **kwargs,
    ):
        for name in kwargs:
            if name not in TorchLlmArgs.model_fields:
                raise ValueError(f"LLM got invalid argument: {name}")
        if kwargs.get("guided_decoding_backend") not in (None, "xgrammar", "llguidance"):
            raise ValueError("guided_decoding_backend: Input should be 'xgrammar' or 'llguidance'")
        note(
            "LLM",
            model=model,
            thread=threading.current_thread().name,
            tensor_parallel_size=tensor_parallel_size,
            trust_remote_code=trust_remote_code,
            **kwargs,
        )
        time.sleep(OPTIONS.get("load_s", 0))
        if OPTIONS.get("load_error"):
            cause = RuntimeError(OPTIONS["load_error"])
            raise RuntimeError("Executor worker returned error") from cause
        cache = kwargs.get("kv_cache_config") or KvCacheConfig()
        blocks = OPTIONS.get("blocks", 256)
        if cache.max_tokens is not None:
            blocks = min(blocks, cache.max_tokens // cache.tokens_per_block)
        assert isinstance(kwargs.get("scheduler_config", SchedulerConfig()), SchedulerConfig)
        self.max_num_tokens = kwargs.get("max_num_tokens", 8192)
        # Lowered without a word to the caller.
        config = json.loads(pathlib.Path(model, "config.json").read_text(encoding="utf-8"))
        longest = config.get("max_position_embeddings", 2048)
        self.max_seq_len = min(kwargs.get("max_seq_len") or longest, longest)
        self.chunked = kwargs.get("enable_chunked_prefill", False)
        self._guided = kwargs.get("guided_decoding_backend")
        self._engine = Engine(
            max_batch_size=kwargs.get("max_batch_size", 2048),
            max_num_tokens=self.max_num_tokens,
            blocks=blocks,
            block_tok=cache.tokens_per_block,
            wants_stats=kwargs.get("enable_iter_perf_stats", False),
        )
        self._ids = 0
        self._loop = self._thread = self._stats_thread = None
        self._down = False

    def _submit(self, inputs, sampling_params, streaming, cache_salt, priority):
        if self._down:
            raise RuntimeError("LLM is shutting down")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        here = threading.current_thread()
        strict(loop is not None, "a request was made off the loop")
        strict(self._loop in (None, loop), "a request was made on another loop")
        strict(self._thread in (None, here), "a request was made in another thread")
        self._loop, self._thread = loop, here
        strict(isinstance(inputs, list), "text was given, to be tokenised on the loop")
        strict(0 < len(inputs) < self.max_seq_len, "the prompt is not within the context")
        if not self.chunked and len(inputs) > self.max_num_tokens:
            raise RequestError("The prompt length is larger than max_num_tokens")
        strict(
            len(inputs) + sampling_params.max_tokens <= self.max_seq_len,
            "prompt and max_tokens are not within the context",
        )
        if sampling_params.guided_decoding is not None and self._guided is None:
            raise ValueError("guided decoding is not enabled")
        given = dict(sampling_params._given)
        sampling_params._set_up(END, streaming=streaming)
        self._ids += 1
        guide = given.pop("guided_decoding", None)
        note(
            "generate_async",
            id=self._ids,
            prompt_tok=len(inputs),
            sampling=given,
            guide=None if guide is None else vars(guide),
            streaming=streaming,
            cache_salt=cache_salt,
            priority=priority,
            thread=here.name,
        )
        output = RequestOutput(self._engine, self._ids, list(inputs), sampling_params, streaming)
        self._engine.submit(output, priority if priority is not None else 0.5)
        return output

    def generate_async(
        self,
        inputs,
        sampling_params=None,
        lora_request=None,
        prompt_adapter_request=None,
        streaming=False,
        kv_cache_retention_config=None,
        disaggregated_params=None,
        trace_headers=None,
        _postproc_params=None,
        scheduling_params=None,
        cache_salt=None,
    ):
        return self._submit(inputs, sampling_params, streaming, cache_salt, None)

    def get_stats(self, timeout=2):
        here = threading.current_thread()
        strict(self._stats_thread in (None, here), "statistics are drained by two")
        strict(here is not self._thread, "statistics were asked for on the loop")
        if self._stats_thread is None:
            note("get_stats", thread=here.name)
        self._stats_thread = here
        return self._engine.drained(timeout)

    def get_stats_async(self, timeout=2):
        strict(False, "get_stats_async blocks the loop")

    def get_kv_cache_events(self, timeout=2):
        strict(False, "there are no events without a buffer for them")

    @property
    def llm_id(self):
        return f"stand-in-{os.getpid()}"

    @property
    def tokenizer(self):
        strict(False, "its tokenizer is wrapped, and another one for some models")

    def _check_health(self):
        return not self._down

    def shutdown(self):
        note("shutdown", thread=threading.current_thread().name, running=self._loop.is_running())
        strict(threading.current_thread() is not self._thread, "the shutdown blocks the loop")
        self._down = True
        if OPTIONS.get("shutdown") == "blocks":
            threading.Event().wait()
        self._engine.over.set()
        if self._engine.worker is not None:
            self._engine.worker.leave()


if OPTIONS.get("priority"):
    # As on main: two names more.
    def _generate_async(
        self,
        inputs,
        sampling_params=None,
        streaming=False,
        cache_salt=None,
        conversation_params=None,
        priority=0.5,
    ):
        return self._submit(inputs, sampling_params, streaming, cache_salt, priority)

    LLM.generate_async = _generate_async
