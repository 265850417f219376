import json
from pathlib import Path

import pytest

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm import folder as module
from onegate.engines.host.trtllm.folder import check_folder, unreadable

INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "m.safetensors").write_bytes(b"weights")
    return tmp_path


def refused(path) -> str:
    with pytest.raises(LoadFailed) as failed:
        check_folder(path)
    text = str(failed.value)
    assert len(text.splitlines()) == 1
    return text


def test_a_folder_of_weights(folder):
    check_folder(folder)
    (folder / "m.safetensors").rename(folder / "pytorch_model.bin")
    check_folder(folder)


def test_what_is_no_folder_of_weights(folder):
    assert "there is no model at" in refused(folder / "nowhere")
    assert "is no folder" in refused(folder / "config.json")
    assert "is no folder" in refused(folder / "config.json" / "below")
    (folder / "rank0.engine").write_bytes(b"")
    assert "compiled for one GPU" in refused(folder)
    (folder / "rank0.engine").unlink()
    (folder / "m.safetensors").unlink()
    assert "no config.json with weights" in refused(folder)


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("/home/anna/model", True),
        ("/root/model", True),
        ("/homework/model", False),
        ("/srv/model", False),
    ],
)
def test_home_directories_are_not_seen_by_a_service(monkeypatch, path, hidden):
    def nothing(self):
        raise FileNotFoundError

    monkeypatch.setattr(module.Path, "iterdir", nothing)
    assert ("sees no home directories" in refused(Path(path))) is hidden


def test_an_adapter_is_no_model(folder):
    (folder / "adapter_config.json").write_text("{}")
    check_folder(folder)  # a merged one that has kept it
    (folder / "config.json").unlink()
    assert "LoRA adapter" in refused(folder)


def test_all_of_what_the_index_names_has_to_be_there(folder):
    named = {"a": "m.safetensors", "b": "n.safetensors", "c": "o.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": named}))
    text = refused(folder)
    assert "2 of 3 files of weights are missing, 'n.safetensors' first" in text
    for name in named.values():
        (folder / name).write_bytes(b"weights")
    check_folder(folder)


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"weight_map": []}',
        b'{"weight_map": {}}',
        b"\xff",
    ],
    ids=lambda index: repr(index[:12]),
)
def test_an_index_that_is_none(folder, index):
    (folder / INDEX).write_bytes(index)
    assert "is no index of weights" in refused(folder)


def test_an_index_without_an_end_is_not_read_to_it(folder, monkeypatch):
    monkeypatch.setattr(module, "_MOST_INDEX_BYTES", 100)
    whole = json.dumps({"weight_map": {"a": "m.safetensors"}})
    (folder / INDEX).write_text(whole.ljust(100))
    check_folder(folder)
    (folder / INDEX).write_text(whole.ljust(101))
    assert "is no index of weights" in refused(folder)


def test_names_in_an_index_are_not_told_at_length(folder):
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "x\n" * 5000}}))
    assert len(refused(folder)) < 500


def test_what_git_leaves_in_place_of_a_file(folder):
    (folder / "m.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid x\n")
    assert "git lfs pull" in refused(folder)


def test_a_file_that_is_only_a_link(folder):
    (folder / "n.safetensors").symlink_to(folder / "blob")
    assert "n.safetensors cannot be read (No such file" in refused(folder)


def test_what_may_not_be_read(folder, monkeypatch):
    def refuses(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.Path, "iterdir", refuses)
    assert f"{folder} cannot be read (Permission denied): let the user" in refused(folder)


def test_the_file_at_fault_is_named(folder):
    error = PermissionError(13, "Permission denied", "/m/config.json")
    assert str(unreadable(error, folder)).startswith("/m/config.json cannot be read (Permission")
    assert "cannot be read (odd)" in str(unreadable(OSError("odd"), folder))
