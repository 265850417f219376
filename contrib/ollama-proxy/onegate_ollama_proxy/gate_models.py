"""Everything about models where there is no Ollama: the gate is asked, and nothing is changed."""

from collections.abc import Mapping

import msgspec
from aiohttp import web

from onegate.protocol.errors import Reason
from onegate.protocol.status import PoolStatus
from onegate_ollama_proxy import models
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.incoming import small_body
from onegate_ollama_proxy.management import (
    ACCOUNT,
    CHANGES,
    MAX_SHOW_BYTES,
    OPENAI_MODEL,
    SERVICES,
    SHOW,
    Answer,
    Asker,
    ManagementRoute,
    openai_name,
    shown,
)
from onegate_ollama_proxy.names import canonical
from onegate_ollama_proxy.refused import Refused, no

_JSON = "application/json; charset=utf-8"
# Clients and scripts look for these words.
_RUNNING = "Ollama is running"


class GateModels:
    """The management routes where the models are the gate's. `aliases` are names that the
    configuration gives to some of them."""

    def __init__(
        self, *, boundary: Boundary, aliases: Mapping[str, str], body_timeout_s: float
    ) -> None:
        self._boundary = boundary
        self._aliases = aliases
        self._body_timeout_s = body_timeout_s

    def routes(self) -> tuple[ManagementRoute, ...]:
        """The same as with an Ollama."""
        answers: dict[str, Answer] = {
            "/": self._running,
            "/api/version": self._version,
            "/api/tags": self._tags,
        }
        return (
            *(
                ManagementRoute(method, path, answer)
                for path, answer in answers.items()
                for method in ("HEAD", "GET")
            ),
            ManagementRoute("GET", "/api/ps", self._ps),
            ManagementRoute("GET", "/api/status", self._status),
            ManagementRoute("GET", "/v1/models", self._openai_models),
            ManagementRoute("GET", OPENAI_MODEL, self._openai_model),
            ManagementRoute("POST", SHOW, self._show),
            *(
                ManagementRoute(method, path, self._nothing_to_change)
                for method, path in (*CHANGES, *ACCOUNT, *SERVICES)
            ),
        )

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _running(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        # A gate that is down is not made up.
        await caller.status()
        return web.Response(text=_RUNNING)

    async def _version(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        return _document({"version": models.API_VERSION})

    async def _status(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        return _document({"cloud": {"disabled": True, "source": "config"}})

    async def _tags(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        return _document(models.tags(await self._served(caller)))

    async def _ps(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        return _document(models.ps(await self._served(caller)))

    async def _openai_models(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        return _document(models.openai_list(await self._served(caller)))

    async def _openai_model(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        name, _ = await self._find(openai_name(request), caller)
        return _document(models.openai_one(name))

    async def _show(self, request: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        asked, _ = shown(await small_body(request, MAX_SHOW_BYTES, self._body_timeout_s))
        self._boundary.check_name(asked)
        _, pool = await self._find(asked, caller)
        return _document(models.show(pool))

    async def _nothing_to_change(self, _: web.BaseRequest, caller: Asker) -> web.StreamResponse:
        raise Refused(
            no(
                Reason.UNSUPPORTED,
                "there is no Ollama here: which models there are is in the gate's configuration",
            )
        )

    async def _served(self, caller: Asker) -> list[tuple[str, PoolStatus]]:
        return models.served((await caller.status()).pools, self._aliases)

    async def _find(self, asked: str, caller: Asker) -> tuple[str, PoolStatus]:
        wanted = canonical(asked)
        for name, pool in await self._served(caller):
            if canonical(name) == wanted:
                return name, pool
        raise Refused(no(Reason.WRONG_MODEL, f"model '{asked[:256]}' not found"))


def _document(document: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), headers={"Content-Type": _JSON})
