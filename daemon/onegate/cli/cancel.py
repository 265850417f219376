"""`onegate cancel`: end a request by its id."""

from typing import Annotated

from cyclopts import Parameter

from onegate.cli.options import Json, Socket
from onegate.cli.terminal import say, say_json
from onegate.client.sync import Client


def cancel(
    rid: Annotated[
        str, Parameter(name="ID", help="The request's id, as `onegate status` and the log show it.")
    ],
    /,
    *,
    json: Json = False,
    socket: Socket = None,
) -> None:
    """Administrators: end a request, whoever made it, in whatever state it is.

    **Examples**

    ```
    onegate cancel 7f3a-12
    ```
    """
    with Client(socket, app="onegate cancel") as gate:
        applied = gate.cancel_any(rid)
    if json:
        say_json({"rid": rid, "applied": applied})
    else:
        say(f"{rid} is cancelled" if applied else f"{rid} was over already, or never was")
