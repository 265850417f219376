"""`POST /api/chat`."""

from typing import Any

from onegate_ollama_proxy.ask import LoadExchange, TextAsk, TextExchange
from onegate_ollama_proxy.dialects.ollama.answer import ChatWriter
from onegate_ollama_proxy.dialects.ollama.loads import load_of
from onegate_ollama_proxy.dialects.ollama.messages import messages_of
from onegate_ollama_proxy.dialects.ollama.options import Options, rest, think_of
from onegate_ollama_proxy.dialects.openai.messages import tools_of
from onegate_ollama_proxy.fields import Fields

_NOTHING_SAID = {"message": {"role": "assistant", "content": ""}}


def parse_chat(body: bytes) -> TextExchange | LoadExchange:
    """Without messages it only loads."""
    fields = Fields(body)
    model = fields.need("model", str)
    said = fields.take("messages", list[Any]) or []
    if not said:
        return load_of(fields, model, _NOTHING_SAID)
    options = Options(fields)
    stream, truncate = fields.take("stream", bool), fields.take("truncate", bool)
    ask = TextAsk(
        model=model,
        stream=stream is not False,
        messages=messages_of(said),
        tools=tools_of(fields.take("tools", list[Any]) or []),
        think=think_of(fields),
        params=options.params(),
        context_tok=options.context_tok,
        truncate=truncate is not False,
        notices=rest(fields, options),
    )
    return TextExchange(ask, ChatWriter(model))
