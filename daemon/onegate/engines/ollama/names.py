"""How Ollama reads a model's name, and which names leave this machine.

Names are compared without case; one without a tag means `:latest`. A tag that is `cloud` or ends
with `-cloud` is answered at ollama.com, whatever lies in the local store: such a name is judged
before anything is asked about it, since the question itself would go there.
"""

_LATEST = "latest"
_CLOUD = "cloud"


def _split(name: str) -> tuple[str, str]:
    """Base and tag; a colon inside a registry's `host:port/` starts no tag."""
    base, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        return name, ""
    return base, tag


def canonical(name: str) -> str:
    """The one spelling under which two names of the same model are equal."""
    base, tag = _split(name.strip().casefold())
    return f"{base}:{tag or _LATEST}"


def is_cloud(name: str) -> bool:
    """Whether a request for this name goes to ollama.com by its name alone."""
    _, tag = _split(name.strip().casefold())
    return tag == _CLOUD or tag.endswith(f"-{_CLOUD}")


def pull(name: str) -> str:
    """The command that fetches a model."""
    return f"ollama pull {name}"
