"""Fills RESULTS.md beside this file: python -m tests.perf.measure [--quick] [GROUP...]

Daemons and engine hosts are this script's own and gone at its end. Takes an hour, some minutes with
--quick, and wants a machine that does nothing else; what should not be believed is marked.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack

from tests.perf import flood, servers
from tests.perf.results import keep, section
from tests.perf.rigs import Row, conduct, daemon, engine, host, measure, of, spread, together

from onegate import AsyncClient
from onegate.bench.read import check_scenario
from onegate.bench.report import Document


def throughput(repeats: int, window_s: float) -> Iterator[Row]:
    """Every seat taken all the time, on both sides."""
    for streams in (1, 4, 16):
        config = engine(max_seqs=streams, a_ms=20.0, b_ms_per_prefill_tok=0.02, c_ms_per_seq=0.5)
        text = f"""
            duration_s = {window_s}
            warmup_s = 1
            [[class]]
            name = "load"
            asks = "interactive"
            clients = {streams}
            cut = true
            arrivals = {{ kind = "deterministic", rate_per_s = {0.8 * streams} }}
            prompt = {{ tok = 64 }}
            output = {{ tok = 64 }}
            """
        with daemon(config) as gate, host(config) as bare:
            doc = measure(text, {"A": gate, "B": bare}, repeats)
        ratio = of(doc.ratios, "load", "tokens/s")
        yield Row(
            f"tokens/s through the daemon ÷ on a bare host, {streams} streams",
            spread(ratio.ratio),
            spread(ratio.noise),
            "≥ 0.95",
            ratio.ratio.median >= 0.95,
            doc.quiet,
        )


def added_ttft(repeats: int, window_s: float) -> Iterator[Row]:
    """One request at a time."""
    config = engine(max_seqs=16, a_ms=10.0)
    text = f"""
        duration_s = {window_s}
        [[class]]
        name = "probe"
        asks = "interactive"
        arrivals = {{ kind = "poisson", rate_per_s = 5 }}
        prompt = {{ tok = 64 }}
        output = {{ tok = 4 }}
        """
    with daemon(config) as gate, host(config) as bare:
        doc = measure(text, {"A": gate, "B": bare}, repeats)
    ratio = of(doc.ratios, "probe", "TTFT p50")
    yield Row(
        "added TTFT p50, daemon less bare host",
        f"{ratio.difference.median:+.2f} ms ({ratio.difference.low:+.2f} to "
        f"{ratio.difference.high:+.2f})",
        f"{of(doc.noise, 'probe', 'TTFT p50').difference.median:+.2f} ms",
        "≤ 5 ms",
        ratio.difference.median <= 5.0,
        doc.quiet,
    )


STREAMS = """
    duration_s = {window_s}
    warmup_s = 2
    drain_s = 2
    isolate = {isolate}
    [[class]]
    name = "probe"
    asks = "interactive"
    arrivals = {{ kind = "poisson", rate_per_s = 4 }}
    prompt = {{ tok = 64 }}
    output = {{ tok = 2 }}
    [[class]]
    name = "streams"
    asks = "interactive"
    clients = 64
    cut = true
    arrivals = {{ kind = "burst", size = 64, every_s = {every_s} }}
    prompt = {{ tok = 64 }}
    output = {{ tok = {output_tok} }}
    """


def crowd(repeats: int, window_s: float) -> Iterator[Row]:
    """1,000 idle connections and 64 streams: the daemon's own share of what a probe waits."""
    config = engine(max_seqs=128, a_ms=20.0)
    text = STREAMS.format(
        window_s=window_s, every_s=window_s, output_tok=round(window_s * 50), isolate="[]"
    )
    with daemon(config) as crowded, daemon(config) as empty:
        sides = {"A": crowded, "B": empty}
        measured = conduct(check_scenario(text), sides, repeats, noise=True)
        doc = asyncio.run(with_idle(crowded.where, 1000, measured))
    ratio = of(doc.ratios, "probe", "TTFT p50")
    yield Row(
        "TTFT p50 beside 64 streams: with 1,000 idle connections ÷ without",
        spread(ratio.ratio),
        spread(ratio.noise),
        "no slower, within noise",
        # Which of two equal sides is above the line is chance.
        ratio.ratio.median <= max(ratio.noise.high, 1 / ratio.noise.low),
        doc.quiet,
    )
    text = STREAMS.format(
        window_s=window_s, every_s=window_s, output_tok=round(window_s * 50), isolate='["probe"]'
    )
    with daemon(config) as gate, host(config) as bare:
        doc = measure(text, {"A": gate, "B": bare}, repeats)
    ratio = of(doc.ratios, "probe", "TTFT p50")
    yield Row(
        "TTFT p50 beside 64 streams: daemon ÷ bare host",
        spread(ratio.ratio),
        spread(ratio.noise),
        "",
        None,
        doc.quiet,
    )
    found = of(doc.interference["A"], "probe", "TTFT p50")
    yield Row(
        "TTFT p50 through the daemon: beside 64 streams ÷ alone (with the phase of 20 ms steps)",
        f"{spread(found.ratio)}, {found.difference.median:+.1f} ms",
        "",
        "",
        None,
        doc.quiet,
    )


async def with_idle(path: str, count: int, measured: Coroutine[None, None, Document]) -> Document:
    """Measure while so many connections lie open and silent."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(AsyncClient(path))
        return await measured


def daemon_cpu(repeats: int, window_s: float) -> Iterator[Row]:
    """64 streams of 20 tokens a second, on both event loops."""
    config = engine(max_seqs=64, a_ms=50.0)
    text = STREAMS.format(
        window_s=window_s, every_s=window_s, output_tok=round(window_s * 20), isolate="[]"
    ).replace("rate_per_s = 4", "rate_per_s = 0.1")
    with daemon(config) as gate, daemon(config, "asyncio") as plain:
        doc = measure(text, {"A": gate, "B": plain}, repeats, noise=False)
    for side, loop in (("A", "uvloop"), ("B", "asyncio")):
        shares = [
            part.use.cores[f"{side} itself"]
            for part in doc.parts
            if part.part.startswith(f"measure {side},")
        ]
        tokens = sum(r.tok_per_s for r in together(doc, side))
        yield Row(
            f"daemon CPU at 64 streams × 20 tok/s on {loop} ({tokens:.0f} tok/s came)",
            f"{sorted(shares)[len(shares) // 2]:.1%} of a core ({min(shares):.1%} to "
            f"{max(shares):.1%})",
            "",
            "aim ≤ 5 %",
            None,
            doc.quiet,
        )


def loops(repeats: int, window_s: float) -> Iterator[Row]:
    """Short answers, many of them: what a request costs on either loop."""
    config = engine(max_seqs=128, a_ms=4.0)
    text = f"""
        duration_s = {window_s}
        [[class]]
        name = "many"
        asks = "interactive"
        clients = 16
        arrivals = {{ kind = "poisson", rate_per_s = 100 }}
        prompt = {{ tok = 16 }}
        output = {{ tok = 8 }}
        """
    with daemon(config) as gate, daemon(config, "asyncio") as plain:
        doc = measure(text, {"A": gate, "B": plain}, repeats)
    for name in ("TTFT p50", "TTFT p99"):
        ratio = of(doc.ratios, "many", name)
        yield Row(
            f"{name} at 100 requests/s: uvloop ÷ asyncio",
            spread(ratio.ratio),
            spread(ratio.noise),
            "",
            None,
            doc.quiet,
        )


def closed_form(repeats: int, window_s: float) -> Iterator[Row]:
    """A bare host with 100 ms steps and answers that do not meet."""
    config = engine(
        max_seqs=16, a_ms=100.0, b_ms_per_prefill_tok=1.0, c_ms_per_seq=10.0, max_step_tok=4096
    )
    text = f"""
        duration_s = {window_s}
        warmup_s = 0.7
        [[class]]
        name = "chat"
        arrivals = {{ kind = "deterministic", rate_per_s = {1 / 0.7} }}
        prompt = {{ tok = 50 }}
        output = {{ tok = 5 }}
        limits = {{ ttft_ms = 1000 }}
        """
    with host(config) as bare:
        doc = measure(text, {"A": bare}, repeats, noise=False)
    (row,) = together(doc, "A")
    for name, found, expected in (
        ("TTFT p50", row.ttft_ms.p50, 150.0),
        ("TTFT p99", row.ttft_ms.p99, 150.0),
        ("ITL p50", row.itl_ms.p50, 110.0),
        ("ITL p99", row.itl_ms.p99, 110.0),
        ("goodput", row.goodput_per_s, row.offered_per_s),
    ):
        assert found is not None
        off = found / expected - 1
        yield Row(
            f"the harness against the closed form: {name}",
            f"{found:.2f}, not {expected:.2f}: {off:+.2%}",
            "",
            "within 3 %",
            abs(off) <= 0.03,
            doc.quiet,
        )


def generator(repeats: int, window_s: float) -> Iterator[Row]:
    """500 scheduled arrivals a second from one generator."""
    text = f"""
        duration_s = {window_s}
        [[class]]
        name = "many"
        clients = 16
        arrivals = {{ kind = "deterministic", rate_per_s = 500 }}
        prompt = {{ tok = 16 }}
        output = {{ tok = 4 }}
        """
    with host(engine(max_seqs=128, a_ms=4.0)) as bare:
        doc = measure(text, {"A": bare}, repeats, noise=False)
    (row,) = together(doc, "A")
    cores = max(share for part in doc.parts for share in part.generator_cores)
    assert row.late_ms.p99 is not None
    yield Row(
        "the generator at 500 arrivals/s",
        f"{row.offered_per_s:.0f}/s sent, {cores:.0%} of a core, p99 late {row.late_ms.p99:.1f} ms",
        "",
        "one core, p99 late ≤ 10 ms",
        cores <= 1.0 and row.late_ms.p99 <= 10.0,
        doc.quiet,
    )


Figure = Callable[[int, float], Iterator[Row]]
# Titles, how many windows long a repeat is, and what is measured.
GROUPS: dict[str, tuple[str, int, tuple[Figure, ...]]] = {
    "gate": (
        "The gate itself",
        1,
        (closed_form, generator, throughput, added_ttft, crowd, daemon_cpu, loops),
    ),
    "flood": ("A person beside a flood", flood.WINDOWS, (flood.flood,)),
    "frontier": ("The frontier", flood.WINDOWS, (flood.frontier,)),
    "servers": ("Servers of somebody else's", 1, (servers.chunks, servers.waits)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="few and short repeats")
    parser.add_argument("--repeats", type=int, help="how many, instead")
    parser.add_argument("--window", type=float, help="seconds of a repeat, instead")
    parser.add_argument("--print", action="store_true", help="do not write the file")
    arguments = parser.parse_args()
    if unknown := set(arguments.groups) - set(GROUPS):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(GROUPS)}")
    repeats, window_s = (2, 5.0) if arguments.quick else (5, 15.0)
    repeats, window_s = arguments.repeats or repeats, arguments.window or window_s
    for name in arguments.groups or GROUPS:
        title, times, figures = GROUPS[name]
        rows: list[Row] = []
        for figure in figures:
            for row in figure(repeats, window_s):
                sys.stderr.write(f"{row.figure}: {row.measured} {row.bar}\n")
                rows.append(row)
        text = section(rows, f"{repeats} repeats of {times * window_s:g} s")
        if arguments.print:
            sys.stdout.write(text)
        else:
            keep(title, text)


if __name__ == "__main__":
    # With its daemons and servers, which would go on and be measured beside the next run.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
