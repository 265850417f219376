"""Ollama's own API: /api/generate, /api/chat, /api/embed, /api/embeddings."""
