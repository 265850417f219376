"""Signs of life to the daemon from a second thread, so that they go on during a long step."""

import threading
from collections.abc import Callable
from types import TracebackType

from onegate.engines.host.outbox import DaemonGone

HEARTBEAT_S = 1.0


class Heart:
    """Calls `beat` every second while the context lasts; it is silent when that is left.

    `gone` is called, by the second thread, when `beat` raises DaemonGone: the loop's own thread
    may be inside a step that never ends.
    """

    def __init__(
        self, beat: Callable[[], None], *, gone: Callable[[], None], every_s: float = HEARTBEAT_S
    ) -> None:
        self._beat = beat
        self._gone = gone
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heart":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        # Its socket is closed next, and the number could be another connection's by then.
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every_s):
            try:
                self._beat()
            except DaemonGone:
                self._gone()
                return
