"""`onegate unpause`: open a class again."""

from typing import Annotated

from cyclopts import Parameter

from onegate.cli.closed import warn
from onegate.cli.options import Json, Socket
from onegate.cli.terminal import say, say_json
from onegate.client.sync import Client


def unpause(
    class_: Annotated[str, Parameter(name="CLASS", help="Class to open.")],
    /,
    *,
    json: Json = False,
    socket: Socket = None,
) -> None:
    """Administrators: open a class that was paused, or is outside its run_window.

    In the latter case it stays open until its run_window would have opened it, and follows that
    again from there on.

    **Examples**

    ```
    onegate unpause batch
    ```
    """
    with Client(socket, app="onegate unpause") as gate:
        applied = gate.unpause(class_, on_notice=warn)
    if json:
        say_json({"class": class_, "paused": False, "applied": applied})
    else:
        say(f"{class_} is open" if applied else f"{class_} was not paused")
