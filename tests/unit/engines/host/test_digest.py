import hashlib
import os

import pytest

from onegate.engines.host import digest
from onegate.engines.host.digest import is_replaced, weights_digest, weights_stamp


@pytest.fixture
def hashed(monkeypatch):
    """Files that were really read."""
    files = []
    real = hashlib.file_digest

    def counted(file, name):
        files.append(file.name)
        return real(file, name)

    monkeypatch.setattr(digest.hashlib, "file_digest", counted)
    return files


def test_a_file_is_hashed_once(tmp_path, hashed):
    weights, cache = tmp_path / "m.gguf", tmp_path / "deep" / "cache.json"
    weights.write_bytes(b"weights")
    expected = f"sha256:{hashlib.sha256(b'weights').hexdigest()}"
    for _ in range(3):
        assert weights_digest(weights, cache) == (expected, "weights")
    assert len(hashed) == 1


def test_a_changed_file_is_hashed_again(tmp_path, hashed):
    weights, cache = tmp_path / "m.gguf", tmp_path / "cache.json"
    weights.write_bytes(b"one")
    first = weights_digest(weights, cache)
    weights.write_bytes(b"two")
    os.utime(weights, ns=(1, 1))
    assert weights_digest(weights, cache) != first
    assert len(hashed) == 2


def test_a_folder_is_the_list_of_its_weights(tmp_path, hashed):
    folder, cache = tmp_path / "model", tmp_path / "cache.json"
    folder.mkdir()
    (folder / "openvino_model.bin").write_bytes(b"a")
    (folder / "readme.txt").write_bytes(b"x")
    first, kind = weights_digest(folder, cache)
    assert kind == "weights_list"
    (folder / "readme.txt").write_bytes(b"y")
    assert weights_digest(folder, cache) == (first, kind)
    (folder / "second.bin").write_bytes(b"b")
    assert weights_digest(folder, cache)[0] != first


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "hf_quant_config.json",
        "tokenizer.model",
        "spiece.model",
        "qwen.tiktoken",
        "chat_template.jinja",
        "modeling_own.py",
        "openvino_model.xml",
    ],
)
def test_a_folder_is_also_how_its_weights_are_read(tmp_path, name):
    (tmp_path / "model.safetensors").write_bytes(b"a")
    (tmp_path / name).write_bytes(b"one")
    first = weights_digest(tmp_path, None)
    stamp = weights_stamp(tmp_path)
    (tmp_path / name).write_bytes(b"another")
    assert weights_digest(tmp_path, None) != first
    assert weights_stamp(tmp_path) != stamp


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b'{"x": 1}', b"\xff"])
def test_a_broken_cache_only_costs_time(tmp_path, content):
    weights, cache = tmp_path / "m.gguf", tmp_path / "cache.json"
    weights.write_bytes(b"weights")
    cache.write_bytes(content)
    assert weights_digest(weights, cache)[0].startswith("sha256:")
    assert weights_digest(weights, cache)[0].startswith("sha256:")


def test_a_cache_that_cannot_be_written_is_said(tmp_path, capsys):
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"weights")
    (tmp_path / "file").write_bytes(b"")
    found, _ = weights_digest(weights, tmp_path / "file" / "cache.json")
    assert found.startswith("sha256:")
    assert "not remembered" in capsys.readouterr().err


def test_the_stamp_changes_with_every_file(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    weights = folder / "a.bin"
    weights.write_bytes(b"a")
    stamps = [weights_stamp(folder), weights_stamp(weights)]
    assert stamps[0] == stamps[1] == weights_stamp(folder)
    os.utime(weights, ns=(1, 1))
    stamps.append(weights_stamp(folder))
    (folder / "new").write_bytes(b"a")
    os.utime(folder / "new", ns=(1, 1))
    (folder / "new").rename(weights)
    stamps.append(weights_stamp(folder))
    (folder / "b.bin").write_bytes(b"")
    stamps.append(weights_stamp(folder))
    (folder / "readme").write_bytes(b"")
    assert weights_stamp(folder) == stamps[-1]
    assert len(set(stamps)) == 4
    with pytest.raises(FileNotFoundError):
        weights_stamp(tmp_path / "none")


def test_without_a_cache_nothing_is_written(tmp_path, hashed):
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"w")
    assert weights_digest(weights, None) == weights_digest(weights, None)
    assert len(hashed) == 2
    assert list(tmp_path.iterdir()) == [weights]


def test_weights_that_cannot_be_looked_at_are_not_replaced(tmp_path, capsys):
    weights = tmp_path / "m.gguf"
    weights.write_bytes(b"a")
    stamp = weights_stamp(weights)
    assert not is_replaced(weights, stamp)
    weights.write_bytes(b"another")
    assert is_replaced(weights, stamp)
    weights.unlink()
    assert not is_replaced(weights, stamp)
    assert "cannot be looked at" in capsys.readouterr().err
