"""Who may change which models there are."""

import asyncio
import grp
import os
import pwd

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.refused import Refused, no

_ROOT = 0


class Members:
    """Everybody if `everybody`; else uid 0, and the users in `group` by the system's own lists.

    Which groups a process has taken on does not show in its socket, so it is the user's membership
    that counts.
    """

    def __init__(self, group: str | None, *, everybody: bool = False) -> None:
        self._group = group
        self._everybody = everybody

    async def check(self, uid: int | None) -> None:
        """Raises Refused. `uid` None: not known, as for a client in a container."""
        if self._everybody or uid == _ROOT:
            return
        # Asked of the system's directory, which may lie on another machine.
        if uid is not None and self._group and await asyncio.to_thread(_is_in, uid, self._group):
            return
        who = "it is not known who you are" if uid is None else f"user {uid} is not one of them"
        whose = f"root and members of the group {self._group}" if self._group else "root"
        raise Refused(
            no(Reason.PERMISSION, f"models are fetched and changed by {whose} here, and {who}")
        )


def _is_in(uid: int, group: str) -> bool:
    try:
        user, wanted = pwd.getpwuid(uid), grp.getgrnam(group)
    except KeyError:
        return False
    return wanted.gr_gid in os.getgrouplist(user.pw_name, user.pw_gid)
