"""An event loop that runs in a thread of its own, from the load of a model to its end.

The library delivers from a thread of its own to the loop on which a request was made, and fails
where that is not running at the moment. So it is never one that only runs now and then.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class LoopThread:
    """The loop, running from here on. `end` stops it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="trtllm loop", daemon=True)
        self._thread.start()

    def ask(
        self, timeout_s: float, call: Callable[_P, _T], *given: _P.args, **named: _P.kwargs
    ) -> _T:
        """Run `call` on the loop and wait for its result, or for what it raises.

        Raises TimeoutError where the loop does not come to it in time: something blocks it. Then
        the call is not made later either.
        """
        answer: Future[_T] = Future()

        def run() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(call(*given, **named))
            except BaseException as error:
                # Whatever it is, it belongs to whoever asked.
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            answer.cancel()
            raise

    def tell(self, call: Callable[..., object], *given: object) -> None:
        """Run `call` on the loop when it comes to it; from any thread, after the end in vain."""
        try:
            self.loop.call_soon_threadsafe(call, *given)
        except RuntimeError:
            return  # closed: whoever is told has gone

    def end(self, timeout_s: float) -> bool:
        """Stop it; False where it is blocked and goes on."""
        self.tell(self.loop.stop)
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()
