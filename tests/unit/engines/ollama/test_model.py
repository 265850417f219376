"""What is known of one model, as a pool."""

import pytest

from onegate.config import OllamaModel
from onegate.engines.base import PoolState, Reservation
from onegate.engines.ollama.model import Facts, Known, missing, pool_of
from onegate.engines.ollama.shapes import Loaded, Tag
from onegate.engines.ollama.version import parse_version

VERSION = parse_version("0.33.0")


def known_of(**given):
    known = Known(OllamaModel(model="m", max_seqs=3, context_tok=2048))
    known.facts = Facts(digest="d" * 64)
    for name, value in given.items():
        setattr(known, name, value)
    return known


def pool(known, version=VERSION, boundary="local"):
    return pool_of(known, version, penalties=False, boundary=boundary)


def loaded(**given):
    return Loaded(name="m:latest", **given)


@pytest.mark.parametrize(
    ("given", "boundary", "state"),
    [
        ({}, "local", PoolState.COLD),
        ({"loaded": loaded()}, "local", PoolState.READY),
        ({"loaded": loaded(context_length=2048)}, "local", PoolState.READY),
        ({"loaded": loaded(context_length=4096)}, "local", PoolState.COLD),
        ({"loaded": loaded(), "is_loading": True}, "local", PoolState.LOADING),
        ({"loaded": loaded(), "error": "no"}, "local", PoolState.FAILED),
        ({}, "remote", PoolState.READY),
        ({"error": "no"}, "remote", PoolState.FAILED),
    ],
)
def test_its_state(given, boundary, state):
    assert pool(known_of(**given), boundary=boundary).state is state


def test_each_seat_has_a_whole_context():
    capacity = pool(known_of()).capacity
    assert (capacity.max_seqs, capacity.max_context_tok, capacity.kv_tok) == (3, 2048, 6144)
    assert capacity.reservation is Reservation.PER_SLOT


def test_identity_is_known_once_the_server_has_spoken():
    identity = pool(known_of()).identity
    assert identity.digest == "sha256:" + "d" * 64
    assert "num_ctx=2048" in identity.launch
    assert pool(known_of(), version=None).identity is None
    assert pool(known_of(facts=None)).identity is None
    assert pool(known_of(facts=Facts(digest=""))).identity.digest is None


@pytest.mark.parametrize("boundary", ["local", "remote", "unknown"])
def test_the_boundary_is_that_of_the_server(boundary):
    assert pool(known_of(), boundary=boundary).identity.boundary == boundary


@pytest.mark.parametrize(
    ("size", "vram", "share"),
    [(1000, 1000, 0.0), (1000, 0, 1.0), (1000, 400, 0.6), (0, 0, None), (1000, 1001, None)],
)
def test_how_much_is_on_the_processor(size, vram, share):
    assert known_of(loaded=loaded(size=size, size_vram=vram)).offload() == share


def test_nothing_is_on_it_while_it_is_not_loaded():
    assert known_of().offload() is None


def test_a_measured_load_is_what_a_switch_costs():
    known = known_of()
    known.took(1234.0)
    found = pool(known)
    assert (found.loads, found.load_ms, found.switch_cost_ms) == (1, 1234.0, 1234.0)


def test_a_missing_model_is_told_with_the_command():
    text = missing("m", {"a:latest": Tag(name="a:latest")})
    assert "it has a:latest" in text
    assert "ollama pull m" in text
    assert "it has none" in missing("m", {})
