"""Where systemd put a process: the path of its cgroup into slice, unit and user unit.

Only the way down from the root is trusted: a run of slices, then the unit that the system manager
made. Everything below a unit belongs to that unit, a user's manager or a container, which may
call its own folders `cron.service` or `user-0.slice`; and what does not start with a slice or a
unit was not put there by systemd.
"""

import re

from msgspec import Struct

# The characters of systemd.unit(5); a name is at most 255 bytes there and in the kernel.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,247}\.(?:service|scope)\Z")
_SLICE = re.compile(r"[A-Za-z0-9:_.\\@-]{1,249}\.slice\Z")
_USER_SLICE = re.compile(r"user-([0-9]{1,10})\.slice\Z")
_USER_MANAGER = re.compile(r"user@[0-9]{1,10}\.service\Z")
_CONTAINER_ID = re.compile(r"[0-9a-f]{12,64}\Z")

_UNMAPPED_UID = 0xFFFF_FFFF


class Place(Struct, frozen=True, kw_only=True):
    """A process's place. `slice` is the one closest to the unit."""

    path: str
    slice: str | None = None
    unit: str | None = None
    user_unit: str | None = None
    owner_uid: int | None = None


def parse_cgroup(data: bytes) -> Place:
    """The place that the lines of /proc/PID/cgroup tell; an empty one where they tell none."""
    return place_of(_systemd_path(data))


def place_of(path: str) -> Place:
    """The place that a path below the root of systemd's hierarchy tells."""
    parts = [_unescape(part) for part in path.split("/") if part]
    # A daemon in a cgroup namespace of its own sees everybody else through leading "..".
    while parts and parts[0] == "..":
        del parts[0]
    slices, rest = _leading_slices(parts)
    unit = rest[0] if rest and _UNIT.match(rest[0]) else _container(rest)
    user_unit = None
    if unit is not None and _USER_MANAGER.match(unit):
        below = _leading_slices(rest[1:])[1]
        user_unit = below[0] if below and _UNIT.match(below[0]) else None
    return Place(
        path=path,
        slice=slices[-1] if slices else None,
        unit=unit,
        user_unit=user_unit,
        owner_uid=owner_of(slices),
    )


def _systemd_path(data: bytes) -> str:
    """The path in the hierarchy that systemd tracks processes by, cgroups(7)."""
    unified = named = ""
    for line in data.decode("utf-8", "replace").split("\n"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and controllers == "":
            unified = path
        elif controllers == "name=systemd":
            named = path
    # Where only version 1 is mounted, the unified line is there all the same and says "/".
    return named if unified in ("", "/") and named else unified


def _unescape(part: str) -> str:
    """systemd puts one "_" before a name that a kernel file could have."""
    return part[1:] if part.startswith("_") else part


def _leading_slices(parts: list[str]) -> tuple[list[str], list[str]]:
    count = 0
    while count < len(parts) and _SLICE.match(parts[count]):
        count += 1
    return parts[:count], parts[count:]


def _container(rest: list[str]) -> str | None:
    """Docker and Kubernetes, set to make cgroups themselves, leave systemd's scopes out. Such a
    container gets the name that its scope would have, so that one rule covers both ways."""
    prefix = {"docker": "docker", "kubepods": "cri-containerd"}.get(rest[0]) if rest else None
    if prefix is None:
        return None
    ids = [part for part in rest[1:] if _CONTAINER_ID.match(part)]
    return f"{prefix}-{ids[0]}.scope" if ids else f"{prefix}-unknown.scope"


def owner_of(slices: list[str]) -> int | None:
    """The user whose slice is among these, from the root down."""
    for name in slices:
        if (match := _USER_SLICE.match(name)) and int(match[1]) < _UNMAPPED_UID:
            return int(match[1])
    return None
