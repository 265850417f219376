"""README.md does what it says: every command and every snippet in it is run.

A `text` block that follows an `sh` block is what those commands print, digits aside. The commands
of all `sh` blocks run in one shell, one block after the other, as a reader would type them.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onegate.cli.main import VERBS
from onegate.config import check

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BIN = Path(sys.executable).parent

# One shell types all of it, and its daemon runs the embedded model.
pytestmark = pytest.mark.alone("model")

# What is not run here, because it is run elsewhere: install.sh by the build itself, `pip install .`
# by install.sh, and what needs an installed service on a booted machine by tests/systemd.
INSTALLING = ("./install.sh ", "pip install .", "sudo ", "systemctl ")


class Block(NamedTuple):
    language: str
    text: str
    follows: int  # index of the block that this one directly follows, or -1


def blocks() -> list[Block]:
    found: list[Block] = []
    end = -1
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", README, re.DOTALL | re.MULTILINE):
        near = end >= 0 and not README[end : match.start()].strip()
        found.append(Block(match[1], match[2], len(found) - 1 if near else -1))
        end = match.end()
    return found


BLOCKS = blocks()
SHELL = [b for b in BLOCKS if b.language == "sh" and not b.text.startswith(INSTALLING)]
PYTHON = [b for b in BLOCKS if b.language == "python"]
TOML = [b for b in BLOCKS if b.language == "toml"]


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    assert {block.language for block in BLOCKS} == {"sh", "python", "toml", "text"}
    assert README.count("```") == 2 * len(BLOCKS)


def test_the_installing_commands_are_those_of_install_sh() -> None:
    (block,) = [b for b in BLOCKS if b.text.startswith("./install.sh")]
    usage = subprocess.run(
        [ROOT / "install.sh", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in block.text.splitlines():
        assert command in usage


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\((?!http)([^)#]+)\)", README))))
def test_what_it_links_to_is_there(link: str) -> None:
    assert (ROOT / link).exists()


def test_every_verb_that_it_names_exists() -> None:
    assert set(re.findall(r"onegate (?!import)([a-z][a-z-]*)", README)) <= set(VERBS)


@pytest.mark.parametrize("block", TOML)
def test_the_configuration_is_a_good_one(block: Block) -> None:
    check(block.text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the configuration that the page shows, and one for the daemon."""
    folder = tmp_path_factory.mktemp("readme")
    (folder / "onegate.toml").write_text(TOML[0].text, encoding="utf-8")
    grant = f'[[grant]]\nuid = {os.getuid()}\nceiling = "interactive"\nadmin = true\n'
    (folder / "used.toml").write_text(grant, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def typed(place: Path, timeout_factor: float) -> Iterator[list[str]]:
    """What each of the shell's blocks printed. The daemon that they start serves the rest."""
    marker = "---- next block ----"
    # However the shell ends, what it started in the background ends with it.
    start = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    script = start + f"\necho '{marker}'\n".join(b.text for b in SHELL)
    process = subprocess.Popen(
        ["bash", "-c", f"{script}\necho '{marker}'\nread -r _\nkill -TERM $!\nwait $!"],
        cwd=place,
        env=environment(place),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        printed = [""]
        while len(printed) <= len(SHELL):
            line = process.stdout.readline()
            assert line, f"the shell ended after:\n{''.join(printed)}"
            if line.strip() == marker:
                printed.append("")
            else:
                printed[-1] += line
        yield printed
        process.stdin.write("\n")
        process.stdin.close()
        assert process.wait(60 * timeout_factor) == 0, "the daemon did not end in good order"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()


def environment(place: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ONEGATE_")}
    return kept | {
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "ONEGATE_SOCKET": str(place / "onegate.sock"),
        "ONEGATE_CONFIG": str(place / "used.toml"),
        "COLUMNS": "200",
    }


def masked(text: str) -> list[str]:
    return [re.sub(r"\d+", "N", line) for line in text.splitlines()]


@pytest.mark.live
def test_the_commands_run(typed: list[str]) -> None:
    assert len(typed) == len(SHELL) + 1


@pytest.mark.live
@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "text" and b.follows >= 0])
def test_the_output_is_what_is_shown(typed: list[str], block: Block) -> None:
    printed = masked(typed[SHELL.index(BLOCKS[block.follows])])
    for line in masked(block.text):
        assert line in printed


@pytest.mark.live
@pytest.mark.parametrize("block", PYTHON, ids=[f"snippet {i}" for i in range(len(PYTHON))])
def test_the_snippets_run(typed: Any, place: Path, block: Block, timeout_factor: float) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block.text],
        env=environment(place),
        capture_output=True,
        text=True,
        check=False,
        timeout=120 * timeout_factor,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
