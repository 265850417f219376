"""Requests inside the library, all of them on one loop. Everything here is called on that loop."""

import asyncio
from collections.abc import Callable
from typing import Any

from onegate.clock import monotonic_ns
from onegate.engines.host.trtllm.faults import is_request_error
from onegate.engines.host.trtllm.messages import (
    Broken,
    Failed,
    Finished,
    Gone,
    Message,
    Tokens,
)
from onegate.engines.host.trtllm.watch import Watch
from onegate.tasks import Tasks

# How long an aborted request may take to answer. One that was still in the engine's own queue may
# never do it; what runs answers with the next step.
ABORT_S = 3.0
_MOST_CHARS = 200

Generate = Callable[[], Any]


class _Run:
    __slots__ = ("aborted", "output", "task")

    def __init__(self, output: Any) -> None:
        self.output = output
        self.task: asyncio.Task[None] | None = None
        self.aborted = False


class Runs:
    """`post` hands messages to the host's thread. What comes in the same turn of the loop goes in
    one message, so that the steps of the engine stay together."""

    def __init__(
        self, post: Callable[..., None], watch: Watch, *, abort_s: float = ABORT_S
    ) -> None:
        self._post = post
        self._watch = watch
        self._abort_s = abort_s
        self._runs: dict[int, _Run] = {}
        self._said: list[Message] = []
        self._tasks = Tasks(lambda name, error: self.say(Broken(f"{name}: {error!r}")))

    def submit(self, id: int, generate: Generate) -> None:
        """Call `generate`, which returns the library's output object, and follow that.

        Raises what the call raises; then nothing of the request is inside.
        """
        run = _Run(generate())
        self._runs[id] = run
        self._watch.entered(monotonic_ns())
        run.task = self._tasks.spawn(self._follow(id, run), name=f"request {id}")

    def abort(self, id: int) -> None:
        """Ask the library to stop a request; what it holds is told of later. Unknown ids are
        ignored."""
        run = self._runs.get(id)
        if run is None or run.aborted:
            return
        _abort(run)
        asyncio.get_running_loop().call_later(self._abort_s, self._give_up, id, run)

    def say(self, message: Message) -> None:
        """Post a message together with what else comes in this turn of the loop."""
        if not self._said:
            asyncio.get_running_loop().call_soon(self._flush)
        self._said.append(message)

    async def aclose(self) -> None:
        """Nothing is followed any more, and everything is aborted."""
        await self._tasks.aclose()
        for run in self._runs.values():
            # Its task had not begun, and a task that has not does not clean up either.
            _abort(run)
        self._runs.clear()

    def _flush(self) -> None:
        said, self._said = self._said, []
        self._post(*said)

    async def _follow(self, id: int, run: _Run) -> None:
        try:
            reason, cached_tok = await self._read(id, run.output)
            self.say(Finished(id, reason, cached_tok))
        except Exception as error:
            if not is_request_error(error):
                # It may be any serious error of the engine's, and none of them is about a request.
                self.say(Broken(f"{type(error).__name__}: {str(error)[:_MOST_CHARS]}"))
                return
            # The output is not `finished` now and never will be: it is not touched again.
            run.aborted = True
            self._watch.doubt("the engine failed a request", monotonic_ns())
            self.say(Failed(id, f"the engine failed it: {str(error)[:_MOST_CHARS]}"))
        finally:
            if self._runs.pop(id, None) is not None:
                self._watch.left()
            # Whatever ended this, the library is not to go on for nobody.
            if not run.output.finished and not run.aborted:
                _abort(run)

    async def _read(self, id: int, output: Any) -> tuple[str, int | None]:
        async for part in output:
            completion = part.outputs[0]
            # Copied now: the library goes on in the same object.
            ids = [int(token) for token in completion.token_ids_diff]
            if ids:
                self._watch.progress(monotonic_ns())
                self.say(Tokens(id, ids))
            if part.finished:
                self._watch.progress(monotonic_ns())
                cached = getattr(part, "cached_tokens", None)  # later than 1.0
                return str(completion.finish_reason), int(cached) if cached else None
        raise RuntimeError("the library ended a request without finishing it")

    def _give_up(self, id: int, run: _Run) -> None:
        if self._runs.get(id) is not run:
            return
        del self._runs[id]
        self._watch.left()
        self._watch.doubt("an abort was not answered", monotonic_ns())
        self.say(Gone(id))
        if run.task is not None:
            run.task.cancel()


def _abort(run: _Run) -> None:
    run.aborted = True
    abort_output(run.output)


def abort_output(output: Any) -> None:
    """Ask the library to stop what makes this output."""
    try:
        output.abort()
    except Exception:
        # After a shutdown it raises one thing or another, and there is nothing left to abort.
        return
