"""Parameters of these routes in the wire's words."""

from typing import Any

import msgspec

from onegate.protocol.content import JsonSchema, Params, ResponseFormat, Think
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.fields import Fields, convert, unsupported

_SEEDS = 2**63
_MAX_TOK = 2**32 - 1
# Of none of the likeliest tokens nothing can be drawn; of this much it is always the likeliest.
_LEAST_TOP_P = 1e-6
# What the API says of a request that does not.
_DEFAULT = 1.0

_EFFORTS: dict[str, Think] = {
    "none": False,
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "max",
    "max": "max",
}


class _Schema(msgspec.Struct):
    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class _Format(msgspec.Struct):
    type: str
    json_schema: _Schema | None = None


class _Reasoning(msgspec.Struct):
    effort: str | None = None


def params_of(fields: Fields, *, chat: bool) -> Params:
    """Sampling and stopping. Raises BadAsk with the path."""
    wanted: dict[str, Any] = {
        "temperature": _or(fields.take("temperature", float), _DEFAULT),
        "top_p": max(_LEAST_TOP_P, _or(fields.take("top_p", float), _DEFAULT)),
        "top_k": fields.take("top_k", int),
        "min_p": fields.take("min_p", float),
        "presence_penalty": fields.take("presence_penalty", float),
        "frequency_penalty": fields.take("frequency_penalty", float),
        "repeat_penalty": fields.take("repetition_penalty", float),
        "max_tokens": _max_tokens(fields),
        "seed": _seed(fields),
        "stop": _stops(fields),
        "response_format": _format(fields),
        **(_chat_logprobs(fields) if chat else _number_of_logprobs(fields)),
    }
    given = {name: value for name, value in wanted.items() if value is not None}
    try:
        # Made of its parts one by one it would take whatever it is given.
        return msgspec.convert(given, Params)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        name = where.rstrip("`").replace("repeat_penalty", "repetition_penalty")
        raise BadAsk(f"{name} is wrong: {what[:1].lower()}{what[1:]}", path=name) from error


def think_of(fields: Fields) -> Think | None:
    """Whether and how hard the model is to think; None where the request does not say."""
    effort = fields.take("reasoning_effort", str)
    path = "reasoning_effort"
    reasoning = fields.take("reasoning", _Reasoning)
    if effort is None and reasoning is not None:
        effort, path = reasoning.effort, "reasoning.effort"
    if effort is None:
        return None
    if effort not in _EFFORTS:
        raise BadAsk(f"{path} is wrong: one of {', '.join(_EFFORTS)}", path=path)
    return _EFFORTS[effort]


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _max_tokens(fields: Fields) -> int | None:
    found: list[int] = []
    for name in ("max_tokens", "max_completion_tokens"):
        value = fields.take(name, int)
        if value == 0:
            raise BadAsk(f"{name} is wrong: at least 1 token is asked for", path=name)
        if value is not None and value > 0:
            found.append(min(value, _MAX_TOK))
    return min(found, default=None)


def _seed(fields: Fields) -> int | None:
    seed = fields.take("seed", int)
    # Negative ones are seeds too, and only have to be told apart.
    return None if seed is None else seed % _SEEDS


def _stops(fields: Fields) -> list[str] | None:
    said: str | list[str] | None = convert(
        fields.take("stop", object), str | list[str] | None, "stop"
    )
    stops = [said] if isinstance(said, str) else said or []
    return [stop for stop in stops if stop] or None


def _format(fields: Fields) -> ResponseFormat | None:
    wanted = fields.take("response_format", _Format)
    match None if wanted is None else wanted.type:
        case None | "text":
            return None
        case "json_object":
            return ResponseFormat(type="json_object")
        case "json_schema":
            assert wanted is not None
            found = wanted.json_schema
            if found is None or found.schema is None:
                path = "response_format.json_schema.schema"
                raise BadAsk(f"{path} is required", path=path)
            return ResponseFormat(
                type="json_schema",
                json_schema=JsonSchema(
                    schema=found.schema, name=found.name or None, strict=found.strict
                ),
            )
        case kind:
            raise unsupported(
                "response_format.type", f"a format of type {str(kind)[:40]!r} is not known here"
            )


def _chat_logprobs(fields: Fields) -> dict[str, Any]:
    wanted, top = fields.take("logprobs", bool), fields.take("top_logprobs", int)
    if not wanted:
        if top:
            raise BadAsk("top_logprobs is wrong: it goes with logprobs", path="top_logprobs")
        return {}
    return {"logprobs": True, "top_logprobs": top}


def _number_of_logprobs(fields: Fields) -> dict[str, Any]:
    top = fields.take("logprobs", int)
    return {} if top is None else {"logprobs": True, "top_logprobs": top}
