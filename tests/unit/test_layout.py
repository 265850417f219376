"""The shape of the tree: what lies at the top, how large a module is, which test belongs to it."""

import statistics
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each package, and where its unit tests are.
PACKAGES = {
    ROOT / "daemon" / "onegate": ROOT / "tests" / "unit",
    ROOT / "contrib" / "ollama-proxy" / "onegate_ollama_proxy": (
        ROOT / "tests" / "contrib" / "ollama_proxy" / "unit"
    ),
}
MODULES = sorted(module for package in PACKAGES for module in package.rglob("*.py"))

# What belongs to the project at the top of the tree. Files that git ignores may lie there too.
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
    "contrib",
    "daemon",
    "install.sh",
    "pyproject.toml",
    "systemd",
    "tests",
}
IGNORED = {".git", ".venv", ".hypothesis", ".import_linter_cache", "node_modules"} | {
    f".{tool}_cache" for tool in ("mypy", "pytest", "ruff")
}

# Tested from outside only, because running them is what they are for.
WITHOUT_UNIT_TEST = {
    "engines/host/__main__.py",
}

MAX_LINES = 500
MAX_MEDIAN_LINES = 150
MAX_P90_LINES = 350


def lines(module: Path) -> int:
    return len(module.read_text(encoding="utf-8").splitlines())


def package_of(module: Path) -> Path:
    return next(package for package in PACKAGES if module.is_relative_to(package))


def relative(module: Path) -> str:
    return module.relative_to(package_of(module)).as_posix()


def unit_test_of(module: Path) -> Path:
    place = module.relative_to(package_of(module)).parent
    return PACKAGES[package_of(module)] / place / f"test_{module.name}"


def test_nothing_else_lies_at_the_top() -> None:
    assert {entry.name for entry in ROOT.iterdir()} - TOP_LEVEL - IGNORED == set()


@pytest.mark.parametrize("name", ["LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md"])
def test_what_a_reader_expects_is_there(name: str) -> None:
    assert (ROOT / name).stat().st_size > 0


def test_the_license_is_the_one_that_is_declared() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_source_root_is_not_a_package() -> None:
    assert not (ROOT / "daemon" / "__init__.py").exists()
    strays = {entry.name for entry in (ROOT / "daemon").iterdir()} - {"__pycache__"}
    assert {name for name in strays if not name.endswith(".egg-info")} == {"onegate"}


def test_every_package_says_that_it_is_one() -> None:
    folders = {module.parent for module in MODULES}
    assert {f for f in folders if not (f / "__init__.py").exists()} == set()


def test_types_are_shipped() -> None:
    assert all((package / "py.typed").exists() for package in PACKAGES)


@pytest.mark.parametrize(
    "module",
    [m for m in MODULES if m.name != "__init__.py" and relative(m) not in WITHOUT_UNIT_TEST],
    ids=relative,
)
def test_every_module_has_its_unit_test(module: Path) -> None:
    assert unit_test_of(module).is_file(), f"{unit_test_of(module).relative_to(ROOT)} is missing"


def test_the_exceptions_exist() -> None:
    assert WITHOUT_UNIT_TEST - {relative(module) for module in MODULES} == set()


def test_modules_are_small() -> None:
    too_long = {relative(m): lines(m) for m in MODULES if lines(m) > MAX_LINES}
    assert too_long == {}, f"split by noun, at most {MAX_LINES} lines"


def test_most_modules_are_smaller_still() -> None:
    sizes = [lines(m) for m in MODULES if m.name != "__init__.py"]
    assert statistics.median(sizes) <= MAX_MEDIAN_LINES
    assert statistics.quantiles(sizes, n=10)[-1] <= MAX_P90_LINES
