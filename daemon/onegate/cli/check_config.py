"""`onegate check-config`: everything that is wrong with a configuration, at once."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from onegate.cli.exits import Exit
from onegate.cli.options import Json
from onegate.cli.terminal import complain, say, say_json
from onegate.config import ConfigError, ConfigProblem, load, socket_path, warnings


def check_config(
    file: Annotated[Path, Parameter(name="FILE", help="The configuration file.")],
    /,
    *,
    json: Json = False,
) -> int:
    """Read a configuration as the daemon would, and list every mistake with its place.

    Exit code 78 if there is any. What works but is probably not meant is a warning. Neither the
    daemon nor the engine is needed.

    **Examples**

    ```
    onegate check-config /etc/onegate/onegate.toml
    ```
    """
    errors, cautions = judge(file)
    if json:
        say_json({"file": str(file), "errors": _rows(errors), "warnings": _rows(cautions)})
    else:
        for problem in errors:
            complain(f"{file}: {problem}")
        for problem in cautions:
            complain(f"{file}: warning: {problem}")
        if not errors:
            say(f"{file}: good" if not cautions else f"{file}: usable, {len(cautions)} warnings")
    return Exit.BAD_CONFIG if errors else Exit.DONE


def judge(file: Path) -> tuple[list[ConfigProblem], list[ConfigProblem]]:
    """Errors and warnings. The environment plays no part: only the file is judged."""
    try:
        config = load(str(file), environ={})
        socket_path(config, environ={}, uid=0)
    except ConfigError as error:
        return error.errors, []
    return [], warnings(config)


def _rows(problems: list[ConfigProblem]) -> list[dict[str, str]]:
    return [{"path": problem.path, "message": problem.message} for problem in problems]
