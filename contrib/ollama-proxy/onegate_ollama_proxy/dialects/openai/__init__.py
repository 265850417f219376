"""The OpenAI API's routes, as Ollama has them."""

from onegate_ollama_proxy.ask import Route
from onegate_ollama_proxy.dialects.openai.request import (
    parse_chat,
    parse_completion,
    parse_embeddings,
)

ROUTES = (
    Route("/v1/chat/completions", "openai", parse_chat),
    Route("/v1/completions", "openai", parse_completion),
    Route("/v1/embeddings", "openai", parse_embeddings),
)
