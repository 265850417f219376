"""The TensorRT-LLM engine: one pool, batched continuously in processes of the library's own."""

import os
from pathlib import Path

from msgspec.structs import replace

from onegate.engines.base import EngineRequest, Feature, PoolInfo, PoolState
from onegate.engines.host.checks import check_params, check_plain_text
from onegate.engines.host.digest import is_replaced
from onegate.engines.host.engine import LoadFailed, Refusal, StepReport
from onegate.engines.host.processes import MARK, kill, started_by
from onegate.engines.host.prompts import PromptReader
from onegate.engines.host.remembered import default_cache
from onegate.engines.host.sequence import Sequence
from onegate.engines.host.settings import TensorRtLlmSettings
from onegate.engines.host.trtllm.advice import StepAdvice
from onegate.engines.host.trtllm.faults import is_request_error
from onegate.engines.host.trtllm.inside import Inside
from onegate.engines.host.trtllm.library import installed_version
from onegate.engines.host.trtllm.load import Loaded
from onegate.engines.host.trtllm.loader import UNLOAD_S, Loader, Mail, Outcome
from onegate.engines.host.trtllm.mailbox import Mailbox
from onegate.engines.host.trtllm.messages import Broken, Message
from onegate.engines.host.trtllm.pool import honoured, trtllm_pool
from onegate.engines.host.trtllm.sampling import guide_of, priority_of, sampling_of
from onegate.engines.host.warden import Warden
from onegate.engines.host.wire import AcceptedMsg, CountCall

# To leave, of which the daemon allows two seconds.
_CLOSE_S = 1.5


class EngineBroken(Exception):
    """Only a new process will do."""


class TrtLlmEngine:
    """See `engine.HostEngine`. The library computes in processes and threads of its own, and is
    spoken to from one loop in a thread of ours; `step` only tells what has come.

    A prompt becomes one user turn of the model's chat template. Output is greedy unless a
    temperature says otherwise. Text is made here, from the tokens, so that a request that is
    stopped and resumed goes on exactly where its text had ended.
    """

    kind = "tensorrt-llm"

    def __init__(self, settings: TensorRtLlmSettings, *, digest_cache: Path | None = None) -> None:
        self.version = installed_version() or "not installed"
        self._settings = settings
        self._digest_cache = digest_cache or default_cache("digests.json")
        self._mail: Mail = Mailbox()
        self._loader = Loader(settings, self._digest_cache, self._mail)
        self._pool = trtllm_pool(settings)
        self._loaded: Loaded | None = None
        self._inside: Inside | None = None
        self._prompts: PromptReader | None = None
        self._warden: Warden | None = None

    @property
    def busy(self) -> bool:
        return self._pool.state is PoolState.LOADING or bool(self.running(self._pool.model))

    @property
    def due(self) -> bool:
        begins = self._pool.state is PoolState.LOADING and not self._loader.loading
        return begins or bool(self._mail)

    @property
    def wake(self) -> int:
        return self._mail.fd

    def pools(self) -> list[PoolInfo]:
        return [self._pool]

    def running(self, model: str) -> list[int]:
        return self._inside.ids() if self._inside is not None else []

    def look_again(self) -> None:
        if self._loaded is None:
            return  # a load reads what is there by then
        if is_replaced(Path(self._settings.path), self._loaded.stamp):
            self._pool = replace(self._pool, state=PoolState.LOADING, error=None)

    def load(self, model: str) -> None:
        self._check_model(model)
        if self._loaded is None:
            self._pool = replace(self._pool, state=PoolState.LOADING, error=None)
        elif not self.running(model):
            self.look_again()

    def unload(self, model: str) -> None:
        self._check_model(model)
        if self._loader.loading:
            # The library cannot be told to stop loading.
            self._mail.post(Broken("it was to be unloaded while it was loaded"))
        elif self._loaded is not None and not self._loaded.session.end(UNLOAD_S):
            self._mail.post(Broken("it did not free its memory, and was ended"))
        self._forget()
        self._pool = replace(self._pool, state=PoolState.COLD, error=None)

    def submit(self, request: EngineRequest) -> AcceptedMsg:
        loaded, inside, prompts = self._ready()
        check_plain_text(request)
        check_params(request.params, honoured(self._settings))
        prompt, resumed = prompts.ids(request)
        ids = prompt + resumed
        if not self._settings.chunked_prefill and len(ids) > self._settings.max_step_tok:
            raise Refusal(
                "too_large",
                f"{len(ids)} tokens do not fit into one step of {self._settings.max_step_tok}, and "
                "engine.tensorrt_llm.chunked_prefill is off",
                need_tok=len(ids),
                limit_tok=self._settings.max_step_tok,
            )
        max_tokens = min(request.max_tokens, loaded.capacity.max_context_tok - len(ids))
        values, guide = sampling_of(request, max_tokens=max_tokens), guide_of(request)
        sequence = Sequence(request, inside.handle(request.id), prompt=prompt)
        try:
            if resumed:
                sequence.prime(resumed, loaded.text.decode)
            loaded.session.submit(
                request.id,
                ids,
                values,
                guide,
                salt=request.cache_salt,
                priority=priority_of(request.rank),
            )
        except Exception as error:
            # Of the request, or of the engine: told apart by kind, because its words may be the
            # request's.
            inside.forget(request.id)
            raise self._not_taken(error) from error
        inside.add(sequence)
        return AcceptedMsg(id=request.id, prompt_tok=len(prompt))

    def abort(self, id: int) -> None:
        if self._inside is not None:
            self._inside.abort(id)

    def count(self, call: CountCall) -> tuple[int, bool]:
        self._check_model(call.model)
        if call.tools:
            raise Refusal("unsupported", "this engine does not offer tools", path="tools")
        return self._ready()[2].count(call.prompt, call.messages, raw=call.raw)

    def step(self) -> StepReport:
        if self._pool.state is PoolState.LOADING and not self._loader.loading:
            # Before the library has started anything.
            self._warden = self._warden or Warden()
            self._loader.start(self._loaded)
        messages: list[Message] = []
        outcome = None
        for message in self._mail.take():
            if not isinstance(message, Outcome):
                messages.append(message)
            elif self._loader.loading:  # the first says how the load ended
                outcome = outcome or message
        broken = [message for message in messages if isinstance(message, Broken)]
        if broken:
            raise EngineBroken(broken[0].reason)
        if outcome is not None:
            return self._come_up(outcome)
        if self._inside is None:
            return StepReport(stepped=False)
        return self._inside.step(messages)

    def close(self) -> None:
        # A loading thread cannot be stopped, and a dead worker is waited for without end: what the
        # shutdown has not ended in time is killed.
        if self._loaded is not None:
            self._loaded.session.end(_CLOSE_S)
        kill(started_by(os.getpid(), os.environ.get(MARK, "")))

    def _check_model(self, model: str) -> None:
        if model != self._pool.model:
            raise Refusal("invalid", f"there is no pool {model}", path="model")

    def _ready(self) -> tuple[Loaded, Inside, PromptReader]:
        if self._loaded is None or self._inside is None or self._prompts is None:
            raise Refusal("unavailable", f"{self._pool.model} is not loaded")
        return self._loaded, self._inside, self._prompts

    def _forget(self) -> None:
        self._loaded = self._inside = self._prompts = None

    def _not_taken(self, error: Exception) -> Refusal:
        kind = type(error).__name__
        if is_request_error(error) or isinstance(error, ValueError | TypeError):
            return Refusal("invalid", f"the engine rejects the request: {kind}")
        self._mail.post(Broken(f"{kind} while a request was handed over"))
        return Refusal("unavailable", f"the engine broke: {kind}")

    def _come_up(self, outcome: Outcome) -> StepReport:
        self._loader.heard()
        loaded = outcome.loaded
        if loaded is None:
            self._forget()
            self._pool = replace(self._pool, state=PoolState.FAILED, error=outcome.error)
            raise LoadFailed(outcome.error)
        settings = self._settings
        kept = self._loaded is not None and self._loaded.session is loaded.session
        self._loaded = loaded
        if kept:
            self._pool = replace(self._pool, state=PoolState.READY)
            return StepReport(stepped=False, pools_changed=True)
        advice = StepAdvice(
            target_ms=settings.step_target_ms,
            max_step_tok=settings.max_step_tok,
            max_seqs=settings.max_seqs,
        )
        self._inside = Inside(
            loaded.session,
            loaded.text.decode,
            settings.model,
            advice,
            tells_cached=settings.salted,
        )
        self._prompts = PromptReader(loaded.text, loaded.capacity.max_context_tok)
        features = trtllm_pool(settings).features
        if loaded.has_priority:
            features |= {Feature.PRIORITY}
        self._pool = replace(
            self._pool,
            state=PoolState.READY,
            features=features,
            loads=self._pool.loads + 1,
            load_ms=loaded.load_ms,
            capacity=loaded.capacity,
            identity=loaded.identity,
        )
        return StepReport(stepped=False, pools_changed=True)
