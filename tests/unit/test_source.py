"""Which code this is."""

from pathlib import Path

import pytest

from onegate import source
from onegate.source import build, digest


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "one"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.py").write_text("a")
    (folder / "deep/b.py").write_text("b")
    (folder / "data.toml").write_text("x")
    return folder


def test_the_same_code_is_the_same_wherever_it_lies(package: Path, tmp_path: Path) -> None:
    before = digest(package)
    assert len(before) == 8
    (package / "data.toml").write_text("y")
    package.rename(tmp_path / "another place")
    assert digest(tmp_path / "another place") == before


@pytest.mark.parametrize("change", ["contents", "one more", "one less", "another name", "a move"])
def test_another_module_is_other_code(package: Path, change: str) -> None:
    before = digest(package)
    match change:
        case "contents":
            (package / "deep/b.py").write_text("c")
        case "one more":
            (package / "empty.py").write_text("")
        case "one less":
            (package / "a.py").unlink()
        case "another name":
            (package / "a.py").rename(package / "c.py")
        case "a move":
            (package / "a.py").rename(package / "deep/a.py")
    assert digest(package) != before


def test_a_build_is_the_code_as_it_was_when_the_process_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build.cache_clear()
    first = build("1.2")
    assert first == f"1.2+{digest()}"
    monkeypatch.setattr(source, "digest", lambda: "other")
    assert build("1.2") == first
    build.cache_clear()


def test_code_that_cannot_be_read_has_a_number_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed() -> str:
        raise PermissionError(13, "Permission denied")

    build.cache_clear()
    monkeypatch.setattr(source, "digest", closed)
    assert build("1.2") == "1.2"
    build.cache_clear()
