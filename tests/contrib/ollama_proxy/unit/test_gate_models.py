"""The management routes where there is no Ollama."""

import json
from types import SimpleNamespace

import pytest
from aiohttp.test_utils import make_mocked_request

from onegate.client.errors import Unavailable
from onegate.protocol.errors import Reason
from onegate.protocol.status import PoolStatus
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.gate_models import GateModels
from onegate_ollama_proxy.management import CHANGES, Management
from onegate_ollama_proxy.members import Members
from onegate_ollama_proxy.refused import Refused

FIXED = dict(seats=1, seats_used=0, seats_quarantined=0, restarts=0)
POOLS = [
    PoolStatus(model="tiny", state="ready", max_context_tok=4096, **FIXED),
    PoolStatus(model="big:70b", state="cold", **FIXED),
]


class Caller:
    """Somebody, and a gate that has two models or is down."""

    uid = 1000
    name = "uid:1000"

    def __init__(self, *, down: bool = False) -> None:
        self.down = down

    async def status(self):
        if self.down:
            raise Unavailable("nobody")
        return SimpleNamespace(pools=POOLS)


def gate_models() -> GateModels:
    boundary = Boundary(upstream=None, allow_remote=False)
    return GateModels(boundary=boundary, aliases={"gpt-4o-mini": "tiny"}, body_timeout_s=5.0)


async def ask(method, path, *, body: bytes = b"", caller: Caller | None = None):
    for route in gate_models().routes():
        is_prefix = route.path.endswith("/") and route.path != "/"
        fits = path.startswith(route.path) if is_prefix else path == route.path
        if route.method == method and fits:
            request = make_mocked_request(method, path, payload=Body(body))
            answer = await route.answer(request, caller or Caller())
            return (
                answer.body.decode()
                if "json" not in answer.content_type
                else (json.loads(answer.body))
            )
    raise AssertionError(f"there is no route {method} {path}")


class Body:
    """A body that is there already."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def readany(self):
        data, self._data = self._data, b""
        return data


def test_the_routes_are_those_that_there_are_with_an_ollama():
    boundary = Boundary(upstream=None, allow_remote=False)
    with_ollama = Management(
        None, boundary=boundary, members=Members("x"), at_once=16, body_timeout_s=5.0
    )
    theirs = {(route.method, route.path) for route in with_ollama.routes()}
    mine = {(route.method, route.path) for route in gate_models().routes()}
    assert theirs - mine == {("GET", "/api/experimental/model-recommendations")}
    assert mine - theirs == set()


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_it_runs_where_the_gate_does(method):
    assert await ask(method, "/") == "Ollama is running"
    with pytest.raises(Unavailable):
        await ask(method, "/", caller=Caller(down=True))


async def test_what_there_is():
    assert (await ask("GET", "/api/version"))["version"]
    listed = await ask("GET", "/api/tags")
    names = [entry["name"] for entry in listed["models"]]
    assert names == ["gpt-4o-mini:latest", "tiny:latest", "big:70b"]
    loaded = await ask("GET", "/api/ps")
    assert "big:70b" not in [entry["name"] for entry in loaded["models"]]
    assert [entry["id"] for entry in (await ask("GET", "/v1/models"))["data"]] == names
    assert (await ask("GET", "/api/status"))["cloud"]["disabled"] is True


@pytest.mark.parametrize("name", ["tiny", "TINY:latest", "gpt-4o-mini"])
async def test_what_it_is(name):
    shown = await ask("POST", "/api/show", body=json.dumps({"model": name}).encode())
    assert shown["model_info"]["onegate.context_length"] == 4096
    assert (await ask("GET", f"/v1/models/{name}"))["object"] == "model"


@pytest.mark.parametrize("name", ["nothing", "big"])
async def test_what_it_is_not(name):
    for asked in (
        ask("POST", "/api/show", body=json.dumps({"model": name}).encode()),
        ask("GET", f"/v1/models/{name}"),
    ):
        with pytest.raises(Refused) as error:
            await asked
        assert error.value.no.status == 404
        assert "not found" in error.value.no.sentence


async def test_a_cloud_name_is_refused_here_too():
    with pytest.raises(Refused) as error:
        await ask("POST", "/api/show", body=b'{"model":"x:cloud"}')
    assert error.value.no.reason is Reason.BOUNDARY_REFUSED


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_nothing_is_changed(method, path):
    with pytest.raises(Refused) as error:
        await ask(method, path)
    assert error.value.no.reason is Reason.UNSUPPORTED
