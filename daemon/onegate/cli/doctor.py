"""`onegate doctor`: everything that can be wrong, each with the next command to type."""

from collections.abc import Callable

from onegate.cli.checkup import Check, Machine, Verdict
from onegate.cli.checkup_daemon import caller, connection, daemon, engine
from onegate.cli.checkup_engine import interpreter, key, port
from onegate.cli.checkup_files import configuration, loaded, model
from onegate.cli.checkup_machine import devices, installation, membership, units
from onegate.cli.exits import Exit
from onegate.cli.options import Json, Socket
from onegate.cli.terminal import say, say_json


def doctor(*, json: Json = False, socket: Socket = None) -> int:
    """Look at everything that can be wrong, and name for each finding the command to type next.

    Nothing is changed, and nothing is asked of the model. Root may see more than you do. Exit code
    69 if something fails; a warning, or what cannot be looked at, is no failure.

    **Examples**

    ```
    onegate doctor
    onegate doctor --json
    ```
    """
    found = examine(Machine(), socket)
    worst = max((check.verdict for check in found), key=list(Verdict).index)
    if json:
        say_json({"verdict": worst, "checks": found})
    else:
        for line in lines(found):
            say(line)
    return Exit.UNAVAILABLE if worst is Verdict.FAIL else Exit.DONE


def examine(machine: Machine, socket: str | None) -> list[Check]:
    """Every finding, causes before their consequences."""
    found = _looked("install", lambda: installation(machine))
    checks, config = configuration(machine)
    found += checks
    found += _looked("model", lambda: model(machine, config))
    found += _looked("units", lambda: units(machine))
    found += _looked("devices", lambda: devices(machine, config))
    found += _looked("engine", lambda: interpreter(machine, config))
    found += _looked("key", lambda: key(config))
    checks, answers = connection(machine, socket)
    found += membership(machine, served=answers is not None)
    found += checks
    if answers is not None:
        found += [*daemon(answers), *engine(answers)]
        found += loaded(machine, config, answers.status.pools, answers.anew)
        found += caller(answers)
    pools = [] if answers is None else answers.status.pools
    is_up = any(pool.state in ("ready", "cold") for pool in pools)
    found += _looked("port", lambda: port(machine, config, is_up=is_up))
    return found


def _looked(name: str, look: Callable[[], list[Check]]) -> list[Check]:
    """What a check finds, where this user is allowed to look."""
    try:
        return look()
    except (OSError, RuntimeError) as error:  # the latter for a link that leads to itself
        return [Check(name, Verdict.SKIP, f"cannot be looked at: {error}", "sudo onegate doctor")]


def lines(found: list[Check]) -> list[str]:
    """The findings for a person, each bad one with its command below it."""
    width = max(len(check.name) for check in found)
    out = []
    for check in found:
        out.append(f"{check.verdict:<4}  {check.name:<{width}}  {check.sentence}")
        if check.command is not None:
            out.append(f"{'':<{width + 8}}type: {check.command}")
    failed, warned = (
        sum(check.verdict is verdict for check in found) for verdict in (Verdict.FAIL, Verdict.WARN)
    )
    if failed or warned:
        out.append(f"{failed} of {len(found)} checks fail, {warned} more are worth a look")
    else:
        out.append("all is well")
    return out
