"""What the management routes let pass, before anything is carried."""

import json

import pytest
from aiohttp.test_utils import make_mocked_request

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.boundary import Boundary
from onegate_ollama_proxy.management import (
    BLOBS,
    CHANGES,
    Management,
    error_line,
    openai_name,
    shown,
)
from onegate_ollama_proxy.members import Members
from onegate_ollama_proxy.refused import Refused, no


class Nobody:
    """A client of whom nothing is known."""

    uid = None
    name = "unknown"

    async def status(self):
        raise AssertionError("the gate is not asked here")


class NoOllama:
    """Nothing may reach it."""

    def open(self, *given, **more):
        raise AssertionError("it was asked")

    ask = open


def management(**given):
    settings = {"allow_remote": False, "everybody": False} | given
    boundary = Boundary(upstream=None, allow_remote=settings["allow_remote"])
    members = Members("models", everybody=settings["everybody"])
    return Management(
        NoOllama(), boundary=boundary, members=members, at_once=16, body_timeout_s=5.0
    )


async def refusal(method, path, **given):
    made = management(**given)
    for route in made.routes():
        is_prefix = route.path.endswith("/") and route.path != "/"
        fits = path.startswith(route.path) if is_prefix else path == route.path
        if route.method == method and fits:
            with pytest.raises(Refused) as error:
                await route.answer(make_mocked_request(method, path), Nobody())
            return error.value.no
    raise AssertionError(f"there is no route {method} {path}")


def test_no_route_is_there_twice():
    routes = [(route.method, route.path) for route in management().routes()]
    assert len(routes) == len(set(routes))
    assert {("HEAD", "/"), ("GET", "/api/tags"), ("POST", "/api/pull")} <= set(routes)


@pytest.mark.parametrize(("method", "path"), CHANGES)
async def test_changes_are_for_members(method, path):
    if path == BLOBS:
        path += "sha256:" + "a" * 64
    said = await refusal(method, path)
    assert (said.status, said.reason) == (403, Reason.PERMISSION)


@pytest.mark.parametrize(
    "digest", ["", "sha256:abc", "../../api/generate", "sha256:" + "A" * 64, "sha256:" + "a" * 65]
)
async def test_a_blob_is_named_by_its_digest(digest):
    said = await refusal("POST", BLOBS + digest, everybody=True)
    assert said.status == 400


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/me"),
        ("POST", "/api/signout"),
        ("DELETE", "/api/user/keys/abc"),
        ("POST", "/api/experimental/web_search"),
        ("POST", "/api/experimental/web_fetch"),
        ("GET", "/v1/models/gpt-oss:cloud"),
    ],
)
async def test_what_is_asked_elsewhere_is_refused(method, path):
    assert (await refusal(method, path, everybody=True)).reason is Reason.BOUNDARY_REFUSED


async def test_an_account_is_changed_by_members_also_where_it_may_be_asked():
    said = await refusal("POST", "/api/signout", allow_remote=True)
    assert said.reason is Reason.PERMISSION


@pytest.mark.parametrize("body", [{"model": "a"}, {"name": "a"}, {"model": "a", "name": "b"}])
def test_a_description_is_of_the_model_that_is_named(body):
    name, question = shown(json.dumps(body | {"verbose": True}).encode())
    assert name == "a"
    assert json.loads(question) == {"model": "a", "verbose": True}


def test_ollama_reads_the_same_name():
    name, question = shown(b'{"model":"local","MODEL":"x:cloud","Name":"y:cloud"}')
    assert name == "local"
    assert json.loads(question) == {"model": "local"}


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "missing request body"),
        (b"{}", "model is required"),
        (b"[]", "not understood"),
        (b"{", "not understood"),
        (b"\xff", "not understood"),
        (b'{"model":' + b"[" * 100_000, "not understood"),
    ],
)
def test_a_question_that_is_none(body, sentence):
    with pytest.raises(Refused, match=sentence):
        shown(body)


@pytest.mark.parametrize("path", ["/v1/models/", "/v1/models/a/b", "/v1/models/a%2Fb"])
def test_a_name_is_one_piece_of_a_path(path):
    with pytest.raises(Refused):
        openai_name(make_mocked_request("GET", path))


def test_a_name_may_have_a_tag():
    assert openai_name(make_mocked_request("GET", "/v1/models/a:7b")) == "a:7b"


def test_an_error_in_a_stream_is_one_line():
    line = error_line(no(Reason.ENGINE_FAILED, "it\nbroke"))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"error": "it\nbroke"}
