"""`[[class]]`: priority bands. Three are shipped; an entry of the same name changes its keys."""

from typing import Annotated, Literal

from msgspec import Struct

from onegate.config.units import (
    Count,
    DailyTok,
    FloorShare,
    Milliseconds,
    MillisecondsOrZero,
    Name,
    Rank,
    RefuseOn,
    Seconds,
    Share,
    Tok,
    Windows,
    why,
)


class ClassConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[class]]`. A new name starts from these defaults.

    They are those of `loop` without its floor, its preemption and its bounds on behaviour.
    """

    name: Annotated[Name, why("what requests, grants and hints call it")]
    rank: Annotated[Rank, why("0 is served first; no two classes share one")]
    max_queued_tok: Annotated[
        Tok, why("a person does not wait behind more than that; a night does", "tokens")
    ] = 65_536
    per_principal_share: Annotated[
        Share, why("of the class's queue, so that one user never fills it", "share")
    ] = 0.5
    max_tokens_default: Annotated[
        Tok,
        why(
            "where a request names none: its bound where the engine reserves in full, elsewhere "
            "what it counts in the queue until the lengths of its like are known",
            "tokens",
        ),
    ] = 2048
    max_tokens_max: Annotated[Tok, why("a request that asks for more is refused", "tokens")] = (
        16_384
    )
    ttft_timeout_ms: Annotated[
        Milliseconds | None,
        why("the wait that others may cause before the first token", "ms"),
    ] = 60_000
    ttft_timeout_ms_max: Annotated[
        Milliseconds | None, why("the longest a request may ask for", "ms")
    ] = 600_000
    timeout_ms: Annotated[Milliseconds | None, why("the whole request", "ms")] = 1_800_000
    timeout_ms_max: Annotated[
        Milliseconds | None, why("the longest a request may ask for", "ms")
    ] = 2_700_000
    safety_timeout_s: Annotated[
        Seconds,
        why("a permit ends then whatever the engine does: longer than any honest answer", "s"),
    ] = 2700.0
    floor_share: Annotated[
        FloorShare, why("of the tokens while it has work, however busy the others are", "share")
    ] = 0.0
    when_closed: Annotated[
        Literal["refuse", "wait"],
        why("while paused or outside run_window: refuse newcomers, or let them queue"),
    ] = "refuse"
    run_window: Annotated[
        Windows,
        why(
            "when it may start requests, by the local clock; empty: always. Days are those on "
            "which a time begins, every day if none are named"
        ),
    ] = ()
    preempt: Annotated[
        Literal["never", "lower_rank"],
        why("whether running requests of lower, preemptible classes are stopped to make room"),
    ] = "never"
    preemptible: Annotated[
        bool, why("whether a better class may stop its running requests, which then go on later")
    ] = True
    preempt_grace_ms: Annotated[
        MillisecondsOrZero,
        why(
            "how long a better one waits before it stops one of these; 0: what was stopped also "
            "waits until a lent device is back",
            "ms",
        ),
    ] = 2000
    itl_target_ms: Annotated[
        Milliseconds | None,
        why(
            "while it has requests in the engine, lower classes get only as many seats as leave "
            "the time between two tokens this short, and the embedded engine reads prompts in "
            "pieces that are done in that time, as measured when it starts",
            "ms",
        ),
    ] = None
    behaviour_live: Annotated[
        Count | None,
        why("a program with more live requests is treated as the next lower class", "requests"),
    ] = None
    behaviour_starts_per_min: Annotated[
        Count | None,
        why("a program that starts more is treated as the next lower class", "requests a minute"),
    ] = None
    refuse_on: Annotated[
        RefuseOn,
        why(
            "what it would rather have no answer from; boundary: an engine that is not known to "
            "keep the text on this machine; truncated: one that may cut a prompt to fit and say "
            "so to nobody, for a prompt that may not fit"
        ),
    ] = ()
    daily_tok: Annotated[
        DailyTok | None,
        why("prompt and answer of one user in a day, which is one of `onegate usage`", "tokens"),
    ] = None


SHIPPED_CLASSES: tuple[ClassConfig, ...] = (
    ClassConfig(
        name="interactive",
        rank=0,
        max_queued_tok=32_768,
        per_principal_share=0.5,
        max_tokens_default=1024,
        max_tokens_max=8192,
        ttft_timeout_ms=10_000,
        ttft_timeout_ms_max=120_000,
        timeout_ms=600_000,
        timeout_ms_max=900_000,
        safety_timeout_s=900.0,
        preempt="lower_rank",
        preemptible=False,
        preempt_grace_ms=0,
        behaviour_live=4,
        behaviour_starts_per_min=20,
    ),
    ClassConfig(
        name="loop",
        rank=1,
        floor_share=0.05,
        preempt="lower_rank",
        behaviour_live=16,
        behaviour_starts_per_min=240,
    ),
    ClassConfig(
        name="batch",
        rank=2,
        max_queued_tok=262_144,
        per_principal_share=0.9,
        max_tokens_default=1024,
        max_tokens_max=16_384,
        ttft_timeout_ms=None,
        ttft_timeout_ms_max=None,
        timeout_ms=None,
        timeout_ms_max=None,
        safety_timeout_s=7200.0,
        floor_share=0.05,
        preempt_grace_ms=0,
    ),
)

# The class of a peer that no hint speaks about, and the ceiling of one that no grant matches.
ORDINARY_CLASS = "loop"
