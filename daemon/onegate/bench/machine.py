"""What the kernel says of this machine: who computed, who waited, what was taken away."""

import os
import platform
import socket
import struct
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from onegate.clock import monotonic_ns

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PRESSURES = (("cpu", "some"), ("memory", "full"), ("io", "full"))


class Sample(Struct, frozen=True):
    """Counters at one moment. `pressure_us` has what this kernel has."""

    at_ns: int
    busy_s: float
    steal_s: float
    pressure_us: dict[str, int]
    trees_s: dict[str, float]


class Use(Struct, frozen=True, kw_only=True):
    """Between two samples. Shares are of the cores that this process may use, pressures of the
    time; None: not known.

    `cores` are the cores' worth of time of each named process with all below it, and under
    "NAME itself" without what is below it; `foreign_share` is what everything else on the machine
    computed meanwhile.
    """

    wall_s: float
    busy_share: float
    steal_share: float
    foreign_share: float | None
    pressure: dict[str, float]
    cores: dict[str, float]


class Facts(Struct, frozen=True, kw_only=True):
    """The machine, for whoever reads the figures elsewhere."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str


def facts() -> Facts:
    """This machine."""
    lines = (_PROC / "cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Facts(
        cpu=names[0] if names else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(pages / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
    )


def sample(roots: dict[str, int], proc: Path = _PROC) -> Sample:
    """`roots` are processes by the name their whole tree shall have."""
    text = (proc / "stat").read_text(encoding="utf-8")
    busy_s, steal_s = read_stat(text, os.sched_getaffinity(0))
    return Sample(monotonic_ns(), busy_s, steal_s, _pressure_us(proc), _trees_s(roots, proc))


def read_stat(text: str, cores: Collection[int]) -> tuple[float, float]:
    """Seconds of these cores: at work (stolen time not counted), and stolen. See proc(5).

    Where the file has other numbers, as a container's may, its sum is what there is.
    """
    rows = {words[0]: [int(word) for word in words[1:9]] for words in _cpu_rows(text)}
    mine = [row for core in cores if (row := rows.get(f"cpu{core}")) is not None]
    busy_s = steal_s = 0.0
    for row in mine if len(mine) == len(cores) else [rows["cpu"]]:
        user, nice, system, _idle, _iowait, irq, softirq, steal = row
        busy_s += (user + nice + system + irq + softirq) / _TICKS_PER_S
        steal_s += steal / _TICKS_PER_S
    return busy_s, steal_s


def _cpu_rows(text: str) -> Iterator[list[str]]:
    for line in text.splitlines():
        if line.startswith("cpu"):
            yield line.split()


def _pressure_us(proc: Path) -> dict[str, int]:
    found = {}
    for resource, kind in _PRESSURES:
        try:
            text = (proc / "pressure" / resource).read_text(encoding="utf-8")
        except OSError:
            continue  # a kernel without PSI, or one that does not let us see it
        if (total_us := read_pressure(text, kind)) is not None:
            found[f"{resource}_{kind}"] = total_us
    return found


def read_pressure(text: str, kind: str) -> int | None:
    """Microseconds stalled in all, of the line `kind`."""
    for line in text.splitlines():
        word, *pairs = line.split()
        if word == kind:
            return int(dict(pair.split("=", 1) for pair in pairs)["total"])
    return None


def _stats(proc: Path) -> dict[int, list[str]]:
    """The fields behind the command's name, by process; see proc(5)."""
    found = {}
    for entry in proc.iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it ended meanwhile
            # The name may contain anything, but the last bracket ends it.
            found[int(entry.name)] = stat.rpartition(")")[2].split()
    return found


def parents(proc: Path = _PROC) -> dict[int, int]:
    """Who started whom, of everything that runs now."""
    return {pid: int(fields[1]) for pid, fields in _stats(proc).items()}


def _trees_s(roots: dict[str, int], proc: Path) -> dict[str, float]:
    stats = _stats(proc)
    above = {pid: int(fields[1]) for pid, fields in stats.items()}
    # utime, stime, and those of children that ended and were waited for.
    cpu_s = {pid: sum(map(int, fields[11:15])) / _TICKS_PER_S for pid, fields in stats.items()}
    found = {}
    for name, root in roots.items():
        found[name] = sum(cpu_s.get(pid, 0.0) for pid in tree(root, above))
        own = stats.get(root, ["0"] * 15)[11:13]
        found[f"{name} itself"] = sum(map(int, own)) / _TICKS_PER_S
    return found


def tree(root: int, above: dict[int, int]) -> set[int]:
    """`root` and everything below it."""
    found: set[int] = set()
    grown = {root}
    while grown:
        found |= grown
        grown = {child for child, parent in above.items() if parent in grown} - found
    return found


def use(before: Sample, after: Sample, cores: int, known: Iterable[str] | None) -> Use:
    """`known` are the trees that are the measurement itself; None: the target's is not known."""
    wall_s = max(1e-9, (after.at_ns - before.at_ns) / 1e9)
    busy_s = after.busy_s - before.busy_s
    spent_s = {n: after.trees_s[n] - before.trees_s.get(n, 0.0) for n in after.trees_s}
    foreign = None
    if known is not None:
        foreign = max(0.0, busy_s - sum(spent_s[n] for n in known)) / (wall_s * cores)
    return Use(
        wall_s=wall_s,
        busy_share=busy_s / (wall_s * cores),
        steal_share=(after.steal_s - before.steal_s) / (wall_s * cores),
        foreign_share=foreign,
        pressure={
            name: (total_us - before.pressure_us[name]) / 1e6 / wall_s
            for name, total_us in after.pressure_us.items()
            if name in before.pressure_us
        },
        cores={name: s / wall_s for name, s in spent_s.items()},
    )


def peer_pid(path: str) -> int | None:
    """The process that listens at a Unix socket, None where that is not told.

    Behind socket activation it is the service manager that began to listen.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        try:
            sock.connect(path)
            found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    pid, _, _ = struct.unpack("3i", found)
    return int(pid) if pid > 1 else None
