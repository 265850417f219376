"""What a pool or a class cannot do for a request, said before anything is queued."""

import msgspec
from msgspec import UNSET

from onegate.config import ClassConfig
from onegate.engines.base import Feature, PoolInfo, PoolState
from onegate.protocol.content import ImagePart, Message, Params
from onegate.protocol.errors import Reason
from onegate.protocol.messages import Generate
from onegate.protocol.requests import MAX_CLOSED_MS
from onegate.server.outcome import Ending, Outcome, RequestEnded

MS_PER_DAY = 86_400_000


def refuse(
    reason: Reason,
    message: str,
    *,
    path: str | None = None,
    limit: int | None = None,
    used: int | None = None,
    models: tuple[str, ...] | None = None,
) -> RequestEnded:
    """A refusal on arrival, to be raised."""
    return RequestEnded(
        Ending(Outcome.REJECTED, reason, message, path=path, limit=limit, used=used, models=models)
    )


def too_large(need_tok: int, context_tok: int) -> RequestEnded:
    """`too_large` with both numbers: prompt plus output against the context."""
    return refuse(
        Reason.TOO_LARGE,
        f"prompt and answer need {need_tok} tokens, the model's context holds {context_tok}: "
        "shorten the prompt or lower max_tokens",
        limit=context_tok,
        used=need_tok,
    )


def check_until(until_ms: int | None, now_ms: int) -> None:
    """`invalid` for a time until which nothing can be closed: one that has passed, or is too far
    ahead; None is until it is opened by hand."""
    if until_ms is None:
        return
    if until_ms <= now_ms:
        raise refuse(
            Reason.INVALID, "until_ms has passed already: name a later time", path="until_ms"
        )
    if until_ms - now_ms > MAX_CLOSED_MS:
        raise refuse(
            Reason.INVALID,
            f"until_ms is more than {MAX_CLOSED_MS // MS_PER_DAY} days ahead: name an earlier "
            "time, or none, and end it by hand",
            path="until_ms",
            limit=now_ms + MAX_CLOSED_MS,
            used=until_ms,
        )


def find_pool(pools: dict[str, PoolInfo], asked: str | None) -> PoolInfo:
    """The pool of the asked model, or the first one; `wrong_model` names those there are."""
    if not pools:
        raise refuse(Reason.ENGINE_UNAVAILABLE, "the engine has not said yet which models it has")
    if asked is None:
        return next(iter(pools.values()))
    if asked not in pools:
        names = ", ".join(pools)
        raise refuse(
            Reason.WRONG_MODEL,
            f"there is no model {asked[:80]!r} here; ask for one of: {names}",
            models=tuple(pools),
        )
    return pools[asked]


def _first_image(messages: list[Message]) -> str | None:
    """The path of the first image, None where there is none."""
    for i, message in enumerate(messages):
        if isinstance(message.content, list):
            for j, part in enumerate(message.content):
                if isinstance(part, ImagePart):
                    return f"messages[{i}].content[{j}]"
    return None


def check_features(message: Generate, pool: PoolInfo) -> None:
    """`unsupported`, naming the field, for what this model's engine cannot do."""
    asked = {
        "tools": (bool(message.tools), Feature.TOOLS),
        "tool_choice": (message.tool_choice not in (None, "none", "auto"), Feature.TOOLS),
        "think": (bool(message.think), Feature.THINKING),
        "suffix": (message.suffix is not None, Feature.SUFFIX),
        "prompt_token_ids": (message.prompt_token_ids is not None, Feature.TOKEN_IDS),
    }
    for path, (used, feature) in asked.items():
        if used and feature not in pool.features:
            raise _cannot(pool, feature, path, path)
    for i, turn in enumerate(message.messages or ()):
        _check_turn(f"messages[{i}]", turn, pool)
    image = _first_image(message.messages or [])
    if image is not None and Feature.IMAGES not in pool.features:
        raise _cannot(pool, Feature.IMAGES, image, "the images")


def _check_turn(path: str, turn: Message, pool: PoolInfo) -> None:
    """A template without tools or thinking renders such a turn as nothing, and nobody is told."""
    if Feature.TOOLS not in pool.features:
        if turn.tool_calls:
            raise _cannot(pool, Feature.TOOLS, f"{path}.tool_calls", "the calls")
        if turn.role == "tool":
            raise _cannot(pool, Feature.TOOLS, f"{path}.role", "the messages of role tool")
    if turn.thinking is not None and Feature.THINKING not in pool.features:
        raise _cannot(pool, Feature.THINKING, f"{path}.thinking", "the thinking")


def _cannot(pool: PoolInfo, feature: Feature, path: str, what: str) -> RequestEnded:
    return refuse(
        Reason.UNSUPPORTED,
        f"the engine of model {pool.model} has no {feature.value}: leave out {what}",
        path=path,
    )


def check_params(params: Params, pool: PoolInfo) -> None:
    """`unsupported`, naming the parameter, for what the engine would otherwise ignore."""
    for field in msgspec.structs.fields(params):
        if getattr(params, field.name) is not UNSET and field.name not in pool.params:
            honoured = ", ".join(sorted(pool.params))
            raise refuse(
                Reason.UNSUPPORTED,
                f"the engine of model {pool.model} cannot honour {field.name}; it honours: "
                f"{honoured}",
                path=f"params.{field.name}",
            )


def check_up(pool: PoolInfo) -> None:
    """`engine_unavailable` for a pool that has failed before it said what it can do: whatever else
    is asked of it, that is the reason."""
    if pool.state is PoolState.FAILED and pool.identity is None:
        raise refuse(Reason.ENGINE_UNAVAILABLE, f"the engine cannot serve model {pool.model} now")


def check_boundary(pool: PoolInfo, spec_class: ClassConfig) -> None:
    """`boundary_refused` where the class keeps its text here and the engine may not.

    A pool that has not said yet what it is (it loads) may be waited for: it is asked again before
    anything is sent to it, and one that is ready has to have said so.
    """
    identity = pool.identity
    if "boundary" not in spec_class.refuse_on or (
        identity is None and pool.state is not PoolState.READY
    ):
        return
    boundary = "unknown" if identity is None else identity.boundary
    if boundary != "local":
        raise refuse(
            Reason.BOUNDARY_REFUSED,
            f"the boundary of model {pool.model} is {boundary}, and class {spec_class.name} has "
            "its text stay on this machine: ask for a local model, or in another class",
        )


def check_whole_prompt(pool: PoolInfo, spec_class: ClassConfig, *, surely_fits: bool) -> None:
    """`degraded_refused` where the class has no answer to a part of its prompt, and the engine may
    cut a prompt that does not fit without a word. As with the boundary, a pool that has not said
    yet what it is may be waited for.
    """
    if (
        "truncated" not in spec_class.refuse_on
        or surely_fits
        or Feature.WHOLE_PROMPTS in pool.features
        or (pool.identity is None and pool.state is not PoolState.READY)
    ):
        return
    raise RequestEnded(
        Ending(
            Outcome.REJECTED,
            Reason.DEGRADED_REFUSED,
            f"the engine of model {pool.model} may cut a prompt that does not fit without saying "
            f"so, this one is not sure to fit, and class {spec_class.name} has no answer to a part "
            "of it: shorten the prompt, name a lower max_tokens, or ask in another class",
            retryable=False,  # the same prompt will be as long
        )
    )


def check_bound(asked: int | None, most: int | None, path: str, class_: str) -> None:
    """`invalid` with both numbers when more is asked for than the class allows."""
    if asked is not None and most is not None and asked > most:
        raise refuse(
            Reason.INVALID,
            f"{path} is {asked}, class {class_} allows at most {most}",
            path=path,
            limit=most,
            used=asked,
        )


def check_class(message: Generate, spec_class: ClassConfig) -> None:
    """The bounds that a class sets on what a request asks for."""
    asked = message.params.max_tokens
    asked_tok = None if asked is UNSET else asked
    check_bound(asked_tok, spec_class.max_tokens_max, "params.max_tokens", spec_class.name)
    check_bound(
        message.ttft_timeout_ms, spec_class.ttft_timeout_ms_max, "ttft_timeout_ms", spec_class.name
    )
    check_bound(message.timeout_ms, spec_class.timeout_ms_max, "timeout_ms", spec_class.name)
