"""Who may change which models there are."""

import grp
import os
import pwd
from types import SimpleNamespace

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.members import Members
from onegate_ollama_proxy.refused import Refused


@pytest.fixture(autouse=True)
def directory(monkeypatch):
    """User 7 is in group 70, user 8 is not, of user 9 the system knows nothing."""

    def user(uid):
        if uid not in (7, 8):
            raise KeyError(uid)
        return SimpleNamespace(pw_name=f"u{uid}", pw_gid=1)

    def group(name):
        if name != "models":
            raise KeyError(name)
        return SimpleNamespace(gr_gid=70)

    monkeypatch.setattr(pwd, "getpwuid", user)
    monkeypatch.setattr(grp, "getgrnam", group)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [1, 70] if name == "u7" else [1])


@pytest.mark.parametrize("uid", [0, 7])
async def test_root_and_members_may(uid):
    await Members("models").check(uid)


@pytest.mark.parametrize("uid", [8, 9, None])
async def test_nobody_else_may(uid):
    with pytest.raises(Refused) as error:
        await Members("models").check(uid)
    assert error.value.no.status == 403
    assert error.value.no.reason is Reason.PERMISSION
    assert "the group models" in error.value.no.sentence


async def test_nobody_is_in_a_group_that_is_not_there():
    with pytest.raises(Refused):
        await Members("nowhere").check(7)


async def test_everybody_may_where_that_is_said():
    await Members("models", everybody=True).check(None)
