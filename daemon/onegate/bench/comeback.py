"""What a refused caller does next."""

from msgspec import Struct

from onegate.bench.scenario import Retry
from onegate.bench.targets.base import Refused

# A caller that hammers still needs the time in which any program notices a refusal.
HAMMER_MS = 10.0


class Comeback(Struct, frozen=True):
    """Ask again after `wait_ms`, with the ticket if there is one."""

    wait_ms: float
    ticket: str | None = None


def comeback(rule: Retry, refusal: Refused, attempts: int) -> Comeback | None:
    """The next attempt after `attempts` of them, None where there is none."""
    if rule.kind == "never" or attempts >= rule.most:
        return None
    if rule.kind == "hammer":
        return Comeback(HAMMER_MS)
    if rule.kind == "constant" or refusal.retry_after_ms is None:
        return Comeback(float(rule.wait_ms))
    return Comeback(refusal.retry_after_ms, refusal.ticket)
