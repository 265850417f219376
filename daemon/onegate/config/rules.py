"""`[[grant]]` and `[[hint]]`: how a peer gets its class. The file's own come before the shipped."""

from typing import Annotated

from msgspec import Struct

from onegate.config.units import AppGlob, Glob, Id, Line, Name, why


class Grant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Facts that a process cannot choose. All conditions of one grant must hold.

    Each of `ceiling`, `delegate` and `admin` is taken from the first matching grant that states
    it, so a grant may make somebody an administrator and leave the ceiling to those below it.
    """

    uid: Annotated[Id | None, why("the peer's user id")] = None
    gid: Annotated[Id | None, why("its primary group id")] = None
    group: Annotated[Line | None, why("a group it is in, by name, primary or not")] = None
    unit: Annotated[Glob | None, why("its system unit: cron.service, *-batch@*.service")] = None
    slice: Annotated[Glob | None, why("the system slice it is in: user-*.slice")] = None
    ceiling: Annotated[Name | None, why("the best class it can have")] = None
    delegate: Annotated[bool | None, why("may speak for others, under its own ceiling")] = None
    admin: Annotated[bool | None, why("may pause classes and cancel anything; reads no text")] = (
        None
    )

    def conditions(self) -> dict[str, int | str]:
        """The conditions that are stated, by key."""
        stated = {
            "uid": self.uid,
            "gid": self.gid,
            "group": self.group,
            "unit": self.unit,
            "slice": self.slice,
        }
        return {key: value for key, value in stated.items() if value is not None}


class Hint(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"class_": "class"}
):
    """What a process can choose, so it only chooses at or below the ceiling. First match wins."""

    tty: Annotated[bool | None, why("it has a controlling terminal, or has none")] = None
    unit: Annotated[Glob | None, why("its unit of the user manager: app-*.scope")] = None
    app: Annotated[AppGlob | None, why("what it calls itself when it connects")] = None
    class_: Annotated[Name | None, why("the class it then starts in")] = None

    def conditions(self) -> dict[str, bool | str]:
        """The conditions that are stated, by key."""
        stated = {"tty": self.tty, "unit": self.unit, "app": self.app}
        return {key: value for key, value in stated.items() if value is not None}


_BATCH_UNITS = (
    "cron.service",
    "crond.service",
    "cronie.service",
    "anacron.service",
    "atd.service",
    "*-batch@*.service",
)
# A root process in a container is not the machine's administrator, so these come before that rule.
_CONTAINER_UNITS = (
    "docker.service",
    "docker-*.scope",
    "containerd.service",
    "cri-containerd-*.scope",
    "crio-*.scope",
    "libpod-*.scope",
)


_OLLAMA_PROXY = Grant(unit="onegate-ollama-proxy.service", ceiling="interactive", delegate=True)


def shipped_grants(own_uid: int | None) -> tuple[Grant, ...]:
    """The grants below the file's own.

    `own_uid`: the plain user whose private daemon this is, who could end the process anyway;
    None for a system service, whose own uid is nobody's.
    """
    # Our own, which says of each client who that is; a unit of the system's is nobody's to choose.
    proxy = () if own_uid is not None else (_OLLAMA_PROXY,)
    own = () if own_uid is None else (Grant(uid=own_uid, ceiling="interactive", admin=True),)
    return (
        *(Grant(unit=unit, ceiling="batch") for unit in _BATCH_UNITS),
        Grant(slice="onegate-batch.slice", ceiling="batch"),
        *proxy,
        *(Grant(unit=unit, ceiling="loop", admin=False) for unit in _CONTAINER_UNITS),
        Grant(uid=0, admin=True),
        Grant(group="onegate-admin", admin=True),
        Grant(slice="user-*.slice", ceiling="interactive"),
        *own,
    )


SHIPPED_HINTS: tuple[Hint, ...] = (
    Hint(tty=True, class_="interactive"),
    # Started by the session, not by the person in front of it.
    Hint(unit="app-*@autostart.service", class_="loop"),
    Hint(unit="app-*.scope", class_="interactive"),
    Hint(unit="app-*.service", class_="interactive"),
    Hint(unit="snap.*.scope", class_="interactive"),
)
