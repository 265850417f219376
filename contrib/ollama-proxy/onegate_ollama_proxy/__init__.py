"""Ollama's HTTP API in front of the gate: what its clients ask is asked there, in their name."""
