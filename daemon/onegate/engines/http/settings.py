"""How an HTTP engine is run: deadlines and bounds, made from the configuration."""

from dataclasses import dataclass


@dataclass(frozen=True)
class HttpSettings:
    """Seconds each.

    `first_s` from a request to its first item, `idle_s` between items, `confirm_s` until a server
    must have let go of a request whose connection was closed, `watch_s` between looks.
    """

    first_s: float
    idle_s: float
    confirm_s: float
    watch_s: float
    backoff_first_ms: int
    backoff_max_ms: int
    backoff_reset_s: float
