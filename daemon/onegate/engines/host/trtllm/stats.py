"""The engine's own statistics: one thread asks for them, and nobody else does, because asking takes
them away. It may wait for the worker meanwhile, which the loop must not."""

import json
import math
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from onegate.engines.host.trtllm.messages import Iteration

# How long the library may wait for an entry, and we before asking again.
_ASK_S = 0.1
_PAUSE_S = 0.05
# The same after a failure; twice as long after each further one.
_AGAIN_S = 1.0
_AGAIN_MAX_S = 60.0

GetStats = Callable[..., list[Any]]
Hear = Callable[[list[Iteration]], None]


class StatsPoller:
    """Calls `hear`, in its own thread, with the steps that the engine has made. An engine that is
    idle makes none and says nothing."""

    def __init__(self, get_stats: GetStats, hear: Hear) -> None:
        self._get_stats = get_stats
        self._hear = hear
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trtllm statistics", daemon=True)
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        """Ask no more."""
        self._over.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        pause_s, said = _PAUSE_S, False
        while not self._over.wait(pause_s):
            try:
                entries = self._get_stats(timeout=_ASK_S)
            except Exception as error:
                # Figures are no reason to stop serving: they are None until there are some again.
                # A worker that is busy may let one question time out.
                if not said and not self._over.is_set():
                    text = f"{type(error).__name__}: {error}"
                    sys.stderr.write(f"the engine gives no statistics, it is asked again: {text}\n")
                pause_s = _AGAIN_S if not said else min(_AGAIN_MAX_S, pause_s * 2)
                said = True
                continue
            if said:
                sys.stderr.write("the engine gives statistics again\n")
            pause_s, said = _PAUSE_S, False
            if entries:
                self._hear([iteration_of(entry) for entry in entries])


def iteration_of(entry: object) -> Iteration:
    """One entry, a table or its JSON. What is missing, or is no number, is None.

    Left out on purpose: `numQueuedRequests`, which is not the length of the queue, and
    `cpuMemUsage`, which is always 0.
    """
    table = _table(entry)
    cache, batch = _table(table.get("kvCacheStats")), _table(table.get("inflightBatchingStats"))
    return Iteration(
        latency_ms=_number(table, "iterLatencyMS"),
        prompt_tok=_whole(batch, "numCtxTokens"),
        answers=_whole(batch, "numGenRequests"),
        scheduled=_whole(batch, "numScheduledRequests"),
        blocks=_whole(cache, "maxNumBlocks"),
        blocks_used=_whole(cache, "usedNumBlocks"),
        block_tok=_whole(cache, "tokensPerBlock"),
    )


def _table(entry: object) -> Mapping[str, Any]:
    if isinstance(entry, str):
        try:
            entry = json.loads(entry)
        except (ValueError, RecursionError):
            return {}
    return entry if isinstance(entry, Mapping) else {}


def _number(table: Mapping[str, Any], key: str) -> float | None:
    value = table.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def _whole(table: Mapping[str, Any], key: str) -> int | None:
    value = _number(table, key)
    return None if value is None else int(value)
