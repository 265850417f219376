"""The processes that a host's library has started: MPI workers, which hold the GPU.

MPI puts them into sessions and process groups of their own, so neither the end of the host's group
nor, once the host has gone, a look at its children finds them. What they cannot get rid of is the
environment that they were started with: a host's has a mark in it.
"""

import os
import signal
from pathlib import Path
from typing import NamedTuple

# The variable whose value is a host's own.
MARK = "ONEGATE_HOST"


class Process(NamedTuple):
    """A process, told from a later one of the same id by when it started (in clock ticks)."""

    pid: int
    started: int


class _Stat(NamedTuple):
    parent: int
    state: str
    started: int


def descendants(of: int) -> list[Process]:
    """Every live process that `of` or a descendant of it has started."""
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        if (stat := _stat(int(place.name))) is not None and stat.state not in "ZX":
            found[int(place.name)] = stat
    below: list[Process] = []
    parents = {of}
    while parents:
        children = {pid for pid, stat in found.items() if stat.parent in parents}
        below += [Process(pid, found[pid].started) for pid in sorted(children)]
        parents = children
    return below


def marked(mark: str) -> list[Process]:
    """Every live process but this one that was started with `mark` as its MARK, whoever is its
    parent by now. Processes of other users are not seen, and none has an empty mark."""
    if not mark:
        return []
    entry = f"{MARK}={mark}".encode()
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes()
        except OSError:
            continue  # another user's, or gone meanwhile
        pid = int(place.name)
        if entry not in environment.split(b"\0") or pid == os.getpid():
            continue
        if (stat := _stat(pid)) is not None and stat.state not in "ZX":
            found.append(Process(pid, stat.started))
    return found


def started_by(pid: int, mark: str) -> list[Process]:
    """Everything alive that a host has started, as long as it can be told."""
    below = descendants(pid)
    return below + [process for process in marked(mark) if process not in below]


def is_alive(process: Process) -> bool:
    """Whether it still runs; one that nobody has reaped does not."""
    stat = _stat(process.pid)
    return stat is not None and stat.started == process.started and stat.state not in "ZX"


def command(process: Process) -> list[str]:
    """What it was started with; nothing for one that has gone."""
    try:
        text = Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.split("\0") if is_alive(process) else []


def kill(processes: list[Process]) -> None:
    """End those that still run, at once."""
    for process in processes:
        try:
            # Through a descriptor, so that the id cannot have become another one's meanwhile.
            fd = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if is_alive(process):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue  # gone by now, or not ours any more
        finally:
            os.close(fd)


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name may contain anything but the last bracket ends it.
    fields = text.rpartition(")")[2].split()
    return _Stat(parent=int(fields[1]), state=fields[0], started=int(fields[19]))
