"""Questions about models where there is no Ollama."""

import pytest

from onegate.protocol.content import Identity
from onegate.protocol.status import PoolStatus
from onegate_ollama_proxy import models

DIGEST = "AB" * 32


def pool(model="tiny", state="ready", **given):
    fixed = dict(seats=1, seats_used=0, seats_quarantined=0, restarts=0)
    return PoolStatus(model=model, state=state, **fixed, **given)


def test_aliases_come_first_and_only_those_of_models_that_are_there():
    pools = [pool("a"), pool("b", "cold")]
    served = models.served(pools, {"small": "a", "gone": "c", "b": "a"})
    assert [(name, found.model) for name, found in served] == [
        ("small", "a"),
        ("b", "a"),
        ("a", "a"),
    ]


def test_a_list_has_what_clients_insist_on():
    identity = Identity(engine="openvino", model="tiny", digest=f"sha256:{DIGEST}")
    (entry,) = models.tags([("tiny", pool(identity=identity))])["models"]
    assert entry["name"] == entry["model"] == "tiny:latest"
    assert entry["digest"] == DIGEST.lower()
    assert {"modified_at", "size", "details"} <= entry.keys()
    wanted = {"format", "family", "families", "parameter_size", "quantization_level"}
    assert wanted <= entry["details"].keys()
    assert entry["details"]["format"] == "openvino"


@pytest.mark.parametrize("digest", [None, "sha256:abc", ""])
def test_a_digest_that_is_none_of_ollamas_kind_is_zeros(digest):
    identity = Identity(engine="x", model="tiny", digest=digest)
    (entry,) = models.tags([("tiny", pool(identity=identity))])["models"]
    assert entry["digest"] == "0" * 64


@pytest.mark.parametrize(
    ("model", "shown"),
    [
        ("a", "a:latest"),
        ("a:7b", "a:7b"),
        ("host:5/a", "host:5/a:latest"),
        ("/a/b.gguf", "/a/b.gguf:latest"),
    ],
)
def test_a_listed_name_has_a_tag(model, shown):
    assert models.listed_name(model) == shown


def test_only_what_is_loaded_runs():
    pools = [("a", pool("a", max_context_tok=4096)), ("b", pool("b", "cold"))]
    (entry,) = models.ps(pools)["models"]
    assert entry["name"] == "a:latest"
    assert entry["context_length"] == 4096
    assert "modified_at" not in entry
    assert "expires_at" in entry


def test_a_description_tells_the_context_where_clients_look():
    shown = models.show(pool(max_context_tok=8192))
    family = shown["model_info"]["general.architecture"]
    assert shown["model_info"][f"{family}.context_length"] == 8192
    assert shown["capabilities"] == ["completion"]
    assert "onegate.context_length" not in models.show(pool())["model_info"]


def test_what_a_model_can_do_has_ollamas_names():
    """An editor offers its tools to a model that says `tools`, and to no other."""
    shown = models.show(pool(features=["schema", "suffix", "tools", "images", "a-new-one"]))
    assert shown["capabilities"] == ["completion", "tools", "vision", "insert"]


def test_the_openai_list():
    listed = models.openai_list([("tiny", pool())])
    assert listed["object"] == "list"
    assert listed["data"][0]["id"] == "tiny:latest"
    assert listed["data"][0]["object"] == "model"


def test_the_version_is_one_that_clients_can_read():
    # Open WebUI compares numbers and fails on anything else.
    assert all(part.isdigit() for part in models.API_VERSION.split("."))
