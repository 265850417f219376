"""Which path is answered by whom, and what is said where nobody answers: as Ollama says it."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from types import ModuleType

from aiohttp import web

from onegate_ollama_proxy.answer import No, Refusal
from onegate_ollama_proxy.caller import Caller
from onegate_ollama_proxy.dialects.anthropic import refusal as anthropic
from onegate_ollama_proxy.dialects.ollama import refusal as ollama
from onegate_ollama_proxy.dialects.openai import refusal as openai
from onegate_ollama_proxy.told import Told

Handler = Callable[[web.BaseRequest, Caller, Told], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Entry:
    """`path` with a slash at its end (and not alone) stands for all paths that begin with it."""

    method: str
    path: str
    handler: Handler


class Routes:
    """The table."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._exact: dict[str, dict[str, Handler]] = {}
        self._below: dict[str, dict[str, Handler]] = {}
        for entry in entries:
            is_below = len(entry.path) > 1 and entry.path.endswith("/")
            table = self._below if is_below else self._exact
            table.setdefault(entry.path, {})[entry.method] = entry.handler

    def find(self, method: str, path: str) -> Handler | web.Response:
        """Who answers; or the answer where nobody does."""
        methods = self._methods(path)
        if methods is None:
            return self._elsewhere(method, path)
        if method not in methods:
            allowed = ", ".join(sorted(methods))
            return web.Response(
                status=405, text="405 method not allowed", headers={"Allow": allowed}
            )
        return methods[method]

    def _methods(self, path: str) -> dict[str, Handler] | None:
        if path in self._exact:
            return self._exact[path]
        for start, methods in self._below.items():
            if path.startswith(start) and len(path) > len(start):
                return methods
        return None

    def _elsewhere(self, method: str, path: str) -> web.Response:
        other = path.rstrip("/")
        if other != path and other in self._exact:
            status = 301 if method in ("GET", "HEAD") else 307
            return web.Response(status=status, headers={"Location": other})
        return web.Response(status=404, text="404 page not found")


def refusal_of(path: str, no: No) -> Refusal:
    """How the API that a path belongs to says no."""
    return _dialect(path).refusal(no)  # type: ignore[no-any-return]  # a module's function


def _dialect(path: str) -> ModuleType:
    if path.startswith("/v1/messages"):
        return anthropic
    return openai if path.startswith("/v1/") else ollama
