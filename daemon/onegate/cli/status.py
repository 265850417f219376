"""`onegate status`: what runs, what waits, and what limits it."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onegate.cli.closed import paused, released
from onegate.cli.options import Json, Socket
from onegate.cli.terminal import console, say, say_json, visible
from onegate.client.sync import Client
from onegate.protocol.status import ClassStatus, PoolStatus, Quantiles, RequestStatus, Status

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "-"


def status(
    *,
    verbose: Annotated[
        bool, Parameter(name=["--verbose", "-v"], negative="", help="Also what was learned.")
    ] = False,
    json: Json = False,
    socket: Socket = None,
) -> None:
    """Show what runs, what waits, the limits, and what is wrong.

    Counts and waiting times are everybody's; of single requests you see your own, an
    administrator sees all. A figure that is not known is `-`, in JSON null.

    **Examples**

    ```
    onegate status
    onegate status --verbose
    onegate status --json
    ```
    """
    with Client(socket, app="onegate status") as gate:
        report = gate.status()
        requests = [] if json else gate.requests()
    if json:
        say_json(report)
        return
    for line in headlines(report):
        say(line)
    out = console()
    tables = [pools(report.pools), classes(report.classes), *live(requests)]
    if verbose:
        tables += [steps(report.pools), tokens(report.classes)]
    for table in tables:
        out.print(table)


def headlines(report: Status) -> list[str]:
    """The gate as a whole, what is closed, and every notice that holds."""
    gate = report.gate
    lines = [
        f"onegate {report.version}: {report.state}, up {span(report.uptime_s)}",
        f"in flight {gate.in_flight} of {gate.max_in_flight}, waiting {gate.queued} "
        f"({gate.queued_tok} of {gate.max_queued_tok} tokens), connections {gate.sessions}"
        + (f", limited by {gate.limited_by}" if gate.limited_by is not None else ""),
    ]
    lines += [f"{pool.model} is {released(pool)}" for pool in report.pools if _is_released(pool)]
    lines += [f"class {cls.name} is {paused(cls)}" for cls in report.classes if cls.paused]
    lines += [f"notice {notice.code}: {notice.detail}" for notice in report.notices]
    lines += [f"{pool.model}: {pool.error}" for pool in report.pools if pool.error]
    return lines


def _is_released(pool: PoolStatus) -> bool:
    return pool.state == "released"


def pools(found: list[PoolStatus]) -> "Table":
    """One row per model."""
    table = _table("model", "state", "seats", "quarantined", "KV tokens", "step ms", "tok/s")
    for pool in found:
        table.add_row(
            *_cells(
                pool.model,
                pool.state,
                f"{pool.seats_used} of {pool.seats}",
                pool.seats_quarantined,
                f"{_known(pool.kv_tok_used)} of {_known(pool.kv_tok)}",
                quantiles(pool.step_ms),
                None if pool.tok_per_s is None else f"{pool.tok_per_s:.0f}",
            )
        )
    return table


def classes(found: list[ClassStatus]) -> "Table":
    """One row per class."""
    table = _table(
        *("class", "running", "waiting", "tokens", "wait", "started", "finished", "refused"),
        *("cancelled", "expired", "failed", "TTFT ms"),
    )
    for cls in found:
        table.add_row(
            *_cells(
                cls.name + (" (paused)" if cls.paused else ""),
                cls.running,
                cls.queued,
                f"{cls.queued_tok} of {cls.max_queued_tok}",
                None if cls.expected_wait_ms is None else f"{cls.expected_wait_ms / 1000:.1f} s",
                cls.admitted,
                cls.finished,
                refusals(cls.rejected),
                cls.cancelled,
                cls.expired,
                cls.failed,
                quantiles(cls.ttft_ms),
            )
        )
    return table


def steps(found: list[PoolStatus]) -> "Table":
    """One row per model: how long a step takes, and how far that is off."""
    table = _table(
        *("model", "a step ms", "a prompt token ms", "a sequence ms", "error", "steps", "newest")
    )
    for pool in found:
        if (known := pool.step_model) is None:
            table.add_row(*_cells(pool.model, *([None] * 6)))
            continue
        prefill_ms = known.prefill_ms_per_tok
        table.add_row(
            *_cells(
                pool.model,
                f"{known.step_ms:.2f}",
                None if prefill_ms is None else f"{prefill_ms:.4f}",
                f"{known.decode_ms_per_seq:.3f}",
                None if known.error is None else f"{known.error:.1%}",
                known.steps,
                f"{span(known.age_ms / 1000)} ago",
            )
        )
    return table


def tokens(found: list[ClassStatus]) -> "Table":
    """One row per class: what was computed, and what of it more than once or for nothing."""
    table = _table(
        *("class", "prompt tok", "cached", "computed again", "output tok", "made for nothing")
    )
    for cls in found:
        table.add_row(
            *_cells(
                cls.name,
                cls.prompt_tok,
                cls.cached_tok,
                cls.recomputed_tok,
                cls.output_tok,
                cls.discarded_tok,
            )
        )
    return table


def live(found: list[RequestStatus]) -> list["Table"]:
    """One row per request that may be seen; no table where there is none."""
    if not found:
        return []
    table = _table("request", "class", "state", "age", "prompt", "output", "whose")
    for request in found:
        table.add_row(
            *_cells(
                request.rid,
                request.class_,
                request.state,
                span(request.age_ms / 1000),
                request.prompt_tok,
                request.output_tok,
                "mine" if request.mine else request.principal,
            )
        )
    return [table]


def refusals(rejected: dict[str, int]) -> str:
    """`3`, or with the reasons where there are any: `3 (tokens_full 2, paused 1)`."""
    reasons = ", ".join(f"{reason} {n}" for reason, n in rejected.items() if n)
    total = sum(rejected.values())
    return f"{total} ({reasons})" if reasons else str(total)


def quantiles(found: Quantiles | None) -> str | None:
    """Median and 95th percentile."""
    return None if found is None else f"{found.p50:.0f} / {found.p95:.0f}"


def span(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = int(seconds)
    for size, name, smaller, smaller_name in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller} {smaller_name}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{seconds:.1f} s"


def _table(*columns: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i < 2 else "right", overflow="fold")
    return table


def _cells(*values: object) -> list[str]:
    return [visible(_known(value)) for value in values]


def _known(value: object) -> str:
    return UNKNOWN if value is None else str(value)
