"""Whether a part of a run can be believed, and if not, why."""

from collections.abc import Sequence

from msgspec import Struct

from onegate.bench.machine import Use
from onegate.bench.record import Record
from onegate.bench.stats import quantiles
from onegate.bench.wire import Effort


class Bounds(Struct, frozen=True, kw_only=True):
    """What a part may show before it counts as noise.

    A generator above its budget queues inside itself, and would measure that; one that stood still
    gave what came meanwhile a later time. Cores that wait for
    each other are normal where the engine computes on them, so CPU pressure alone is shown and not
    judged; memory and disk pressure, stolen time and the work of strangers are.
    """

    late_p99_ms: float = 10.0
    lag_ms: float = 250.0
    cpu_budget: float = 0.8
    steal_share: float = 0.02
    memory_full: float = 0.01
    io_full: float = 0.10
    foreign_share: float = 0.15


def complaints(
    records: Sequence[Record],
    efforts: Sequence[Effort],
    use: Use,
    bounds: Bounds,
    *,
    divisible: bool = True,
) -> list[str]:
    """One sentence for everything that was beyond its bound. `divisible`: whether more generators
    would share the work."""
    found = []
    late = quantiles([ms for r in records if (ms := r.lateness_ms) is not None])
    if late.p99 is not None and late.p99 > bounds.late_p99_ms:
        found.append(
            f"the generator was late: p99 {late.p99:.1f} ms, at most {bounds.late_p99_ms:g} ms"
        )
    lag_ms = max((effort.lag_ms for effort in efforts), default=0.0)
    if lag_ms > bounds.lag_ms:
        found.append(
            f"a generator read nothing for {lag_ms:.0f} ms, at most {bounds.lag_ms:g} ms: "
            "what came meanwhile has too late a time"
        )
    advice = (
        "use more of them (--generators)"
        if divisible
        else "more would not help, as a host has one and a client is never divided: lower the rates"
    )
    for effort in efforts:
        share = effort.cpu_s / max(effort.wall_s, 1e-9)
        if share > bounds.cpu_budget:
            found.append(
                f"a generator took {share:.0%} of a core, its budget is {bounds.cpu_budget:.0%}: "
                f"{advice}"
            )
    judged = (
        ("stolen by other virtual machines", use.steal_share, bounds.steal_share),
        ("used by other programs", use.foreign_share, bounds.foreign_share),
    )
    for what, share_of, most in judged:
        if share_of is not None and share_of > most:
            found.append(f"{share_of:.0%} of the cores was {what}, at most {most:.0%}")
    pressures = (("memory_full", bounds.memory_full), ("io_full", bounds.io_full))
    for name, most in pressures:
        if (stalled := use.pressure.get(name)) is not None and stalled > most:
            word = name.partition("_")[0]
            found.append(f"everything stood still for {word} {stalled:.0%} of the time")
    return found
