"""One loaded model: the library's object, the loop that its requests are on, and who watches it."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from onegate.clock import monotonic_ns
from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.processes import MARK, Process, command, is_alive, kill, started_by
from onegate.engines.host.trtllm.library import Library
from onegate.engines.host.trtllm.looped import LoopThread
from onegate.engines.host.trtllm.messages import Broken, Iteration, Iterations
from onegate.engines.host.trtllm.runs import Runs, abort_output
from onegate.engines.host.trtllm.sampling import params_of
from onegate.engines.host.trtllm.stats import StatsPoller
from onegate.engines.host.trtllm.watch import PROOF_S, Watch
from onegate.engines.host.warden import WARDEN
from onegate.tasks import Tasks

# A call that only queues something; where it takes longer, the loop is blocked.
_SUBMIT_S = 10.0
_TICK_S = 0.25
_LOOP_S = 0.4
# How long workers may take to end behind a shutdown.
_GONE_S = 10.0
_PAUSE_S = 0.01
_NS_PER_S = 1e9
# No principal has this name, so the canary shares its cache with nobody.
_CANARY_SALT = "onegate canary"
_ONE = {"max_tokens": 1, "n": 1, "ignore_eos": True, "detokenize": False}
_GREEDY = {**_ONE, "top_k": 1}
# Every filter at once: its kernels may be compiled at their first use, which takes as long as a
# stall, and no request is to be taken for one.
_DRAWN = {**_ONE, "temperature": 1.0, "top_k": 50, "top_p": 0.9}


class Session:
    """Built in the thread that loads; used by the host's own. `post` hands messages to that."""

    def __init__(
        self,
        library: Library,
        llm: Any,
        post: Callable[..., None],
        *,
        canary_ids: list[int],
        salted: bool,
        stall_s: float,
    ) -> None:
        self.library = library
        self.llm = llm
        self.figures = Iteration()
        self._post = post
        self._canary_ids = canary_ids
        self._salted = salted
        self._looped = LoopThread()
        self._watch = Watch(stall_s, monotonic_ns())
        self._runs = Runs(post, self._watch)
        self._tasks = Tasks(lambda name, error: post(Broken(f"{name}: {error!r}")))
        self._workers: list[Process] = []
        self._measured = threading.Event()
        self._poller = StatsPoller(llm.get_stats, self._hear)
        self._canary: asyncio.Task[None] | None = None
        self._ended = False
        self._shutdown_failed = False

    def warm_up(self, timeout_s: float, *, figures_s: float = 5.0) -> None:
        """Have a token generated in each way there is, which proves that the engine does, and wait
        for its first figures, for which there must have been a request.

        Raises TimeoutError where one of them does not come in time, and what the library raises.
        """
        for values in (_GREEDY, _DRAWN):
            asked = asyncio.run_coroutine_threadsafe(self._one_token(values), self._looped.loop)
            try:
                asked.result(timeout_s)
            finally:
                asked.cancel()
        self._measured.wait(figures_s)

    def begin_to_watch(self) -> None:
        """From here on the workers that exist now are expected to stay."""
        self._workers = _started()
        self._looped.tell(lambda: self._tasks.spawn(self._guard(), name="watch"))

    def submit(
        self,
        id: int,
        ids: list[int],
        values: dict[str, Any],
        guide: dict[str, Any] | None,
        *,
        salt: str,
        priority: float,
    ) -> None:
        """Hand a request over; its tokens come by messages. Raises what the library raises for it,
        and TimeoutError where its loop is blocked."""

        def generate() -> Any:
            return self._generate(ids, values, guide, salt=salt, priority=priority)

        self._looped.ask(_SUBMIT_S, self._runs.submit, id, generate)

    def abort(self, id: int) -> None:
        """Stop a request; a message says when it is gone."""
        self._looped.tell(self._runs.abort, id)

    def end(self, timeout_s: float) -> bool:
        """Free the model. The library's own shutdown waits without a limit, so it does so in a
        thread, and its workers are killed where it takes longer or fails; False then: what is left
        of it in this process may hang for ever, and MPI does not start anything again."""
        if self._ended:
            return True
        self._ended = True
        ends_ns = monotonic_ns() + int(timeout_s * _NS_PER_S)
        workers = self._workers or _started()
        closing = asyncio.run_coroutine_threadsafe(self._stop(), self._looped.loop)
        shutdown = threading.Thread(target=self._shutdown, args=(closing,), daemon=True)
        shutdown.start()
        shutdown.join(timeout_s)
        if shutdown.is_alive() or self._shutdown_failed:
            kill(workers)
            return False
        self._see_off(workers, ends_ns)
        # Not before: until then the library delivers to it.
        return self._looped.end(_LOOP_S)

    def _see_off(self, workers: list[Process], ends_ns: int) -> None:
        """Wait for the workers to be gone: the memory is free when they are, and MPI's pool does
        not wait for it."""
        ends_ns = min(ends_ns, monotonic_ns() + int(_GONE_S * _NS_PER_S))
        leaving = [worker for worker in workers if not stays(worker)]
        pause = threading.Event()
        while any(map(is_alive, leaving)) and monotonic_ns() < ends_ns:
            pause.wait(_PAUSE_S)

    def _shutdown(self, closing: Any) -> None:
        closing.result()
        self._poller.end(1.0)
        try:
            self.llm.shutdown()
        except Exception as error:
            # It raises where a worker was dead before.
            sys.stderr.write(f"the shutdown failed: {type(error).__name__}: {error}\n")
            self._shutdown_failed = True

    async def _stop(self) -> None:
        await self._tasks.aclose()
        await self._runs.aclose()

    def _generate(
        self,
        ids: list[int],
        values: dict[str, Any],
        guide: dict[str, Any] | None,
        *,
        salt: str,
        priority: float | None = None,
        streaming: bool = True,
    ) -> Any:
        given = {
            "inputs": ids,
            "sampling_params": params_of(self.library, values, guide),
            "streaming": streaming,
        }
        if self._salted and salt:
            given["cache_salt"] = salt
        if priority is not None:
            given["priority"] = priority
        return self.llm.generate_async(**self.library.surface.only("generate_async", given))

    async def _one_token(self, values: dict[str, Any]) -> None:
        output = self._generate(self._canary_ids, values, None, salt=_CANARY_SALT, streaming=False)
        try:
            # It yields once, and is not asked again.
            await anext(output)
        finally:
            if not output.finished:
                abort_output(output)
        self._watch.progress(monotonic_ns())

    async def _guard(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            now_ns = monotonic_ns()
            if not self._is_healthy():
                self._runs.say(Broken("TensorRT-LLM is shutting down by itself"))
                return
            for worker in [w for w in self._workers if not is_alive(w)]:
                self._workers.remove(worker)
                self._watch.doubt(f"process {worker.pid} of TensorRT-LLM has ended", now_ns)
            if self._watch.wants_canary(now_ns):
                # Whether or not it is answered: from now on it counts as a doubt.
                self._watch.doubt("it was asked for a token", now_ns)
                if self._canary is None or self._canary.done():
                    self._canary = self._tasks.spawn(self._sing(), name="canary")
            if (reason := self._watch.verdict(now_ns)) is not None:
                self._runs.say(Broken(reason))
                return

    async def _sing(self) -> None:
        try:
            async with asyncio.timeout(PROOF_S):
                await self._one_token(_GREEDY)
        except TimeoutError:
            return  # the verdict is the watch's

    def _is_healthy(self) -> bool:
        """The library's own flag. It says when a shutdown has begun, and of nothing else."""
        check = getattr(self.llm, "_check_health", None)
        return check is None or bool(check())

    def _hear(self, steps: list[Iteration]) -> None:
        """In the poller's thread."""
        self.figures = steps[-1]
        self._measured.set()
        self._looped.tell(self._progress)
        self._post(Iterations(steps))

    def _progress(self) -> None:
        self._watch.progress(monotonic_ns())


def _started() -> list[Process]:
    """What this process has started, and what that has: the library's workers are among it."""
    return started_by(os.getpid(), os.environ.get(MARK, ""))


def stays(process: Process) -> bool:
    """Whether it is none of the library's workers, and ends with this process: MPI's own daemon,
    Python's, and ours."""
    name, *given = command(process) or [""]
    is_mpi = name.rpartition("/")[2] in ("orted", "prted")
    return is_mpi or any("multiprocessing.resource_tracker" in x or x == WARDEN for x in given)


def no_engine(error: Exception) -> LoadFailed:
    """A model that came up and generates nothing."""
    return LoadFailed(
        "the model was loaded and does not generate "
        f"({type(error).__name__}: {str(error)[:200]}): see the lines above in the journal"
    )
