"""`onegate wait-ready`: for scripts that start after the daemon."""

import time
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from onegate.cli.closed import released
from onegate.cli.exits import Exit
from onegate.cli.options import SECONDS, Json, Model, Socket
from onegate.cli.terminal import Progress, complain, say, say_json
from onegate.client.errors import Rejected, Unavailable
from onegate.client.sync import Client
from onegate.clock import monotonic_ns
from onegate.protocol.errors import NoticeCode, Reason
from onegate.protocol.status import Status

POLL_S = 0.2


def wait_ready(
    *,
    timeout: Annotated[float, Parameter(help="Seconds to wait at most."), SECONDS] = 60.0,
    model: Model = None,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Wait until requests are taken and a model is loaded, or would be by the first of them.

    Exit code 69 if that takes too long.

    **Examples**

    ```
    onegate wait-ready --timeout 120 && onegate ask "Are you awake?"
    ```
    """
    progress = Progress()
    ends_ns = monotonic_ns() + round(timeout * 1e9)
    try:
        while True:
            ready, why, _ = look(socket, model)
            if ready is not None:
                break
            if monotonic_ns() >= ends_ns:
                progress.clear()
                complain(f"not ready after {timeout:g} s: {why}; `onegate doctor` says what to do")
                return Exit.UNAVAILABLE
            progress.show(f"waiting: {why}")
            time.sleep(POLL_S)
    finally:
        progress.clear()
    if json:
        say_json({"model": ready})
    else:
        say(f"ready: {ready}")
    return Exit.DONE


class Look(NamedTuple):
    """The model that is ready, or None and why not. `down`: the engine itself says that it cannot
    serve, so that it is not just a matter of loading."""

    ready: str | None
    why: str = ""
    down: bool = False


def look(socket: str | None, model: str | None) -> Look:
    """What there is now. Raises what waiting does not mend."""
    try:
        with Client(socket, app="onegate wait-ready", model=model) as gate:
            return judge(gate.status(), model)
    except Unavailable as error:
        return Look(None, str(error))
    except Rejected as error:
        if error.reason is not Reason.SHUTTING_DOWN:
            raise
        return Look(None, str(error))


def judge(status: Status, model: str | None) -> Look:
    """The same, from a status document."""
    pools = [pool for pool in status.pools if model is None or pool.model == model]
    if status.state != "serving":
        return Look(None, f"the daemon is {status.state}")
    for pool in pools:
        if pool.state == "ready":
            return Look(pool.model)
    # Nobody loads what was unloaded but whoever asks for it: to wait for that would be for ever.
    cold = next((pool.model for pool in pools if pool.state == "cold"), None)
    if cold is not None and not any(pool.state == "loading" for pool in pools):
        return Look(cold)
    down = [notice.detail for notice in status.notices if notice.code == NoticeCode.ENGINE_DOWN]
    states = ", ".join(
        f"{pool.model} is {released(pool) if pool.state == 'released' else pool.state}"
        + (f" ({pool.error})" if pool.error else "")
        for pool in pools
    )
    # A model that is tried again is loading, and only the notice still says why it failed.
    said = [states or "the engine has no model yet"]
    if not any(pool.error for pool in pools):
        said += down
    return Look(None, ": ".join(said), bool(down))
