"""What is asked of a target: classes of callers, when each arrives, and what each may expect."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from onegate.config.units import Count, Id, Line, Milliseconds, Name, Seconds, Tok, why

Rate = Annotated[float, Meta(ge=0.001, le=100_000.0)]
Load = Annotated[float, Meta(gt=0.0, le=100.0)]
Spread = Annotated[float, Meta(ge=0.05, le=50.0)]
Portion = Annotated[float, Meta(gt=0.0, le=1.0)]
LimitMs = Annotated[float, Meta(gt=0.0, le=86_400_000.0)]
PauseSeconds = Annotated[float, Meta(ge=0.0, le=86_400.0)]

Phase = Literal["arrival", "queued", "prefill", "decode"]
PHASES: tuple[Phase, ...] = ("arrival", "queued", "prefill", "decode")


def _form(text: str) -> Meta:
    return Meta(extra={"form": text})


class Lengths(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tokens a prompt or an answer has."""

    kind: Annotated[
        Literal["fixed", "uniform", "lognormal"],
        why("always `tok`; evenly from `low_tok` to `high_tok`; or by median and 95th percentile"),
    ] = "fixed"
    tok: Annotated[Tok, why("of `fixed`", "tokens")] = 64
    low_tok: Annotated[Tok | None, why("of `uniform`", "tokens")] = None
    high_tok: Annotated[Tok | None, why("of `uniform`", "tokens")] = None
    p50_tok: Annotated[Tok | None, why("of `lognormal`", "tokens")] = None
    p95_tok: Annotated[Tok | None, why("of `lognormal`", "tokens")] = None
    max_tok: Annotated[Tok | None, why("longer ones are cut to this", "tokens")] = None


class Arrivals(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When requests are sent. They are scheduled: none waits for the answer to another."""

    kind: Annotated[
        Literal["poisson", "deterministic", "gamma", "burst", "trace"],
        why(
            "independent; evenly spaced; bunched by `cv`; `size` at once every `every_s`; or as "
            "recorded in `file`, which has the lengths too"
        ),
    ] = "poisson"
    rate_per_s: Annotated[Rate | None, why("requests a second", "1/s")] = None
    share: Annotated[
        Load | None,
        why("instead of a rate: this share of what the target was measured to finish of this mix"),
    ] = None
    cv: Annotated[Spread, why("of `gamma`: standard deviation of the gaps over their mean")] = 1.0
    size: Annotated[Count, why("of `burst`", "requests")] = 1
    every_s: Annotated[Seconds, why("of `burst`", "s")] = 10.0
    file: Annotated[Line | None, why("of `trace`: an Azure or a Mooncake trace")] = None


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request must meet to count as goodput, all of it; `none` is no limit."""

    ttft_ms: Annotated[LimitMs | None, why("scheduled send to first text", "ms")] = None
    itl_ms: Annotated[LimitMs | None, why("the longest gap between two pieces", "ms")] = None
    tpot_ms: Annotated[LimitMs | None, why("time per token after the first", "ms")] = None
    e2e_ms: Annotated[LimitMs | None, why("scheduled send to end", "ms")] = None


class Leave(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Callers that go away before their answer is whole."""

    share: Annotated[Portion, why("of the requests")] = 1.0
    phases: Annotated[
        list[Phase],
        Meta(min_length=1, max_length=16),
        _form('a list of "arrival", "queued", "prefill", "decode"'),
        why("in turn; where a target does not tell phases, `after_ms` and the first text decide"),
    ] = field(default_factory=lambda: list(PHASES))
    after_ms: Annotated[Milliseconds, why("of `queued`: waited so long", "ms")] = 50
    after_tok: Annotated[Tok, why("of `decode`: read so much", "tokens")] = 3
    by: Annotated[
        Literal["close", "cancel"], why("the connection is closed, or the request is cancelled")
    ] = "close"


class Retry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a refused caller does."""

    kind: Annotated[
        Literal["never", "honour", "hammer", "constant"],
        why("give up; come back when the refusal said; at once; or after `wait_ms`"),
    ] = "never"
    wait_ms: Annotated[
        Milliseconds, why("of `constant`, and of `honour` where a refusal gives no time", "ms")
    ] = 1000
    most: Annotated[Count, why("attempts in all", "attempts")] = 10


class LoadClass(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of caller. `name` is what the results call it."""

    name: Annotated[Name, why("what the results call it")]
    asks: Annotated[
        Name | None, why("the daemon's class to ask for; `none`: the daemon decides")
    ] = None
    clients: Annotated[Count, why("connections that take turns", "clients")] = 1
    uid: Annotated[Id | None, why("run these callers as this user (needs root)")] = None
    start_s: Annotated[
        PauseSeconds,
        why("arrivals begin this long into the run, the first of those evenly spaced then", "s"),
    ] = 0.0
    arrivals: Annotated[Arrivals, why("when")] = Arrivals(rate_per_s=1.0)
    prompt: Annotated[Lengths, why("tokens of the prompt, the chat template's included")] = (
        Lengths()
    )
    output: Annotated[Lengths, why("tokens of the answer")] = Lengths(tok=32)
    cut: Annotated[
        bool,
        why("left at the end of the window, without a drain: work that only fills seats"),
    ] = False
    shared_prefix_tok: Annotated[
        Annotated[int, Meta(ge=0, le=100_000_000)],
        why("tokens that all prompts of the class begin with; 0: no two begin alike", "tokens"),
    ] = 0
    ttft_timeout_ms: Annotated[
        Milliseconds | None,
        why("a request without output so long after it is sent expires", "ms"),
    ] = None
    timeout_ms: Annotated[
        Milliseconds | None, why("a request not over so long after it is sent expires", "ms")
    ] = None
    limits: Annotated[Limits, why("what counts as good")] = Limits()
    leave: Annotated[Leave | None, why("callers that go away")] = None
    retry: Annotated[Retry, why("after a refusal")] = Retry()


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole load. Times are relative to the start of the measured window."""

    title: Annotated[Line, why("one sentence")] = "untitled"
    seed: Annotated[
        Annotated[int, Meta(ge=0, le=1 << 53)], why("same seed, same arrivals, lengths and prompts")
    ] = 1
    duration_s: Annotated[Seconds, why("arrivals of this window are measured", "s")] = 30.0
    warmup_s: Annotated[PauseSeconds, why("arrivals before it, not measured", "s")] = 2.0
    drain_s: Annotated[PauseSeconds, why("what is not over so long after it, is left", "s")] = 30.0
    loads: Annotated[
        list[Load],
        Meta(min_length=1, max_length=32),
        _form("a list of numbers above 0, at most 100"),
        why("every rate, or size of a burst, times this; one part of the run for each"),
    ] = field(default_factory=lambda: [1.0])
    isolate: Annotated[
        list[str],
        Meta(max_length=16),
        _form("a list of names of classes"),
        why("classes that also run alone, for what the others do to them"),
    ] = field(default_factory=list)
    classes: Annotated[tuple[LoadClass, ...], why("one `[[class]]` each")] = field(name="class")
