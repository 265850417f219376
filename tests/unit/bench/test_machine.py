"""The kernel's counters, from files that a test wrote."""

import os
import socket
from pathlib import Path

import pytest

from onegate.bench import machine
from onegate.bench.machine import Sample, peer_pid, read_pressure, read_stat, tree, use

HZ = os.sysconf("SC_CLK_TCK")


def row(core: str, steal: int = 0) -> str:
    # user nice system idle iowait irq softirq steal guest guest_nice
    return f"cpu{core} {HZ} {HZ} {HZ} 999 999 {HZ} {HZ} {steal * HZ} 0 0\n"


def test_stolen_time_is_not_work() -> None:
    assert read_stat(row(" ", 2) + row("0", 2), [0]) == (5.0, 2.0)


def test_cores_that_we_may_not_use_are_not_judged() -> None:
    text = f"cpu  {99 * HZ} 0 0 0 0 0 0 {9 * HZ}\n{row('0', 1)}{row('1', 2)}{row('2', 4)}intr 1 2\n"
    assert read_stat(text, [0, 2]) == (10.0, 5.0)
    # A container's file counts its cores from 0, whatever they are outside.
    assert read_stat(text, [2, 3]) == (99.0, 9.0)


def test_pressure_is_the_total_of_its_line() -> None:
    text = "some avg10=1.00 avg60=2.00 avg300=3.00 total=123\nfull avg10=0.00 total=45\n"
    assert read_pressure(text, "some") == 123
    assert read_pressure(text, "full") == 45
    assert read_pressure("", "full") is None


def test_a_tree_is_everything_below() -> None:
    assert tree(2, {2: 1, 3: 2, 4: 3, 5: 1}) == {2, 3, 4}


def stat(pid: int, parent: int, ticks: int) -> str:
    return f"{pid} (a) b) S {parent} 0 0 0 0 0 0 0 0 0 {ticks} 0 0 0 20 0"


def test_a_sample_of_a_machine(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text(f"cpu  {HZ} 0 0 0 0 0 0 0 0 0\n")
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "memory").write_text("some total=1\nfull total=7\n")
    for pid, parent in ((10, 1), (11, 10), (12, 1)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat(pid, parent, pid * HZ))
    found = machine.sample({"A": 10}, tmp_path)
    assert found.busy_s == 1.0
    assert found.pressure_us == {"memory_full": 7}
    assert found.trees_s == {"A": 21.0, "A itself": 10.0}
    assert machine.parents(tmp_path) == {10: 1, 11: 10, 12: 1}


def test_use_is_what_came_between_two_samples() -> None:
    before = Sample(0, 0.0, 0.0, {"memory_full": 0}, {"A": 1.0, "bench": 0.0})
    after = Sample(2_000_000_000, 3.0, 0.4, {"memory_full": 500_000}, {"A": 2.0, "bench": 0.5})
    found = use(before, after, 2, ["A", "bench"])
    assert found.busy_share == 0.75
    assert found.steal_share == 0.1
    assert found.foreign_share == pytest.approx(1.5 / 4)
    assert found.pressure == {"memory_full": 0.25}
    assert found.cores == {"A": 0.5, "bench": 0.25}
    assert use(before, after, 2, None).foreign_share is None


def test_this_machine_is_described() -> None:
    found = machine.facts()
    assert found.cores >= 1
    assert found.memory_gib > 0
    assert found.kernel
    assert machine.sample({"me": os.getpid()}).trees_s["me"] > 0


def test_who_listens_at_a_socket(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert peer_pid(path) == os.getpid()
    assert peer_pid(str(tmp_path / "none")) is None
