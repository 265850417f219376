"""README.md's section about the system service, typed as it stands, on a machine without one."""

import re
from pathlib import Path

from tests.systemd.machine import CHECKOUT, left_behind, run_as_unit, sh

ANSWER = Path("/srv/results/cron.txt")
README = (CHECKOUT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("\n## As a system service\n")[2].partition("\n## ")[0]
# The machine may not have sudo, and the probes are root.
TYPED = 'set -euo pipefail\nsudo() { "$@"; }\nUSER=ann SYSTEMD_PAGER=cat\n'


def blocks(language: str, section: str = SECTION) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)


def typed(text: str) -> str:
    return sh("sh", "-c", f'cd {CHECKOUT}\nexec bash -c "$0"', TYPED + text, timeout_s=300).stdout


def test_every_command_works() -> None:
    install, use, administrate, _ = blocks("sh")
    assert "is installed" in typed(install)
    said = typed(use)
    assert "Active: active" in said
    assert "ready: " in said
    assert "batch" in typed(administrate)


def test_the_line_of_the_crontab() -> None:
    (line,) = blocks("text")
    command = line.split(maxsplit=5)[5].strip().replace("summary.txt", "/home/ann/summary.txt")
    script = ANSWER.with_name("cron.sh")
    # As cron would: the shell, its path, the user, the unit.
    script.write_text(f"PATH=/usr/bin:/bin\n{command}\necho code $?\n", "utf-8")
    said = run_as_unit("cron.service", {"User": "ann", "ExecStart": f"/bin/sh {script}"}, ANSWER)
    assert said == "code 0\n"
    assert sh("cat", "/home/ann/summary.txt").stdout.strip()


def test_and_it_is_gone_again() -> None:
    *_, uninstall = blocks("sh")
    assert "is removed" in typed(uninstall)
    sh("rm", "-r", "/etc/onegate")
    assert left_behind() == []
