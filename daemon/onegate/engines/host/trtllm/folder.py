"""Whether a folder holds a model that can be served, before minutes go into finding out."""

import json
from pathlib import Path
from typing import Any

from onegate.engines.host.engine import LoadFailed

_WEIGHTS = (".safetensors", ".bin")
_INDEX = "model.safetensors.index.json"
_MOST_INDEX_BYTES = 64 << 20
# What git leaves in place of a large file where its LFS is not set up.
_POINTER = b"version https://git-lfs"
_POINTER_MOST_BYTES = 1024
# Where the engine's service sees nothing at all.
_HOMES = ("/home/", "/root/", "/run/user/")


def check_folder(path: Path) -> None:
    """Raises LoadFailed for a path at which there are no weights that can be served."""
    try:
        names = {entry.name for entry in path.iterdir()}
    except FileNotFoundError as error:
        hidden = " (the engine's service sees no home directories)" if _is_in_a_home(path) else ""
        raise LoadFailed(
            f"there is no model at {path}{hidden}: set engine.model to the folder that holds its "
            "weights"
        ) from error
    except NotADirectoryError as error:
        raise LoadFailed(
            f"{path} is no folder: engine.model is the folder of a model's weights"
        ) from error
    except OSError as error:
        raise unreadable(error, path) from error
    if any(name.endswith(".engine") for name in names):
        raise LoadFailed(
            f"{path} holds an engine that was compiled for one GPU and one release, which are not "
            "served: set engine.model to the folder of the weights that it was built from"
        )
    if "adapter_config.json" in names and "config.json" not in names:
        raise LoadFailed(
            f"{path} holds a LoRA adapter, which is not served by itself: merge it into the model "
            "that it was made for, and set engine.model to the result"
        )
    weights = sorted(name for name in names if name.endswith(_WEIGHTS))
    if "config.json" not in names or not weights:
        raise LoadFailed(
            f"{path} holds no config.json with weights (*.safetensors): engine.model is the folder "
            "of a Hugging Face model, downloaded whole"
        )
    try:
        _check_whole(path, names)
        for name in weights:
            _check_weights(path / name)
    except OSError as error:
        raise unreadable(error, path) from error


def unreadable(error: OSError, path: Path) -> LoadFailed:
    """The sentence for a file of the model, or its folder, that the system does not give."""
    where = error.filename or path
    return LoadFailed(
        f"{where} cannot be read ({error.strerror or error}): let the user that the engine runs "
        "as read the model's folder and every file in it"
    )


def _is_in_a_home(path: Path) -> bool:
    return f"{path}/".startswith(_HOMES)


def _check_whole(path: Path, names: set[str]) -> None:
    if _INDEX not in names:
        return
    with (path / _INDEX).open("rb") as file:
        data = file.read(_MOST_INDEX_BYTES + 1)
    try:
        wanted = _files_of(json.loads(data)) if len(data) <= _MOST_INDEX_BYTES else None
    except (ValueError, RecursionError):
        wanted = None
    if wanted is None:
        raise LoadFailed(f"{path}/{_INDEX} is no index of weights: download the folder again")
    if missing := sorted(wanted - names):
        raise LoadFailed(
            f"{path} was not downloaded whole: {len(missing)} of {len(wanted)} files of weights "
            f"are missing, {missing[0][:100]!r} first: download the rest"
        )


def _files_of(index: Any) -> set[str] | None:
    """The files that an index says the weights are in."""
    of_weights = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(of_weights, dict):
        return None
    files = set(map(str, of_weights.values()))
    return files or None


def _check_weights(file: Path) -> None:
    if file.stat().st_size > _POINTER_MOST_BYTES:
        return
    with file.open("rb") as opened:
        start = opened.read(len(_POINTER))
    if start == _POINTER:
        raise LoadFailed(
            f"{file} stands for a file of git LFS that was not downloaded: run git lfs pull in "
            "its folder, or download it with another tool"
        )
