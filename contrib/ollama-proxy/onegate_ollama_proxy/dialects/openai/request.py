"""From the body of an OpenAI route to what is asked of the gate.

As the API has it, unless Ollama's own OpenAI routes do otherwise, whose clients come here too.
"""

from typing import Any

import msgspec

from onegate_ollama_proxy.ask import BadAsk, EmbedAsk, EmbedExchange, TextAsk, TextExchange
from onegate_ollama_proxy.dialects.openai.answer import ChatWriter, CompletionWriter
from onegate_ollama_proxy.dialects.openai.embeddings import EmbeddingsWriter
from onegate_ollama_proxy.dialects.openai.messages import choice_of, messages_of, tools_of
from onegate_ollama_proxy.dialects.openai.parameters import HARMLESS
from onegate_ollama_proxy.dialects.openai.sampling import params_of, think_of
from onegate_ollama_proxy.fields import Fields, convert, notices_of, unsupported


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


def parse_chat(body: bytes) -> TextExchange:
    """`POST /v1/chat/completions`."""
    fields = Fields(body)
    model = fields.need("model", str)
    messages, notices = messages_of(fields.need("messages", list[Any]))
    stream, include_usage = _stream(fields)
    tools = tools_of(fields.take("tools", list[Any]) or [])
    choice = convert(fields.raw("tool_choice"), str | dict[str, Any] | None, "tool_choice")
    # Without tools there is nothing to choose, and clients say so all the same.
    tool_choice = None if choice is None or (not tools and choice in ("auto", "none")) else choice
    params, think = params_of(fields, chat=True), think_of(fields)
    notices += _rest(fields)
    ask = TextAsk(
        model=model,
        stream=stream,
        messages=messages,
        tools=tools,
        tool_choice=None if tool_choice is None else choice_of(tool_choice),
        think=think,
        params=params,
        notices=tuple(notices),
    )
    return TextExchange(ask, ChatWriter(model, stream=stream, include_usage=include_usage))


def parse_completion(body: bytes) -> TextExchange:
    """`POST /v1/completions`. The model's template goes around the prompt, as with Ollama."""
    fields = Fields(body)
    model = fields.need("model", str)
    prompt = _one_text(fields.raw("prompt"), "prompt")
    stream, include_usage = _stream(fields)
    suffix = fields.take("suffix", str)
    params = params_of(fields, chat=False)
    notices = _rest(fields)
    ask = TextAsk(
        model=model,
        stream=stream,
        prompt=prompt,
        suffix=suffix or None,
        params=params,
        notices=tuple(notices),
    )
    return TextExchange(ask, CompletionWriter(model, stream=stream, include_usage=include_usage))


def parse_embeddings(body: bytes) -> EmbedExchange:
    """`POST /v1/embeddings`."""
    fields = Fields(body)
    model = fields.need("model", str)
    inputs = _texts(fields.raw("input"), "input")
    encoding = fields.take("encoding_format", str) or "float"
    if encoding not in ("float", "base64"):
        raise BadAsk("encoding_format is wrong: float or base64", path="encoding_format")
    dimensions = fields.take("dimensions", int)
    if dimensions is not None and dimensions < 1:
        raise BadAsk("dimensions is wrong: at least 1", path="dimensions")
    ask = EmbedAsk(model=model, inputs=inputs, dimensions=dimensions, notices=tuple(_rest(fields)))
    return EmbedExchange(ask, EmbeddingsWriter(model, packed=encoding == "base64"))


def _stream(fields: Fields) -> tuple[bool, bool]:
    stream = fields.take("stream", bool) or False
    options = fields.take("stream_options", _StreamOptions)
    return stream, stream and options is not None and options.include_usage


def _rest(fields: Fields) -> list[str]:
    """Refuses what changes the meaning, and says what of the rest is left out."""
    _check_meaning(fields)
    return notices_of(fields.left(), HARMLESS)


def _check_meaning(fields: Fields) -> None:
    for name in ("n", "best_of"):
        if (fields.take(name, int) or 1) != 1:
            raise unsupported(name, f"{name} is wrong: one request gives one answer here")
    if fields.take("echo", bool):
        raise unsupported("echo", "a prompt is not sent back here: leave echo out")
    if fields.take("logit_bias", dict[str, Any]):
        raise unsupported("logit_bias", "no engine here takes token ids: leave logit_bias out")
    if [one for one in fields.take("modalities", list[str]) or () if one != "text"]:
        raise unsupported("modalities", "models here give text: leave modalities out")
    for name, instead in (("functions", "tools"), ("function_call", "tool_choice")):
        if fields.raw(name):
            raise unsupported(name, f"{name} is not known here any more: use {instead}")
    if fields.raw("audio") is not None:
        raise unsupported("audio", "nothing here speaks: leave audio out")
    if fields.raw("web_search_options") is not None:
        raise unsupported("web_search_options", "nothing here searches: leave it out")


def _one_text(said: Any, path: str) -> str:
    texts = _texts(said, path)
    if len(texts) != 1:
        raise unsupported(path, "one request gives one answer here: send one prompt")
    return texts[0]


def _texts(said: Any, path: str) -> tuple[str, ...]:
    match said:
        case str():
            texts: tuple[str, ...] = (said,)
        case [int() | list(), *_]:
            raise unsupported(path, f"{path} is text here and no token ids")
        case _:
            texts = tuple(convert(said, list[str], path)) if said is not None else ()
    if not texts or not all(texts):
        raise BadAsk(f"{path} is required, and no text in it may be empty", path=path)
    return texts
