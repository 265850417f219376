"""`options` and what else steers an answer, in the wire's words."""

from typing import Any

import msgspec

from onegate.protocol.content import JsonSchema, Params, ResponseFormat, Think
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.dialects.ollama.parameters import HARMLESS, OPTIONS
from onegate_ollama_proxy.fields import Fields, convert, notices_of, unsupported

_MAX_TOK = 2**32 - 1
_MAX_SEED = 2**63 - 1
# Of none of the likeliest tokens nothing can be drawn; of this much it is always the likeliest.
_LEAST_TOP_P = 1e-6

_Think = bool | str | None
_SAME_NAME = ("temperature", "top_k", "min_p", "presence_penalty", "frequency_penalty")


class Options:
    """The options of one request. Raises BadAsk with the path."""

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        given: dict[str, Any] = fields.take("options", dict[str, Any]) or {}
        self._given = {name: value for name, value in given.items() if value is not None}
        self.context_tok = self._take("num_ctx", int)

    def params(self) -> Params:
        """Sampling and stopping."""
        wanted: dict[str, Any] = {
            **{name: self._take(name, float) for name in _SAME_NAME if name != "top_k"},
            "top_k": self._top_k(),
            "top_p": self._top_p(),
            "repeat_penalty": self._take("repeat_penalty", float),
            "seed": self._seed(),
            "max_tokens": self._num_predict(),
            "stop": self._stops(),
            "response_format": _format(self._fields.raw("format")),
            **_logprobs(self._fields),
        }
        given = {name: value for name, value in wanted.items() if value is not None}
        try:
            return msgspec.convert(given, Params)
        except msgspec.ValidationError as error:
            what, _, where = str(error).partition(" - at `$.")
            path = OPTIONS + where.rstrip("`").replace("max_tokens", "num_predict")
            raise BadAsk(f"{path} is wrong: {what[:1].lower()}{what[1:]}", path=path) from error

    def left_out(self) -> list[str]:
        """A notice for each option that is not followed; to be asked for last."""
        return notices_of(self._given, HARMLESS, OPTIONS)

    def _take(self, name: str, type: Any) -> Any:
        return convert(self._given.pop(name, None), type | None, OPTIONS + name)

    def _top_k(self) -> int | None:
        # 0 and less mean all of them, which is what leaving it out means on the wire.
        top_k: int | None = self._take("top_k", int)
        return None if top_k is not None and top_k <= 0 else top_k

    def _top_p(self) -> float | None:
        top_p: float | None = self._take("top_p", float)
        return None if top_p is None else max(_LEAST_TOP_P, top_p)

    def _seed(self) -> int | None:
        seed: int | None = self._take("seed", int)
        return None if seed is None or seed < 0 else min(seed, _MAX_SEED)

    def _num_predict(self) -> int | None:
        """Below 1 there is no bound but the context's and the class's."""
        asked: int | None = self._take("num_predict", int)
        return None if asked is None or asked < 1 else min(asked, _MAX_TOK)

    def _stops(self) -> list[str] | None:
        said: str | list[str] | None = self._take("stop", str | list[str])
        stops = [said] if isinstance(said, str) else said or []
        return [stop for stop in stops if stop] or None


def think_of(fields: Fields) -> Think | None:
    """Whether and how hard the model is to think; None where the request does not say."""
    said: _Think = convert(fields.raw("think"), _Think, "think")
    match said:
        case None | bool() | "low" | "medium" | "high" | "max":
            return said
        case "true":
            return True
        case "false":
            return False
    raise BadAsk("think is wrong: true, false, low, medium, high or max", path="think")


def rest(fields: Fields, options: Options | None) -> tuple[str, ...]:
    """Refuses what changes the meaning, and says what of the rest is left out."""
    if fields.take("_debug_render_only", bool):
        raise unsupported("_debug_render_only", "prompts are not shown here")
    notices = [] if options is None else options.left_out()
    return (*notices, *notices_of(fields.left(), HARMLESS))


def _format(said: Any) -> ResponseFormat | None:
    match said:
        case None | "":
            return None
        case "json":
            return ResponseFormat(type="json_object")
        case dict():
            return ResponseFormat(type="json_schema", json_schema=JsonSchema(schema=said))
    raise BadAsk('format is wrong: "json" or a JSON schema', path="format")


def _logprobs(fields: Fields) -> dict[str, Any]:
    wanted, top = fields.take("logprobs", bool), fields.take("top_logprobs", int)
    if top is not None and not 0 <= top <= 20:
        raise BadAsk("top_logprobs must be between 0 and 20", path="top_logprobs")
    if not wanted:
        return {}
    return {"logprobs": True, "top_logprobs": top}
