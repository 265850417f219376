"""`onegate release-gpu`: lend the device to something else for a while."""

from datetime import datetime
from typing import Annotated

from cyclopts import Parameter

from onegate.cli.closed import warn
from onegate.cli.exits import Exit, UsageError
from onegate.cli.options import Json, Socket
from onegate.cli.pause import moment
from onegate.cli.terminal import complain, say, say_json
from onegate.cli.waiting import saying
from onegate.client.sync import Client
from onegate.clock import wall_ms
from onegate.protocol.status import Status


def release_gpu(
    *,
    for_: Annotated[
        str | None,
        Parameter(
            name="--for",
            help="When it is taken back, at most 30 days ahead: a span such as 90s, 30m, 2h, or a "
            "time: 07:00, 2030-01-31T07:00. Default: with --end.",
        ),
    ] = None,
    now: Annotated[
        bool, Parameter(negative="", help="End what runs instead of waiting for it.")
    ] = False,
    end: Annotated[bool, Parameter(negative="", help="Take it back, if it was released.")] = False,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Administrators: unload the models, for a game, an image model or a transcription.

    Newcomers are refused from now on, and told when to come back; so is what waits, unless its
    class waits when it is closed. Batch work that can go on later is paused until the device is
    back; what else runs may finish for gate.drain_timeout_s, or is ended with --now. The command
    returns when the device is free. When the time is over, or with --end, a model is loaded again
    as soon as somebody asks for it. Ctrl-C gives up the waiting, not the release.

    It outlives a restart of the daemon, also a sudden one, where that keeps its state on disk: as a
    service, and a user's own daemon without --socket. One that was told where to listen, and has no
    usage.directory, keeps it in memory: its end ends the release.

    **Examples**

    ```
    onegate release-gpu --for 2h
    onegate release-gpu --end
    ```
    """
    if end and (for_ is not None or now):
        raise UsageError("--end takes the device back; --for and --now are about releasing it")
    today = datetime.fromtimestamp(wall_ms() / 1000)
    until = None if for_ is None else moment(for_, today, "--for")
    with Client(socket, app="onegate release-gpu") as gate:
        if end:
            applied = gate.take_back(on_notice=warn)
            if json:
                say_json({"released": False, "applied": applied})
            else:
                say("it is taken back" if applied else "it was not released")
            return Exit.DONE
        if gate.status().gate.in_flight and not now and not json:
            complain(waited_for(gate.status()))

        def look() -> str:
            with Client(socket, app="onegate release-gpu") as other:
                return waited_for(other.status())

        with saying(look):
            until_s = None if until is None else until.timestamp()
            free = gate.release_engine(until=until_s, now=now, on_notice=warn)
    if json:
        until_ms = None if until is None else round(until.timestamp() * 1000)
        say_json({"released": free, "released_until_ms": until_ms if free else None})
    elif not free:
        complain("somebody took it back before it was free")
    else:
        when = "" if until is None else f" until {until:%Y-%m-%d %H:%M:%S}"
        say(f"the device is free{when}; `onegate release-gpu --end` takes it back")
    return Exit.DONE if free else Exit.REFUSED


def waited_for(status: Status) -> str:
    """What keeps the device from being free."""
    if running := status.gate.in_flight:
        run = "1 request runs" if running == 1 else f"{running} requests run"
        return f"{run}; waiting for the end of that (--now ends it)"
    said = "; ".join(f"{pool.model}: {pool.error}" for pool in status.pools if pool.error)
    return "waiting until the engine says that nothing is loaded" + (f" ({said})" if said else "")
