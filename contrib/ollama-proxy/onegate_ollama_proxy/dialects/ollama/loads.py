"""Requests that only load a model or unload it: those without anything to answer."""

from typing import Any

from onegate_ollama_proxy.ask import LoadAsk, LoadExchange
from onegate_ollama_proxy.dialects.ollama.answer import loaded
from onegate_ollama_proxy.fields import Fields


def load_of(fields: Fields, model: str, said: dict[str, Any]) -> LoadExchange:
    """`said` is what such an answer says of its text: nothing, in the route's own shape."""
    unload = is_zero(fields.raw("keep_alive"))
    reason = "unload" if unload else "load"
    ask = LoadAsk(model=model, unload=unload)
    return LoadExchange(ask, lambda took_ns: loaded(model, reason, said, took_ns))


def is_zero(keep_alive: Any) -> bool:
    """Is this `keep_alive` the one that frees the memory at once: 0, or a duration of that?"""
    if isinstance(keep_alive, bool):
        return False
    if isinstance(keep_alive, int | float):
        return keep_alive == 0
    if isinstance(keep_alive, str):
        return keep_alive.strip().rstrip("hmsnuµ") in ("0", "0.0", "-0", "+0")
    return False
