"""`POST /api/generate`."""

from onegate.protocol.content import Message
from onegate_ollama_proxy.ask import BadAsk, LoadExchange, TextAsk, TextExchange
from onegate_ollama_proxy.dialects.ollama.answer import GenerateWriter
from onegate_ollama_proxy.dialects.ollama.context import messages, unpack
from onegate_ollama_proxy.dialects.ollama.loads import load_of
from onegate_ollama_proxy.dialects.ollama.messages import with_images
from onegate_ollama_proxy.dialects.ollama.options import Options, rest, think_of
from onegate_ollama_proxy.fields import Fields, unsupported


def parse_generate(body: bytes) -> TextExchange | LoadExchange:
    """Without a prompt it only loads."""
    fields = Fields(body)
    model = fields.need("model", str)
    prompt = fields.take("prompt", str) or ""
    images = fields.take("images", list[str]) or []
    if not prompt and not images:
        return load_of(fields, model, {"response": ""})
    raw = fields.take("raw", bool) or False
    system, template = fields.take("system", str), fields.take("template", str)
    context = fields.take("context", list[int])
    if raw and (system or template or context):
        raise BadAsk("raw mode does not support template, system, or context", path="raw")
    if template:
        raise unsupported("template", "the model's own template is used here: leave template out")
    suffix = fields.take("suffix", str) or None
    if suffix is not None and (system or context or images):
        raise unsupported("suffix", "a suffix goes with a prompt alone")
    if raw and images:
        raise unsupported("images", "images need the model's template: leave raw out")
    options = Options(fields)
    stream, truncate = fields.take("stream", bool), fields.take("truncate", bool)
    # The conversation, as far as it is text: what comes back with the answer to go on from.
    turns = unpack(context) if context else []
    if system and not turns:
        turns.append(("system", system))
    conversation = None
    if turns or images:
        last = with_images(prompt, images, "images") if images else prompt
        conversation = (*messages(turns), Message(role="user", content=last))
    turns.append(("user", prompt))
    ask = TextAsk(
        model=model,
        stream=stream is not False,
        prompt=prompt if conversation is None else None,
        messages=conversation,
        suffix=suffix,
        raw=raw,
        think=think_of(fields),
        params=options.params(),
        context_tok=options.context_tok,
        truncate=truncate is not False,
        notices=rest(fields, options),
    )
    return TextExchange(ask, GenerateWriter(model, None if raw or suffix else turns))
