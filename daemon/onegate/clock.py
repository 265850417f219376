"""The only clocks. Everything that measures or schedules reads time here.

The admission core and the protocol never import this module: they take `now_ns` as an argument.
"""

import time


def monotonic_ns() -> int:
    """Nanoseconds of a clock that never goes back; comparable within this boot only."""
    return time.monotonic_ns()


def wall_ms() -> int:
    """Milliseconds since the Unix epoch, for times that people and other processes read."""
    return time.time_ns() // 1_000_000
