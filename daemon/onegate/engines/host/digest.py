"""Digest of a model's weights, computed once per file and remembered by what identifies it."""

import hashlib
import os
import sys
from pathlib import Path

from onegate.engines.host.remembered import recall, remember

# Weights as engines name them, and what else of a folder changes what is computed: two models of
# one set of weights may read prompts otherwise, or be another network.
_WEIGHTS = ("*.bin", "*.safetensors", "*.gguf")
_READ = ("*.json", "*.jinja", "*.model", "*.tiktoken", "merges.txt", "vocab.txt", "*.xml", "*.py")


# What `weights_stamp` found.
Stamp = tuple[tuple[str, int, int, int, int], ...]


def weights_stamp(path: Path) -> Stamp:
    """What changes when the weights are replaced or written to: name, device, inode, size and
    mtime in ns of each file. Raises OSError where they cannot be looked at."""
    found = []
    for file in _weights(path):
        facts = file.stat()
        where = (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns)
        found.append((file.name, *where))
    return tuple(found)


def is_replaced(path: Path, stamp: Stamp) -> bool:
    """Whether other weights are there than those that were loaded. No, where they cannot be looked
    at: what is in memory goes on, and there is nothing to take its place."""
    try:
        return weights_stamp(path) != stamp
    except OSError as error:
        sys.stderr.write(f"the model's files cannot be looked at: {error}\n")
        return False


def weights_digest(path: Path, cache: Path | None) -> tuple[str, str]:
    """`sha256:…`, and what was hashed: `weights` for a file; for a folder `weights_list`, its
    weights with its configuration, tokenizer and template.

    `cache` is a JSON file, {"dev:inode:size:mtime_ns": "hex"}; one that is missing, broken or not
    writable only costs the time to hash again, and so does None. Raises OSError where the weights
    cannot be read.
    """
    if not path.is_dir():
        return f"sha256:{_file_digest(path, cache)}", "weights"
    whole = hashlib.sha256()
    for file in _weights(path):
        whole.update(f"{file.name}:{_file_digest(file, cache)}\n".encode())
    return f"sha256:{whole.hexdigest()}", "weights_list"


def _weights(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for pattern in (*_WEIGHTS, *_READ) for file in path.glob(pattern))


def _file_digest(path: Path, cache: Path | None) -> str:
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        key = f"{facts.st_dev}:{facts.st_ino}:{facts.st_size}:{facts.st_mtime_ns}"
        known = _known(cache) if cache is not None else {}
        if key in known:
            return str(known[key])
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if cache is not None:
        remember(cache, {**known, key: found}, what="the digest of the model")
    return found


def _known(cache: Path) -> dict[str, object]:
    return {k: v for k, v in recall(cache).items() if isinstance(v, str) and len(v) == 64}
