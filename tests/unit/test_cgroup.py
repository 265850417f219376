"""Where systemd put a process, as real lines of /proc/PID/cgroup tell it."""

import pytest

from onegate.cgroup import parse_cgroup

ID = "3f4e5d" * 10 + "abcd"

# (line or lines, slice, unit, user unit, owner)
PLACES = {
    "cron": ("0::/system.slice/cron.service", "system.slice", "cron.service", None, None),
    "timer": (
        "0::/system.slice/system-onegate\\x2dbatch.slice/onegate-batch@nightly.service",
        "system-onegate\\x2dbatch.slice",
        "onegate-batch@nightly.service",
        None,
        None,
    ),
    "ssh": (
        "0::/user.slice/user-1000.slice/session-5.scope",
        "user-1000.slice",
        "session-5.scope",
        None,
        1000,
    ),
    "desktop app": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-gnome-firefox-4711.scope",
        "user-1000.slice",
        "user@1000.service",
        "app-gnome-firefox-4711.scope",
        1000,
    ),
    "terminal tab": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/"
        "app-org.gnome.Terminal.slice/vte-spawn-8f0c.scope",
        "user-1000.slice",
        "user@1000.service",
        "vte-spawn-8f0c.scope",
        1000,
    ),
    "user manager itself": (
        "0::/user.slice/user-1000.slice/user@1000.service/init.scope",
        "user-1000.slice",
        "user@1000.service",
        "init.scope",
        1000,
    ),
    "below a user unit": (
        "0::/user.slice/user-1000.slice/user@1000.service/app.slice/code.service/worker/x.scope",
        "user-1000.slice",
        "user@1000.service",
        "code.service",
        1000,
    ),
    "docker by systemd": (
        f"0::/system.slice/docker-{ID}.scope",
        "system.slice",
        f"docker-{ID}.scope",
        None,
        None,
    ),
    "docker by itself": (f"0::/docker/{ID}", None, f"docker-{ID}.scope", None, None),
    "docker, a folder inside": (
        f"0::/docker/{ID}/system.slice/cron.service",
        None,
        f"docker-{ID}.scope",
        None,
        None,
    ),
    "docker, something else": ("0::/docker/buildx", None, "docker-unknown.scope", None, None),
    "containerd": (
        "0::/system.slice/containerd.service/ns/x",
        "system.slice",
        "containerd.service",
        None,
        None,
    ),
    "kubernetes by systemd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-{ID}.scope",
        "kubepods-burstable.slice",
        f"cri-containerd-{ID}.scope",
        None,
        None,
    ),
    "kubernetes by itself": (
        f"0::/kubepods/burstable/pod1234/{ID}",
        None,
        f"cri-containerd-{ID}.scope",
        None,
        None,
    ),
    "podman of root": (
        f"0::/machine.slice/libpod-{ID}.scope/container",
        "machine.slice",
        f"libpod-{ID}.scope",
        None,
        None,
    ),
    "podman of a user": (
        f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container",
        "user-1000.slice",
        "user@1000.service",
        f"libpod-{ID}.scope",
        1000,
    ),
    "nspawn": (
        "0::/machine.slice/systemd-nspawn@web.service/payload/system.slice/cron.service",
        "machine.slice",
        "systemd-nspawn@web.service",
        None,
        None,
    ),
    "no systemd": ("0::/", None, None, None, None),
    "slice without a unit": ("0::/user.slice/user-7.slice", "user-7.slice", None, None, 7),
    "hybrid": (
        "12:cpu,cpuacct:/x\n1:name=systemd:/system.slice/cron.service\n0::/system.slice/cron.service",
        "system.slice",
        "cron.service",
        None,
        None,
    ),
    "version 1": (
        "9:memory:/user.slice\n1:name=systemd:/system.slice/cron.service\n0::/",
        "system.slice",
        "cron.service",
        None,
        None,
    ),
    "version 1, old kernel": (
        "9:memory:/user.slice\n1:name=systemd:/system.slice/cron.service",
        "system.slice",
        "cron.service",
        None,
        None,
    ),
    "seen from a cgroup namespace": (
        "0::/../../user.slice/user-1000.slice/session-5.scope",
        "user-1000.slice",
        "session-5.scope",
        None,
        1000,
    ),
    "a sibling seen from a cgroup namespace": (
        "0::/../cron.service",
        None,
        "cron.service",
        None,
        None,
    ),
    "escaped by systemd": (
        "0::/system.slice/_cpu.service",
        "system.slice",
        "cpu.service",
        None,
        None,
    ),
    "a colon in the name": (
        "0::/system.slice/dbus-:1.2-org.x@0.service",
        "system.slice",
        "dbus-:1.2-org.x@0.service",
        None,
        None,
    ),
}


@pytest.mark.parametrize("case", PLACES.values(), ids=PLACES.keys())
def test_places(case: tuple[str, str | None, str | None, str | None, int | None]) -> None:
    lines, slice_, unit, user_unit, owner = case
    place = parse_cgroup(lines.encode() + b"\n")
    assert (place.slice, place.unit, place.user_unit, place.owner_uid) == (
        slice_,
        unit,
        user_unit,
        owner,
    )


# What a process can arrange for itself: folders below its own unit, or outside systemd's tree.
SPOOFS = {
    "a unit below one's manager": "/user.slice/user-7.slice/user@7.service/x/cron.service",
    "a slice below one's unit": "/system.slice/evil.service/user.slice/user-0.slice/s.scope",
    "a tree inside a container": "/lxc.payload.c1/user.slice/user-1000.slice/session-1.scope",
    "a slice that is none": "/user-1000.slice.d/session-1.scope",
    "a very long unit": "/system.slice/" + "x" * 4000 + ".service",
    "an owner beyond uid_t": "/user.slice/user-4294967295.slice/session-1.scope",
    "no number": "/user.slice/user-1000x.slice/session-1.scope",
    "dots in the middle": "/system.slice/../user.slice/user-1000.slice/session-1.scope",
}


@pytest.mark.parametrize("path", SPOOFS.values(), ids=SPOOFS.keys())
def test_nobody_names_his_own_place(path: str) -> None:
    place = parse_cgroup(b"0::" + path.encode())
    assert place.owner_uid in (None, 7)
    assert place.unit in (None, "user@7.service", "evil.service", "session-1.scope")
    assert place.user_unit is None
    assert place.slice in (None, "user-7.slice", "system.slice") or place.owner_uid is None


def test_names_with_other_characters_are_no_units() -> None:
    assert parse_cgroup(b"0::/system.slice/a b.service").unit is None
    assert parse_cgroup(b"0::/system.slice/\xff.service").unit is None
    assert parse_cgroup("0::/system.slice/é.service".encode()).unit is None
    assert parse_cgroup(b"0::/system.slice/x.service (deleted)").unit is None


@pytest.mark.parametrize("data", [b"", b"\n", b"garbage", b"0:", b"0::", b"\x00\xff\n:::::\n"])
def test_garbage_is_no_place(data: bytes) -> None:
    place = parse_cgroup(data)
    assert (place.slice, place.unit, place.user_unit, place.owner_uid) == (None,) * 4
