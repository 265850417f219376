"""`onegate check-config`: everything that is wrong with a configuration, at once."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onegate.cli.exits import Exit
from onegate.cli.options import Json, Socket
from onegate.cli.terminal import complain, say, say_json
from onegate.client.sync import Client
from onegate.config import Config, ConfigError, ConfigProblem, load, socket_path, warnings

# What `ExecCondition=` of a unit takes for "not here", and not for a failure.
_NO_HOST = 1


def check_config(
    file: Annotated[Path, Parameter(name="FILE", help="The configuration file.")],
    /,
    *,
    needs_host: Annotated[
        bool,
        Parameter(
            negative="",
            help="Say with exit code 0 or 1 whether the engine lives in an engine host.",
        ),
    ] = False,
    running: Annotated[
        bool,
        Parameter(negative="", help="Also ask the running daemon whether it could take the file."),
    ] = False,
    json: Json = False,
    socket: Socket = None,
) -> int:
    """Read a configuration as the daemon would, and list every mistake with its place.

    Exit code 78 if there is any. What works but is probably not meant is a warning. Neither the
    daemon nor the engine is needed, but with --running: a reload can't take away a class.

    **Examples**

    ```
    onegate check-config /etc/onegate/onegate.toml
    onegate check-config --needs-host /etc/onegate/onegate.toml
    ```
    """
    config, errors = read(file)
    if running and config is not None:
        errors = missed(config, socket)
    if config is None or errors:
        if json:
            say_json({"file": str(file), "errors": _rows(errors), "warnings": []})
        else:
            for problem in errors:
                complain(f"{file}: {problem}")
        return Exit.BAD_CONFIG
    if needs_host:
        return _say_host(file, config, json)
    cautions = warnings(config)
    if json:
        say_json({"file": str(file), "errors": [], "warnings": _rows(cautions)})
    else:
        for problem in cautions:
            complain(f"{file}: warning: {problem}")
        say(f"{file}: usable, {len(cautions)} warnings" if cautions else f"{file}: good")
    return Exit.DONE


def read(file: Path) -> tuple[Config | None, list[ConfigProblem]]:
    """The configuration, or what is wrong with it. The environment plays no part: only the file
    is judged."""
    try:
        config = load(str(file), environ={})
        socket_path(config, environ={}, uid=0)
    except ConfigError as error:
        return None, error.errors
    return config, []


def missed(config: Config, socket: str | None) -> list[ConfigProblem]:
    """Classes that the running daemon has, and the file has not. Raises what the client raises."""
    with Client(socket, app="onegate check-config") as gate:
        there = [found.name for found in gate.status().classes]
    gone = [name for name in there if name not in {found.name for found in config.classes}]
    text = "is taken away, which only a restart can: restart the daemon"
    return [ConfigProblem(f"class.{name}", text) for name in gone]


def _say_host(file: Path, config: Config, json: bool) -> int:
    engine = config.engine
    needed = engine.needs_host
    if json:
        path = engine.host_socket if needed else None
        say_json({"file": str(file), "needs_host": needed, "host_socket": path})
    elif needed:
        say(f"{file}: the engine lives in an engine host at {engine.host_socket}")
    elif engine.host_socket is not None:
        say(f'{file}: no engine host: an engine of kind "{engine.kind}" is a server of its own')
    else:
        say(f"{file}: no engine host: engine.host_socket is not set")
    return Exit.DONE if needed else _NO_HOST


def _rows(problems: list[ConfigProblem]) -> list[dict[str, str]]:
    return [{"path": problem.path, "message": problem.message} for problem in problems]
