"""When to come back: from the measured drain rate, and not at the same moment for everybody.

Each class has a drain clock. A refusal for room is told the time at which the clock says there is
room, and moves the clock on by its own size, so that the next one is told a later time. A refusal
for one's own quota reads the clock's rate but does not move it: nobody can push others back by
being refused. No measured rate, no hint.
"""

from onegate.admission.model import Refused
from onegate.admission.queue import Backpressure, ClassQueue

DRAIN_BASE_NS = 1_000_000_000
DRAIN_STEP_NS = 20_000_000
DRAIN_STEPS = 200


def retry_after_ns(
    queue: ClassQueue, full: Backpressure, tok: int, now_ns: int, *, commit: bool
) -> int | None:
    """The hint for a newcomer of `tok` tokens; with `commit` others are told to come later."""
    rate = queue.rate.tok_per_ns(now_ns)
    if rate is None or full.reason is Refused.TOO_LARGE:
        return None
    wait_ns = round(full.excess_tok / (rate * full.drain_share))
    if full.reason is Refused.PEER_QUOTA:
        return wait_ns
    # The clock runs at most one full queue ahead: beyond that nobody knows anything.
    last_ns = now_ns + round(queue.spec.max_queued_tok / rate)
    due_ns = min(max(queue.drain_clock_ns, now_ns + wait_ns), last_ns)
    if commit:
        queue.drain_clock_ns = due_ns + round(tok / rate)
    return due_ns - now_ns


def drain_hint_ns(place: int) -> int:
    """When to come back after a shutdown: spread out by place in line, not by chance."""
    return DRAIN_BASE_NS + place % DRAIN_STEPS * DRAIN_STEP_NS
