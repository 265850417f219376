"""What is asked, made to fit what the gate gives: pure functions, the same for all dialects.

Everything that is changed is said in a notice. What cannot be changed without changing the meaning
is an error.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import UNSET

from onegate.client.errors import RequestError
from onegate.client.request import RequestOptions
from onegate.protocol.content import Message, Params, TextPart
from onegate.protocol.errors import Reason
from onegate.protocol.messages import ClassLimits, ModelInfo
from onegate_ollama_proxy.ask import BadAsk, EmbedAsk, TextAsk
from onegate_ollama_proxy.names import resolve

# Of the share that is cut by: what is left has to fit although tokens are not spread evenly.
_SAFETY = 0.9


def served_model(asked: str, models: Iterable[ModelInfo], aliases: Mapping[str, str]) -> ModelInfo:
    """The gate's model for a client's name. Raises BadAsk, in the words that clients look for."""
    served = {model.model: model for model in models}
    name = resolve(asked, served, aliases)
    if name is None:
        there_are = ", ".join((*served, *aliases)) or "none yet"
        raise BadAsk(
            f"model '{_plain(asked)}' not found; there are: {there_are}",
            path="model",
            reason=Reason.WRONG_MODEL,
        )
    return served[name]


def fit_limits(ask: TextAsk, model: ModelInfo, class_: str, limits: ClassLimits) -> TextAsk:
    """The request within the class's maximum. Raises BadAsk for a larger context than there is."""
    check_context(ask.context_tok, model)
    most, asked = limits.max_tokens_max, ask.params.max_tokens
    if asked is UNSET or asked <= most:
        return ask
    notice = f"the answer is bounded by {most} tokens, which is class {class_}'s maximum"
    return _with_max_tokens(ask, most, notice)


def check_context(asked_tok: int | None, model: ModelInfo) -> None:
    """Raises BadAsk where a client wants a larger context than the model has here."""
    context_tok = model.max_context_tok
    if asked_tok is not None and context_tok is not None and asked_tok > context_tok:
        raise BadAsk(
            f"num_ctx is {asked_tok}, and {model.model} is served with a context of {context_tok} "
            "tokens: set num_ctx to that or less in the client, or have the gate serve the model "
            "with more",
            path="options.num_ctx",
            reason=Reason.UNSUPPORTED,
        )


def shorter(ask: TextAsk, error: RequestError, *, truncate: bool) -> TextAsk | None:
    """The request again after it was `too_large`, made smaller; None where it stays refused.

    First the answer: what is asked for beyond the context is no more than a bound that is never
    reached. Then, where the client wants that and `truncate` allows it, the oldest messages; the
    system's and the last one stay.
    """
    if error.reason is not Reason.TOO_LARGE or error.limit is None or error.used is None:
        return None
    asked = ask.params.max_tokens
    output_tok = 1 if asked is UNSET else asked
    prompt_tok = error.used - output_tok
    room_tok = error.limit - prompt_tok
    if output_tok > 1 and room_tok >= 1:
        notice = f"the answer is bounded by {room_tok} tokens, which is what the context leaves"
        return _with_max_tokens(ask, min(room_tok, output_tok - 1), notice)
    if not (truncate and ask.truncate) or ask.messages is None:
        return None
    kept = _newest(ask.messages, error.limit / error.used)
    if kept is None:
        return None
    notice = f"{len(ask.messages) - len(kept)} of {len(ask.messages)} messages did not fit"
    return replace(ask, messages=kept, notices=(*ask.notices, notice))


def shorter_texts(ask: EmbedAsk, error: RequestError) -> EmbedAsk | None:
    """The same for texts to embed: the longest are cut at their ends."""
    if (
        not ask.truncate
        or error.reason is not Reason.TOO_LARGE
        or error.limit is None
        or error.used is None
        or error.used <= error.limit
    ):
        return None
    longest = max(len(text) for text in ask.inputs)
    most = int(longest * error.limit / error.used * _SAFETY)
    if not 1 <= most < longest:
        return None
    notice = f"texts of more than {most} characters were cut"
    return replace(
        ask, inputs=tuple(text[:most] for text in ask.inputs), notices=(*ask.notices, notice)
    )


def options_of(ask: TextAsk, *, model: str, class_: str) -> RequestOptions:
    """The request as keywords of the client library."""
    said: dict[str, Any] = {
        "model": model,
        "class_": class_,
        "messages": None if ask.messages is None else list(ask.messages),
        "tools": list(ask.tools) or None,
        "tool_choice": ask.tool_choice,
        "think": ask.think,
        "suffix": ask.suffix,
        "raw": ask.raw or None,
    }
    given = {name: value for name, value in said.items() if value is not None}
    for field in msgspec.structs.fields(Params):
        if (value := getattr(ask.params, field.name)) is not UNSET:
            given[field.name] = value
    return given  # type: ignore[return-value]  # the keys are those of RequestOptions


def _with_max_tokens(ask: TextAsk, max_tokens: int, notice: str) -> TextAsk:
    params = msgspec.structs.replace(ask.params, max_tokens=max_tokens)
    return replace(ask, params=params, notices=(*ask.notices, notice))


def _newest(messages: tuple[Message, ...], share: float) -> tuple[Message, ...] | None:
    """The newest messages, of so much of the text; at least one less than before. None where only
    those are left that have to stay."""
    sizes = [_size(message) for message in messages]
    left = sum(sizes)
    wanted = left * share * _SAFETY
    dropped: set[int] = set()
    for i, message in enumerate(messages[:-1]):
        if message.role in ("system", "developer"):
            continue
        if dropped and left <= wanted:
            # An answer to a call that is gone makes no sense to any template.
            if message.role != "tool":
                break
        dropped.add(i)
        left -= sizes[i]
    if not dropped:
        return None
    return tuple(message for i, message in enumerate(messages) if i not in dropped)


def _size(message: Message) -> int:
    """What a message is of all the text, near enough."""
    content = message.content
    if isinstance(content, str):
        size = len(content)
    else:
        # An image is some hundred tokens whatever its bytes.
        size = sum(len(p.text) if isinstance(p, TextPart) else 2048 for p in content or ())
    calls = sum(len(call.function.arguments) for call in message.tool_calls or ())
    return size + calls + len(message.thinking or "") + 16


def _plain(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:80])
