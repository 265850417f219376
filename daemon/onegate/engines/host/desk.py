"""What the daemon's messages mean to the engine, and what the engine's steps mean to the daemon."""

import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from onegate.engines.base import PoolState
from onegate.engines.host.engine import HostEngine, LoadFailed, Refusal, StepReport
from onegate.engines.host.wire import (
    Abort,
    CallDone,
    CallFailed,
    CountCall,
    CountResult,
    EmbedCall,
    Exit,
    FromHost,
    LoadCall,
    PoolUpdate,
    RefusedMsg,
    Step,
    Submit,
    ToHost,
    UnloadCall,
)
from onegate.protocol.errors import RemoteProtocolError

_T = TypeVar("_T")

EXIT_OK = 0
EXIT_UNAVAILABLE = 69
EXIT_SOFTWARE = 70


class Out(Protocol):
    """Where messages to the daemon go."""

    def post(self, message: FromHost) -> None: ...

    def post_raw(self, data: bytes) -> None: ...


class Desk:
    """Sans-IO: messages in by `take`, steps by `step`, messages out to `out`.

    `exit_code` is set when the host is to leave: the daemon said so, or the engine broke.
    `steps` counts the engine's steps, `stepping` says whether one is under way.
    """

    def __init__(self, engine: HostEngine, out: Out) -> None:
        self._engine = engine
        self._out = out
        self._draining = False
        self._loading: dict[str, list[int]] = {}
        self._unloading: dict[str, list[int]] = {}
        self.steps = 0
        self.stepping = False
        self.exit_code: int | None = None

    @property
    def busy(self) -> bool:
        """Whether anything is in the engine."""
        return self._engine.busy

    @property
    def due(self) -> bool:
        """Whether a step has something to do now."""
        return self._engine.due

    @property
    def loading(self) -> bool:
        """Whether the next step may be the load of a model."""
        return any(pool.state is PoolState.LOADING for pool in self._engine.pools())

    def settle(self) -> None:
        """Finish what waited for requests to be gone: unloads, and a drain."""
        for model in [m for m in self._unloading if not self._engine.running(m)]:
            calls = self._unloading.pop(model)
            self._engine.unload(model)
            self._report_pools()
            for call in calls:
                self._out.post(CallDone(call=call))
        if self._draining and not self._engine.busy:
            self.exit_code = EXIT_OK

    # --- what the daemon asks ---------------------------------------------------------------

    def take(self, message: ToHost) -> None:
        """Carry out one message. Raises RemoteProtocolError for one that makes no sense here."""
        match message:
            case Submit():
                self._submit(message)
            case Abort(id=id):
                self._engine.abort(id)
            case CountCall(call=call):
                self._answer(call, lambda: self._count(message))
            case LoadCall(call=call, model=model):
                self._answer(call, lambda: self._begin_load(call, model))
            case UnloadCall(call=call, model=model):
                self._answer(call, lambda: self._begin_unload(call, model))
            case EmbedCall(call=call):
                text = "this engine does not embed"
                self._out.post(CallFailed(call=call, code="unsupported", message=text))
            case Exit(drain=True):
                self._draining = True
            case Exit():
                self.exit_code = EXIT_OK
            case _:
                raise RemoteProtocolError("attached twice")

    def _submit(self, message: Submit) -> None:
        request = message.request
        if any(request.id in self._engine.running(p.model) for p in self._engine.pools()):
            # Whichever of the two was answered, nobody could tell.
            raise RemoteProtocolError(f"request {request.id} is inside already")
        answer: FromHost
        try:
            if self._draining or request.model in self._unloading:
                raise Refusal("unavailable", "the engine is closing")
            pool = next((p for p in self._engine.pools() if p.model == request.model), None)
            if pool is None:
                raise Refusal("invalid", f"there is no pool {request.model}", path="model")
            if pool.state is not PoolState.READY:
                raise Refusal("unavailable", f"{pool.model} is {pool.state}, not loaded")
            # No backlog in here: what waits, waits where it can still be reordered.
            if len(self._engine.running(pool.model)) >= pool.capacity.max_seqs:
                raise Refusal("unavailable", f"all {pool.capacity.max_seqs} seats are taken")
            answer = self._asked(lambda: self._engine.submit(request))
        except Refusal as refusal:
            answer = RefusedMsg(
                id=request.id,
                code=refusal.code,
                message=str(refusal),
                path=refusal.path,
                need_tok=refusal.need_tok,
                limit_tok=refusal.limit_tok,
            )
        self._out.post(answer)

    def _asked(self, ask: Callable[[], _T]) -> _T:
        try:
            return ask()
        except Refusal:
            raise
        except Exception as error:
            # Whatever a library raises for one request, the others go on; if more than that is
            # broken, the next step says so.
            # Only its kind is told: its words may be the request's.
            text = f"the engine broke on it: {type(error).__name__}"
            sys.stderr.write(f"{text}\n")
            raise Refusal("invalid", text) from error

    def _answer(self, call: int, carry_out: Callable[[], FromHost | None]) -> None:
        answer: FromHost | None
        try:
            answer = carry_out()
        except Refusal as refusal:
            answer = CallFailed(call=call, code=refusal.code, message=str(refusal))
        if answer is not None:
            self._out.post(answer)

    def _count(self, message: CountCall) -> CountResult:
        n_tok, exact = self._asked(lambda: self._engine.count(message))
        return CountResult(call=message.call, n_tok=n_tok, exact=exact)

    def _begin_load(self, call: int, model: str) -> None:
        self._engine.load(model)
        self._loading.setdefault(model, []).append(call)
        self._report_pools()

    def _begin_unload(self, call: int, model: str) -> None:
        if model not in {pool.model for pool in self._engine.pools()}:
            raise Refusal("invalid", f"there is no pool {model}", path="model")
        self._unloading.setdefault(model, []).append(call)
        for id in self._engine.running(model):
            self._engine.abort(id)

    def _report_pools(self) -> None:
        for pool in self._engine.pools():
            self._out.post(PoolUpdate(pool=pool))
            if pool.state is PoolState.LOADING:
                continue
            for call in self._loading.pop(pool.model, ()):
                if pool.state is PoolState.READY:
                    self._out.post(CallDone(call=call))
                else:
                    text = pool.error or f"{pool.model} is {pool.state}"
                    self._out.post(CallFailed(call=call, code="unavailable", message=text))

    # --- what the engine does ---------------------------------------------------------------

    def step(self) -> None:
        """Run one step of the engine and tell what came of it, in one message."""
        self.stepping = True
        try:
            report = self._engine.step()
        except LoadFailed as error:
            sys.stderr.write(f"{error}\n")
            self._report_pools()
            self.exit_code = EXIT_UNAVAILABLE
        except Exception as error:
            # Whatever a native engine raises in a step, its state is unknown from here on; a fresh
            # process is the only state that is known.
            sys.stderr.write(f"the engine broke in a step: {type(error).__name__}: {error}\n")
            self.exit_code = EXIT_SOFTWARE
        else:
            self._tell(report)
        finally:
            self.stepping = False

    def _tell(self, report: StepReport) -> None:
        self.steps += report.stepped
        if report:
            self._out.post(
                Step(
                    n=self.steps,
                    outputs=report.outputs,
                    prefilled=report.prefilled,
                    ended=report.ended,
                    freed=report.freed,
                    snapshot=report.snapshot,
                )
            )
        if report.pools_changed:
            self._report_pools()
        if report.raw:
            self._out.post_raw(report.raw)
