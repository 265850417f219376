import inspect

import pytest

from onegate.engines.attachment import Attachment
from onegate.engines.child import Child
from onegate.engines.connection import Connection

PARTS = {name for name in vars(Connection) if not name.startswith("_")}


@pytest.mark.parametrize("kind", [Child, Attachment])
def test_both_kinds_have_every_part_of_it(kind):
    assert {"follow_output", "gone", "is_ours", "kill"} <= PARTS
    for name in PARTS:
        asked, made = getattr(Connection, name), getattr(kind, name)
        if inspect.isfunction(asked):
            parameters = [list(inspect.signature(each).parameters) for each in (asked, made)]
            assert parameters[0] == parameters[1]
            assert inspect.iscoroutinefunction(made) is inspect.iscoroutinefunction(asked)
