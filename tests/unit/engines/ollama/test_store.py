"""What Ollama says of the configured models."""

import pytest
from tests.unit.engines.ollama.conftest import failed

from onegate.config import OllamaConfig, OllamaModel
from onegate.engines.base import EngineBroke, EngineMalformed, PoolState
from onegate.engines.ollama.store import Store, text_of


def store(*names, allow_remote=False, boundary="local", expects_gpu=True, **given):
    models = tuple(OllamaModel(model=name, **given) for name in names or ("m",))
    log = []
    found = Store(
        OllamaConfig(models=models),
        boundary=boundary,
        allow_remote=allow_remote,
        log=log.append,
        expects_gpu=expects_gpu,
    )
    found.log = log
    return found


async def learnt(link, *names, **given):
    found = store(*names, **given)
    await found.learn(link)
    return found


async def test_before_anything_is_said_pools_are_cold_and_nameless():
    (pool,) = store().pools()
    assert (pool.state, pool.identity) == (PoolState.COLD, None)


async def test_one_pool_for_each_configured_model(link):
    link.holds("m:latest", size=10, size_vram=10)
    found = await learnt(link, "M", "n")
    one, two = found.pools()
    assert (one.model, one.state) == ("M", PoolState.READY)
    assert (two.model, two.state) == ("n", PoolState.FAILED)
    assert "ollama pull n" in two.error


@pytest.mark.parametrize(
    ("vram", "expects_gpu", "said"),
    [
        (1000, True, None),
        (0, False, None),
        (0, True, "100 % of it is on the CPU"),
        (400, False, "60 % of it is on the CPU"),
        (999, True, "1 % of it is on the CPU"),
        (1, True, "99 % of it is on the CPU"),
    ],
)
async def test_what_is_not_on_the_gpu_is_a_notice(link, vram, expects_gpu, said):
    link.holds("m:latest", size=1000, size_vram=vram)
    found = await learnt(link, expects_gpu=expects_gpu)
    notices = found.offloads()
    if said is None:
        assert notices == []
        return
    (notice,) = notices
    assert (notice.code, notice.model) == ("offload", "m")
    assert notice.detail.startswith(said)
    assert found.offloads() == [], "told once"
    link.holds()
    await found.look(link)
    assert [(n.code, n.detail) for n in found.offloads()] == [("offload", None)]
    assert found.offloads() == []


async def test_two_names_of_one_model_share_what_is_in_memory(link):
    link.documents["/api/tags"]["models"].append({"name": "n:latest", "digest": "d1"})
    link.holds("m:latest")
    found = await learnt(link, "m", "n")
    assert [pool.state for pool in found.pools()] == [PoolState.READY, PoolState.READY]


async def test_a_look_asks_for_no_more_than_what_is_in_memory(link):
    found = await learnt(link)
    link.asked.clear()
    await found.look(link)
    assert link.paths() == ["/api/ps"]


async def test_a_model_is_described_once_for_each_digest(link, monkeypatch):
    monkeypatch.setattr("onegate.engines.ollama.store._STORE_EVERY_NS", -1)
    found = await learnt(link)
    await found.look(link)
    assert link.paths().count("/api/show") == 1
    link.documents["/api/tags"] = {"models": [{"name": "m:latest", "digest": "d2"}]}
    await found.look(link)
    assert link.paths().count("/api/show") == 2
    assert found.pools()[0].identity.digest == "sha256:d2"


async def test_a_description_that_fails_is_the_models_error(link):
    link.documents["/api/show"] = failed(500, "disk on fire")
    found = await learnt(link)
    assert found.pools()[0].state is PoolState.FAILED
    assert "disk on fire" in found.pools()[0].error


async def test_status_is_asked_of_who_has_it(link):
    link.documents["/api/version"] = {"version": "0.9.3"}
    await learnt(link)
    assert "/api/status" not in link.paths()


async def test_what_is_no_ollama_is_malformed(link):
    link.documents["/api/version"] = {"object": "list"}
    with pytest.raises(EngineMalformed):
        await learnt(link)


async def test_more_context_than_it_was_trained_for_is_cut_and_said(link):
    link.documents["/api/show"] = {"model_info": {"x.context_length": 2048}}
    found = await learnt(link)
    assert found.pools()[0].capacity.max_context_tok == 2048
    assert "2048" in found.log[0]


async def test_nothing_is_asked_about_a_cloud_name(link):
    found = await learnt(link, "m:cloud")
    assert "/api/show" not in link.paths()
    assert found.pools()[0].state is PoolState.FAILED
    assert "ollama.com" in found.pools()[0].error
    assert found.pools()[0].identity.boundary == "remote"


@pytest.mark.parametrize("where", ["/api/tags", "/api/show"])
async def test_an_alias_of_a_model_elsewhere(link, where):
    if where == "/api/tags":
        link.documents[where]["models"][0]["remote_host"] = "far"
    else:
        link.documents[where]["remote_host"] = "far"
    found = await learnt(link)
    assert "answered at far" in found.pools()[0].error
    allowed = await learnt(link, allow_remote=True)
    assert allowed.pools()[0].state is PoolState.READY
    assert allowed.pools()[0].identity.boundary == "remote"


async def test_a_cloud_that_is_switched_off_is_said(link):
    link.documents["/api/status"] = {"cloud": {"disabled": True}}
    found = await learnt(link, "m:cloud", allow_remote=True)
    assert "OLLAMA_NO_CLOUD" in found.pools()[0].error


async def test_an_answer_from_elsewhere_changes_the_pool(link):
    link.holds("m:latest")
    found = await learnt(link)
    assert not found.came_from(found["m"], "far")
    assert found.pools()[0].state is PoolState.FAILED
    await found.learn(link)
    assert found.pools()[0].state is PoolState.FAILED
    allowed = await learnt(link, allow_remote=True)
    assert allowed.came_from(allowed["m"], "far")
    assert allowed.pools()[0].state is PoolState.READY


def test_the_sentence_of_an_error():
    assert text_of(failed(503, "full")) == "Ollama is busy: full"
    assert text_of(EngineBroke("gone")) == "gone"
