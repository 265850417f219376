"""The probes of `probes/`, which run on a booted machine of their own: systemd is PID 1 there.

One boot runs them all, in the order of their files. Here each is one test that reports how its
probe ended there. Needs root, overlayfs and systemd-nspawn.
"""

import ast
import faulthandler
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.systemd.needs import lacks
from tests.systemd.wheels import make_wheels

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Hung is what takes this long, four times what an idle machine takes; install.sh has the budget
# that a run is held to.
LIMIT_S = 1300
LAST_CHARS = 4000

LACKS = lacks(HERE / "needs.sh")

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(LACKS != [], reason="; ".join(LACKS)),
]


def probes() -> list[str]:
    """`probe_file::test_name` in the order of files and of lines; their modules are not loaded."""
    return [
        f"{path.stem}::{node.name}"
        for path in sorted((HERE / "probes").glob("probe_*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


@dataclass(frozen=True)
class Ended:
    """How one probe ended: `passed`, `skipped` or `failed`, and what it said."""

    how: str
    words: str


@dataclass(frozen=True)
class Boot:
    """What came out of the machine: each probe's end by its name, and the logs' last lines; and
    what the host had that was not there before."""

    ended: dict[str, Ended]
    logs: str
    left_on_the_host: set[str]


def traces() -> set[str]:
    """Where on the host an installation or a boot could leave something."""
    places = (
        *("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/run", "/run/systemd/nspawn/*", "/opt"),
        *("/etc", "/etc/systemd/system", "/usr/local/bin", "/usr/local/lib", "/var/lib"),
    )
    found = {str(path) for place in places for path in Path("/").glob(f"{place[1:]}/*")}
    found |= {str(path) for path in Path("/tmp").glob("onegate-boot-*")}
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    return found | {line for line in mounts if "onegate" in line}


def read_ended(path: Path) -> dict[str, Ended]:
    """Each probe's end, as far as the machine came: a line for each, of which the last may be cut
    short where the machine was ended from without."""
    if not path.exists():
        return {}
    ended: dict[str, Ended] = {}
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        said = json.loads(line)
        # A probe that passed can still fail while it is cleared up behind it; the worst word holds.
        if said["name"] not in ended or said["how"] == "failed":
            ended[said["name"]] = Ended(said["how"], said["words"])
    return ended


@pytest.fixture(scope="module")
def boot(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, timeout_factor: float
) -> Boot:
    # Of the many tests that this one is, none has begun; the boot has a limit of its own.
    faulthandler.cancel_dump_traceback_later()
    out = tmp_path_factory.mktemp("boot")
    before = traces()
    arguments = [HERE / "boot.sh", ROOT, make_wheels(), out, sys.executable]
    limit = ["timeout", "--kill-after=30", str(LIMIT_S * timeout_factor)]
    apart = ["unshare", "--mount", "--propagation=private", "--"]
    done = subprocess.run(
        [*limit, *apart, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if keep := os.environ.get("ONEGATE_BOOT_LOGS"):
        shutil.copytree(out, keep, dirs_exist_ok=True)
    logs = {
        path.name: path.read_text(encoding="utf-8", errors="replace")
        for path in sorted(out.iterdir())
        if path.suffix not in (".xml", ".jsonl")
    }
    capture = request.config.pluginmanager.getplugin("capturemanager")
    if capture is not None and "measured.txt" in logs:
        with capture.global_and_fixture_disabled():
            print(f"\n{logs['measured.txt']}", end="")  # noqa: T201  figures are for who looks on
    shown = [f"boot.sh ended with {done.returncode}\n{done.stderr}"]
    shown += [f"--- the end of {name}\n{text[-LAST_CHARS:]}" for name, text in logs.items()]
    return Boot(read_ended(out / "ended.jsonl"), "\n".join(shown), traces() - before)


@pytest.mark.parametrize("probe", probes())
def test_on_a_booted_machine(boot: Boot, probe: str) -> None:
    ended = boot.ended.get(probe)
    if ended is None:
        pytest.fail("it did not run: test_the_machine_came_to_its_end says more", pytrace=False)
    if ended.how == "skipped":
        pytest.skip(ended.words)
    if ended.how == "failed":
        pytest.fail(ended.words, pytrace=False)


def test_the_machine_came_to_its_end(boot: Boot) -> None:
    if missing := [probe for probe in probes() if probe not in boot.ended]:
        pytest.fail(f"{len(missing)} did not run, from {missing[0]} on\n{boot.logs}", pytrace=False)


def test_the_host_is_as_it_was(boot: Boot) -> None:
    assert boot.ended
    assert boot.left_on_the_host == set()
