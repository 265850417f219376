"""How the names that clients use for models meet those that the gate has."""

from collections.abc import Iterable, Mapping

_LATEST = "latest"


def canonical(name: str) -> str:
    """The one spelling under which two names of the same model are equal, as Ollama reads them:
    without case, and `:latest` where there is no tag."""
    name = name.strip().casefold()
    base, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:  # a colon inside a registry's host:port/ starts no tag
        base, tag = name, ""
    return f"{base}:{tag or _LATEST}"


def resolve(asked: str, served: Iterable[str], aliases: Mapping[str, str]) -> str | None:
    """The gate's name for what a client asks for; None where it has no such model.

    `aliases` are the configuration's, from a client's name to the gate's.
    """
    wanted = canonical(asked)
    for alias, target in aliases.items():
        if canonical(alias) == wanted:
            wanted = canonical(target)
            break
    return next((name for name in served if canonical(name) == wanted), None)
