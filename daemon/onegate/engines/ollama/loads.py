"""Was a request slow because its model had to be loaded first?"""

from onegate.engines.ollama.model import Known

# A runner that is there is in hand within tens of milliseconds; loading the smallest model from
# the page cache took 570 ms where it was measured.
_SURELY_WARM_MS = 250.0
_TIMES_WARM = 5.0


def was_cold(known: Known, waited_ms: float) -> bool:
    """Judges the time until a runner was in hand, and remembers the shortest as what is normal.

    The time says no more than this: waiting behind another model's load looks the same.
    """
    normal_ms = known.warm_load_ms
    if waited_ms <= max(_SURELY_WARM_MS, _TIMES_WARM * (normal_ms or 0.0)):
        known.warm_load_ms = waited_ms if normal_ms is None else min(normal_ms, waited_ms)
        return False
    known.took(waited_ms)
    return True
