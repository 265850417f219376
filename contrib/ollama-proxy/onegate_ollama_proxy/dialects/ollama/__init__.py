"""Ollama's own API: /api/generate, /api/chat, /api/embed, /api/embeddings."""

from onegate_ollama_proxy.ask import Route
from onegate_ollama_proxy.dialects.ollama.chat import parse_chat
from onegate_ollama_proxy.dialects.ollama.embed import parse_embed, parse_embeddings
from onegate_ollama_proxy.dialects.ollama.generate import parse_generate

ROUTES = (
    Route("/api/chat", "ollama", parse_chat),
    Route("/api/generate", "ollama", parse_generate),
    Route("/api/embed", "ollama", parse_embed),
    Route("/api/embeddings", "ollama", parse_embeddings),
)
