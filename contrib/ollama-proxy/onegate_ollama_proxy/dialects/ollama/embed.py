"""`POST /api/embed`, and the older `/api/embeddings`."""

import msgspec

from onegate_ollama_proxy.ask import BadAsk, EmbedAsk, EmbedExchange, LoadAsk, LoadExchange
from onegate_ollama_proxy.dialects.ollama.answer import EmbeddingWriter, EmbedWriter
from onegate_ollama_proxy.dialects.ollama.options import Options, rest
from onegate_ollama_proxy.fields import Fields, convert


def parse_embed(body: bytes) -> EmbedExchange | LoadExchange:
    """Without a text it only loads."""
    fields = Fields(body)
    model = fields.need("model", str)
    said: str | list[str] | None = convert(fields.raw("input"), str | list[str] | None, "input")
    inputs = (said,) if isinstance(said, str) else tuple(said or ())
    if not inputs:
        return _load(model, {"model": model, "embeddings": []})
    dimensions = fields.take("dimensions", int)
    if dimensions is not None and dimensions < 0:
        raise BadAsk("dimensions is wrong: at least 0", path="dimensions")
    truncate, options = fields.take("truncate", bool), Options(fields)
    options.params()
    ask = EmbedAsk(
        model=model,
        inputs=inputs,
        dimensions=dimensions or None,
        truncate=truncate is not False,
        notices=rest(fields, options),
    )
    return EmbedExchange(ask, EmbedWriter(model))


def parse_embeddings(body: bytes) -> EmbedExchange | LoadExchange:
    """One text, called `prompt`. Without it the model is only loaded."""
    fields = Fields(body)
    model = fields.need("model", str)
    prompt = fields.take("prompt", str)
    if not prompt:
        return _load(model, {"embedding": []})
    options = Options(fields)
    options.params()
    ask = EmbedAsk(model=model, inputs=(prompt,), truncate=True, notices=rest(fields, options))
    return EmbedExchange(ask, EmbeddingWriter())


def _load(model: str, document: dict[str, object]) -> LoadExchange:
    return LoadExchange(LoadAsk(model=model), lambda took_ns: msgspec.json.encode(document))
