import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm import load as module
from onegate.engines.host.trtllm.load import QUIET, load
from onegate.engines.host.trtllm.messages import Iteration
from onegate.engines.host.trtllm.surface import Surface


class Session:
    """A session of which each part may fail."""

    def __init__(self, library, llm, post, **given):
        self.given = given
        self.ended = False
        self.watched = False
        self.figures = Iteration(blocks=10, block_tok=32)
        self.warm_up_raises = None
        made.append(self)

    def warm_up(self, timeout_s):
        self.timeout_s = timeout_s
        for act in on_warm_up:
            act(self)

    def begin_to_watch(self):
        self.watched = True

    def end(self, timeout_s):
        self.ended = True


made, on_warm_up = [], []


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 4096}')
    (tmp_path / "m.safetensors").write_bytes(b"weights")
    return tmp_path


@pytest.fixture(autouse=True)
def parts(monkeypatch, library):
    made.clear()
    on_warm_up.clear()
    facts = SimpleNamespace(max_bytes_per_tok=9)
    text = SimpleNamespace(facts=facts, encode=lambda text, *, add_special: [5, 6])
    monkeypatch.setattr(module, "open_library", lambda gpu: library)
    monkeypatch.setattr(module, "open_text", lambda path, *, trust_remote_code: text)
    monkeypatch.setattr(module, "gpu_facts", lambda environment: None)
    for name in QUIET:
        monkeypatch.setenv(name, "as it was before")
    monkeypatch.setattr(module, "Session", Session)


def test_what_is_known_of_a_loaded_model(folder, make_settings, capsys):
    loaded = load(make_settings(), None, print)
    assert loaded.session is made[0]
    assert made[0].watched
    assert made[0].given == {"canary_ids": [5], "salted": True, "stall_s": 30.0}
    assert made[0].timeout_s == 300.0
    capacity = loaded.capacity
    assert (capacity.kv_tok, capacity.block_tok, capacity.max_bytes_per_tok) == (320, 32, 9)
    assert (capacity.max_context_tok, capacity.max_step_tok) == (320, 128)
    identity = loaded.identity
    assert (identity.engine, identity.engine_version) == ("tensorrt-llm", "1.2.1")
    assert identity.digest.startswith("sha256:")
    assert identity.launch.startswith("tensorrt_llm.LLM(model=")
    assert not loaded.has_priority
    assert "nothing is known of the GPU" in capsys.readouterr().err


def test_an_engine_that_does_not_say_how_large_its_cache_is(folder, make_settings, capsys):
    def mute(session):
        session.figures = Iteration()

    on_warm_up.append(mute)
    capacity = load(make_settings(kv_tok=400), None, print).capacity
    assert (capacity.kv_tok, capacity.block_tok, capacity.max_context_tok) == (400, 1, 400)
    assert "does not say how large its cache is" in capsys.readouterr().err


def test_a_release_that_cannot_separate_users(folder, make_settings, monkeypatch, library):
    older = Surface("1.0.0", {"generate_async": None})
    monkeypatch.setattr(
        module,
        "open_library",
        lambda gpu: SimpleNamespace(
            version="1.0.0",
            surface=older,
            kv_cache_config=dict,
            scheduler_config=dict,
            policies=None,
            llm=library.llm,
        ),
    )
    with pytest.raises(LoadFailed, match="prefix_cache_scope"):
        load(make_settings(), None, print)
    assert load(make_settings(salted=False), None, print)


def test_a_constructor_that_fails(folder, make_settings, monkeypatch, library):
    def fails(**given):
        raise RuntimeError("CUDA out of memory")

    object.__setattr__(library, "llm", fails)
    with pytest.raises(LoadFailed, match="not enough GPU memory for m: "):
        load(make_settings(), None, print)


def test_one_that_comes_up_and_generates_nothing_is_ended(folder, make_settings):
    def hangs(session):
        raise TimeoutError

    on_warm_up.append(hangs)
    with pytest.raises(LoadFailed, match="does not generate"):
        load(make_settings(), None, print)
    assert made[0].ended


def test_one_that_is_replaced_meanwhile_is_not_served(folder, make_settings):
    on_warm_up.append(lambda session: (folder / "m.safetensors").write_bytes(b"others here"))
    with pytest.raises(LoadFailed, match="was replaced while it was loaded"):
        load(make_settings(), None, print)
    assert made[0].ended


def test_one_of_which_a_file_goes_meanwhile_is_not_served(folder, make_settings):
    on_warm_up.append(lambda session: (folder / "link.safetensors").symlink_to("nowhere"))
    with pytest.raises(LoadFailed, match="was replaced while it was loaded"):
        load(make_settings(), None, print)


def test_files_that_may_not_be_read_are_a_sentence(folder, make_settings, monkeypatch):
    def refuses(path, cache):
        raise PermissionError(13, "Permission denied", str(path / "m.safetensors"))

    monkeypatch.setattr(module, "weights_digest", refuses)
    with pytest.raises(LoadFailed, match=r"m\.safetensors cannot be read \(Permission denied"):
        load(make_settings(), None, print)


def test_nothing_is_fetched_and_nobody_is_told(folder, make_settings, monkeypatch, library):
    """Before the package is imported, which is when it looks."""
    found = []

    def opens(gpu):
        found.append({name: os.environ[name] for name in QUIET})
        return library

    monkeypatch.setattr(module, "open_library", opens)
    load(make_settings(), None, print)
    assert found == [QUIET]
    assert QUIET == dict.fromkeys(["HF_HUB_OFFLINE", "DO_NOT_TRACK", "TRTLLM_NO_USAGE_STATS"], "1")


@pytest.mark.parametrize(("version", "said"), [("1.2.1", 0), ("1.3.0", 1)])
def test_another_release_is_said(
    folder, make_settings, monkeypatch, library, capsys, version, said
):
    other = replace(library, version=version)
    monkeypatch.setattr(module, "open_library", lambda gpu: other)
    load(make_settings(), None, print)
    assert capsys.readouterr().err.count("was written for") == said


@pytest.mark.parametrize(("asked_tok", "counts_tok"), [(512, 512), (4096, 4096), (9000, 4096)])
def test_the_context_is_no_longer_than_the_models(
    folder, make_settings, capsys, asked_tok, counts_tok
):
    on_warm_up.append(lambda session: setattr(session, "figures", Iteration()))
    loaded = load(make_settings(context_tok=asked_tok), None, print)
    assert loaded.capacity.max_context_tok == counts_tok
    assert f"max_seq_len={counts_tok}" in loaded.identity.launch
    assert ("reads 4096 tokens at most" in capsys.readouterr().err) is (asked_tok > counts_tok)
