"""What comes back: every dialect's writers are what the proxy expects of one."""

from typing import Any

import pytest

from onegate_ollama_proxy.ask import EmbedExchange, LoadExchange, TextExchange
from onegate_ollama_proxy.dialects import ollama, openai

BODIES: dict[str, bytes] = {
    "/api/chat": b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    "/api/generate": b'{"model":"m","prompt":"Hi"}',
    "/api/embed": b'{"model":"m","input":"Hi"}',
    "/api/embeddings": b'{"model":"m","prompt":"Hi"}',
    "/v1/chat/completions": b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
    "/v1/completions": b'{"model":"m","prompt":"Hi"}',
    "/v1/embeddings": b'{"model":"m","input":"Hi"}',
}
ROUTES = (*ollama.ROUTES, *openai.ROUTES)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_gives_an_exchange_with_a_writer(route: Any) -> None:
    exchange = route.parse(BODIES[route.path])
    assert not isinstance(exchange, LoadExchange)
    assert exchange.writer.document_type.startswith("application/json")
    assert exchange.ask.model == "m"
    if isinstance(exchange, TextExchange):
        writer = exchange.writer
        assert writer.padding.strip(b" ") == b"" or writer.padding.startswith(b":")
        assert all(callable(getattr(writer, name)) for name in ("chunk", "end", "broken", "whole"))
    else:
        assert isinstance(exchange, EmbedExchange)
