"""The table of cases names tests that exist."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TABLE = HERE.joinpath("README.md").read_text(encoding="utf-8")
NAMED = sorted({name for name in re.findall(r"`(test_\w+)`", TABLE)})


def known() -> set[str]:
    folders = (HERE, HERE.parent / "live", HERE.parent / "unit" / "engines")
    sources = (path.read_text(encoding="utf-8") for f in folders for path in f.rglob("test_*.py"))
    return {name for source in sources for name in re.findall(r"def (test_\w+)", source)}


@pytest.mark.parametrize("name", NAMED)
def test_every_case_is_a_test(name: str) -> None:
    assert name in known()


def test_every_row_says_where_its_case_is() -> None:
    rows = [line for line in TABLE.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) > 15
    assert all(line.count("|") == 7 for line in rows)
