"""What a check of `onegate doctor` finds, and what it is given to look at."""

import grp
import os
import pwd
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

# A command that says nothing for this long hangs, and what it would have said is not known.
COMMAND_S = 20.0


class Verdict(StrEnum):
    """What one check comes to, the worst last."""

    OK = "ok"
    SKIP = "skip"  # does not apply here, or cannot be looked at by this user
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: one sentence, and for a bad one the command to type next."""

    name: str
    verdict: Verdict
    sentence: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str


_UCRED = struct.Struct("=iII")


@dataclass(frozen=True, slots=True)
class Listening:
    """The process that has called listen() on a socket; `pid` 0 where the kernel does not say."""

    pid: int
    uid: int


def listener(path: str) -> Listening | None:
    """Who listens there, whether or not it answers; None: nobody. Raises OSError where this user
    cannot find out."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        try:
            sock.connect(path)
        except ConnectionRefusedError:
            return None
        except BlockingIOError:  # more wait already than there is room for
            return Listening(0, 0)
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(found)
    return Listening(pid, uid)


def run(*command: str) -> Ran | None:
    """Run a command; None where there is none of that name, or it hangs."""
    environment = os.environ | {"LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Ran(done.returncode, done.stdout, done.stderr)


def user_name(uid: int) -> str:
    """The user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_of(name: str) -> tuple[int, Sequence[str]] | None:
    """A group's id and its members' names, None where there is no such group."""
    try:
        found = grp.getgrnam(name)
    except KeyError:
        return None
    return found.gr_gid, found.gr_mem


@dataclass(frozen=True)
class Machine:
    """Everything that checks look at, the daemon's answers aside. Tests give another one.

    `root` stands before every absolute path; `gids` are those of this process.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    uid: int = field(default_factory=os.getuid)
    gids: frozenset[int] = field(
        default_factory=lambda: frozenset({os.getgid(), os.getegid(), *os.getgroups()})
    )
    python: str = sys.executable
    run: Callable[..., Ran | None] = run
    user_name: Callable[[int], str] = user_name
    group_of: Callable[[str], tuple[int, Sequence[str]] | None] = group_of
    listener: Callable[[str], Listening | None] = listener

    def at(self, path: str) -> Path:
        """Where that absolute path is."""
        return self.root / path.lstrip("/")

    @property
    def booted(self) -> bool:
        """Does systemd run here? sd_booted(3)."""
        return self.at("/run/systemd/system").is_dir()
