import select
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from onegate.engines.host.digest import weights_digest
from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm import loader as module
from onegate.engines.host.trtllm.loader import Loader
from onegate.engines.host.trtllm.mailbox import Mailbox
from onegate.engines.host.trtllm.messages import Broken


@dataclass(frozen=True)
class Before:
    """What is loaded already."""

    stamp: tuple
    session: object
    identity: object


class Session:
    def __init__(self, ends):
        self.ends = ends
        self.asked = []

    def end(self, timeout_s):
        self.asked.append(timeout_s)
        return self.ends


@pytest.fixture
def mail():
    return Mailbox()


@pytest.fixture
def start(mail, make_settings, monkeypatch, tmp_path):
    def start(result, before=None, **given):
        def load(settings, cache, post):
            if isinstance(result, Exception):
                raise result
            return result

        monkeypatch.setattr(module, "load", load)
        loader = Loader(make_settings(**given), tmp_path / "cache.json", mail)
        loader.start(before)
        assert loader.loading
        assert select.select([mail.fd], [], [], 30)[0]
        loader.heard()
        assert not loader.loading
        loader.heard()
        return mail.take()[0]

    return start


def test_what_comes_of_it(start):
    loaded = object()
    assert start(loaded).loaded is loaded
    assert start(LoadFailed("put it there")).error == "put it there"
    assert start(OSError("disk")).error == "disk"
    assert start(KeyError("x")).error == "the load failed: KeyError: 'x'"


def test_a_load_without_end_ends(mail, make_settings, monkeypatch, tmp_path):
    monkeypatch.setattr(module.Loader, "_run", lambda self, before: None)
    loader = Loader(make_settings(load_s=0.01), tmp_path / "c", mail)
    loader.start(None)
    assert select.select([mail.fd], [], [], 30)[0]
    assert "within 0.01 s" in mail.take()[0].error


@pytest.fixture
def before(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "m.safetensors").write_bytes(b"weights")
    digest, _ = weights_digest(folder, None)

    def make(ends=True):
        return Before((), Session(ends), SimpleNamespace(digest=digest))

    return folder, make


def test_the_same_weights_in_other_files_are_what_is_loaded(start, before):
    folder, make = before
    loaded = make()
    kept = start(LoadFailed("not called"), loaded, path=str(folder)).loaded
    assert kept.session is loaded.session
    assert kept.stamp[0][0] == "m.safetensors"
    assert loaded.session.asked == []


@pytest.mark.parametrize("ends", [True, False])
def test_others_take_its_place_when_it_is_gone(start, before, ends):
    folder, make = before
    (folder / "m.safetensors").write_bytes(b"other weights")
    loaded, new = make(ends), object()
    outcome = start(new, loaded, path=str(folder))
    assert loaded.session.asked == [module.UNLOAD_S]
    if ends:
        assert outcome.loaded is new
    else:
        assert isinstance(outcome, Broken)
