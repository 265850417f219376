"""What importing costs, and that the contracts of pyproject.toml leave no package out."""

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "daemon" / "onegate"
PROXY = ROOT / "contrib" / "ollama-proxy" / "onegate_ollama_proxy"
MODULES = sorted((*PACKAGE.rglob("*.py"), *PROXY.rglob("*.py")))

# What each part may import from outside the standard library and the project. The base
# installation has msgspec alone; the rest comes with the extra of the same line.
OUTSIDE = {
    "admission": set(),
    "bench/targets/http.py": {"msgspec", "aiohttp"},  # bench
    "engines/http/link.py": {"msgspec", "aiohttp"},  # http
    "cli": {"msgspec", "cyclopts", "rich"},  # cli
    "server": {"msgspec", "uvloop", "sdnotify", "prometheus_client"},  # daemon
    "engines/host/openvino.py": {"msgspec", "openvino_genai", "openvino"},  # openvino
}
OUTSIDE_ELSEWHERE = {"msgspec"}
# The server, the loop it runs on, and what the server's requests are made of. # ollama-proxy
OUTSIDE_PROXY = {"msgspec", "aiohttp", "uvloop", "multidict", "yarl"}
OURS = {"onegate", "onegate_ollama_proxy"}
# What may be loaded where the base installation is enough. msgspec takes typing_extensions along
# where another package has brought it, and does without elsewhere.
LIGHT = {"msgspec", "typing_extensions"}


def relative(module: Path) -> str:
    return module.relative_to(PROXY.parent if is_proxys(module) else PACKAGE).as_posix()


def is_proxys(module: Path) -> bool:
    return module.is_relative_to(PROXY)


def loaded_by(statement: str) -> set[str]:
    """Names in sys.modules of a fresh interpreter after `statement`, beyond those at its start."""
    program = (
        "import sys; before = set(sys.modules)\n"
        f"{statement}\n"
        "import json; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def outside_roots(names: set[str]) -> set[str]:
    """Top-level names among `names` that are neither the standard library's nor ours."""
    roots = {name.partition(".")[0] for name in names}
    return roots - sys.stdlib_module_names - OURS


@pytest.mark.parametrize("statement", ["import onegate", "from onegate import Client, Rejected"])
def test_the_client_is_light(statement: str) -> None:
    loaded = loaded_by(statement)
    assert loaded & {"asyncio", "uvloop", "numpy"} == set()
    assert outside_roots(loaded) <= LIGHT


def test_the_async_client_comes_when_it_is_asked_for() -> None:
    loaded = loaded_by("from onegate import AsyncClient")
    assert "asyncio" in loaded
    assert outside_roots(loaded) <= LIGHT


def test_the_engine_host_loads_in_an_environment_that_has_msgspec_alone() -> None:
    loaded = loaded_by("import onegate.engines.host.__main__")
    assert outside_roots(loaded) <= LIGHT
    assert "asyncio" not in loaded


def test_every_package_has_an_import_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    protected = {name for c in contracts for name in c.get("protected_modules", ())}
    parts = {path.stem for path in PACKAGE.iterdir() if path.is_dir() or path.suffix == ".py"}
    parts -= {"__init__", "__pycache__"}
    assert {f"onegate.{part}" for part in parts} - protected == set()


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_third_party_imports_are_those_of_the_part(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    names = {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    names |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module}
    part = relative(module).partition("/")[0]
    elsewhere = OUTSIDE_PROXY if is_proxys(module) else OUTSIDE_ELSEWHERE
    allowed = OUTSIDE.get(relative(module), OUTSIDE.get(part, elsewhere))
    assert outside_roots(names) - allowed == set()


@pytest.mark.parametrize("module", MODULES, ids=relative)
def test_tasks_are_started_in_one_place(module: Path) -> None:
    # The linter bans asyncio.create_task; a loop's or a group's own method it does not see.
    tree = ast.parse(module.read_text(encoding="utf-8"))
    attributes = [n for n in ast.walk(tree) if isinstance(n, ast.Attribute)]
    found = [n.lineno for n in attributes if n.attr == "create_task"]
    assert not found or relative(module) == "tasks.py", f"use Tasks.spawn: lines {found}"
