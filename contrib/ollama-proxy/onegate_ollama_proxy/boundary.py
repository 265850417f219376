"""What would leave the machine, told by what a request names.

Ollama answers some models elsewhere: those whose tag says cloud, by their names alone, and aliases,
of which only its own list says so. It also runs web searches at its maker's. All of it is refused
unless the configuration allows it.
"""

import asyncio
import ipaddress
import math
from collections.abc import Iterable

import msgspec
from yarl import URL

from onegate.clock import monotonic_ns
from onegate.protocol.errors import Reason
from onegate_ollama_proxy.names import canonical
from onegate_ollama_proxy.refused import Refused, no, no_of_upstream
from onegate_ollama_proxy.upstream import Upstream, UpstreamError

TAGS = "/api/tags"

_CLOUD = "cloud"
# An alias can be made at any time; one that is in use is known by its host within that long.
_FRESH_NS = 30_000_000_000
# A name that the list did not have is asked for again this soon: it may have come meanwhile.
_SOON_NS = 1_000_000_000
_TAGS_S = 5.0
_MAX_NAME = 256


class _Tag(msgspec.Struct):
    name: str
    remote_host: str = ""


class _Tags(msgspec.Struct):
    models: list[_Tag] | None = None


_read_tags = msgspec.json.Decoder(_Tags)


def is_cloud(name: str) -> bool:
    """Whether Ollama sends requests for this name away by the name alone. A colon inside a
    registry's `host:port/` starts no tag."""
    _, colon, tag = name.strip().casefold().rpartition(":")
    if not colon or "/" in tag:
        return False
    return tag == _CLOUD or tag.endswith(f"-{_CLOUD}")


def is_search(tool_type: str) -> bool:
    """Whether a tool of this type is run at Ollama's maker, as `web_search_20250305` is."""
    return tool_type.strip().casefold().startswith(("web_search", "web_fetch"))


def upstream_url(text: str, *, allow_remote: bool) -> str:
    """The address of an Ollama, judged. Raises ValueError with a sentence that says what to do."""
    url = URL(text)
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
        raise ValueError("expected http://HOST:PORT")
    if url.user is not None or url.password is not None:
        raise ValueError("a name or a password has no place in it")
    if not allow_remote and not _is_here(url.host):
        raise ValueError(
            f"{url.host} is not this machine, so text would leave it: use 127.0.0.1, or set "
            "allow_remote = true"
        )
    return str(url).rstrip("/")


def _is_here(host: str) -> bool:
    if host.casefold() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Boundary:
    """Judges names and tools; `upstream` is asked which of its names are aliases of models
    elsewhere, and without one there are none."""

    def __init__(self, *, upstream: Upstream | None, allow_remote: bool) -> None:
        self._upstream = upstream
        self._allow_remote = allow_remote
        self._hosts: dict[str, str] = {}
        self._known_ns: int | None = None
        self._turn = asyncio.Lock()

    async def check(self, model: str, tool_types: Iterable[str] = ()) -> None:
        """Raises Refused for a model that is answered elsewhere, and for a tool that is run there;
        also where Ollama can't be asked which it is."""
        if self._allow_remote:
            return
        self.check_name(model)
        for tool_type in tool_types:
            if is_search(tool_type):
                raise _refused(
                    f"the tool {_short(tool_type)} is run at ollama.com: leave it out", "tools"
                )
        if host := await self._host_of(model):
            raise _refused(
                f"{_short(model)} is answered at {_short(host)}, not on this machine: choose a "
                "local model"
            )

    def check_name(self, model: str) -> None:
        """The same by the name alone, for what asks nothing of the model itself."""
        if not self._allow_remote and is_cloud(model):
            raise _refused(
                f"{_short(model)} is answered at ollama.com, not on this machine: choose a local "
                "model"
            )

    def check_service(self, what: str) -> None:
        """For what is no model and is asked of Ollama's maker. Raises Refused."""
        if not self._allow_remote:
            raise _refused(f"{what} is asked of ollama.com, not of this machine")

    def forget(self) -> None:
        """What names mean may have changed."""
        self._known_ns = None

    async def _host_of(self, model: str) -> str:
        if self._upstream is None:
            return ""
        name = canonical(model)
        if self._age_ns() > (_FRESH_NS if name in self._hosts else _SOON_NS):
            # One question at a time: whoever waits for the turn finds it answered.
            async with self._turn:
                if self._age_ns() > (_FRESH_NS if name in self._hosts else _SOON_NS):
                    await self._learn(self._upstream, name)
        return self._hosts.get(name, "")

    def _age_ns(self) -> float:
        return math.inf if self._known_ns is None else monotonic_ns() - self._known_ns

    async def _learn(self, upstream: Upstream, name: str) -> None:
        asked_ns = monotonic_ns()
        try:
            answer = await upstream.ask("GET", TAGS, within_s=_TAGS_S)
            tags = _read_tags.decode(answer.body)
        except UpstreamError as error:
            if name in self._hosts:
                return  # what was known of it still holds as far as anybody can tell
            raise Refused(no_of_upstream(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Refused(
                no(Reason.ENGINE_FAILED, "Ollama's list of models can't be read")
            ) from error
        self._hosts = {canonical(tag.name): tag.remote_host for tag in tags.models or ()}
        self._known_ns = asked_ns


def _refused(sentence: str, path: str = "model") -> Refused:
    return Refused(no(Reason.BOUNDARY_REFUSED, f"{sentence}, or have allow_remote set", path=path))


def _short(text: str) -> str:
    line = "".join(char if char.isprintable() else " " for char in text[:_MAX_NAME])
    return " ".join(line.split()) or "it"
