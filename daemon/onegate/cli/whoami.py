"""`onegate whoami`: who the daemon takes you for, and why."""

from onegate.cli.options import Json, Socket
from onegate.cli.status import span
from onegate.cli.terminal import say, say_json
from onegate.client.sync import Client
from onegate.protocol import messages as m


def whoami(*, json: Json = False, socket: Socket = None) -> None:
    """Show what the kernel says about you, your class, and the rules that decided.

    The class is that of programs started the way this command was: a service, a cron job or a
    shell may each get another.

    **Examples**

    ```
    onegate whoami
    onegate whoami --json
    ```
    """
    with Client(socket, app="onegate whoami") as gate:
        report = gate.whoami()
    if json:
        say_json(report)
    else:
        for line in lines(report):
            say(line)


def rations(daily: dict[str, m.DailyUse]) -> list[str]:
    """One line for each class that may be used so much in a day."""
    return [
        f"{class_}: {use.used_tok} of {use.limit_tok} tokens, the day ends in "
        f"{span(use.resets_in_ms / 1000)}"
        for class_, use in daily.items()
    ]


def lines(report: m.WhoamiReport) -> list[str]:
    """The report for a person."""
    peer = report.peer
    facts = [f"uid {peer.uid}", f"gid {peer.gid}", f"pid {peer.pid}"]
    facts += [
        f"{name} {value}"
        for name, value in (
            ("unit", peer.unit),
            ("user unit", peer.user_unit),
            ("slice", peer.slice),
        )
        if value is not None
    ]
    facts.append("with a terminal" if peer.tty else "without a terminal")
    rights = [
        name
        for name, has in (("administrator", report.admin), ("delegate", report.delegate))
        if has
    ]
    treated = "" if report.treated_as is None else f", treated as {report.treated_as} now"
    return [
        f"class      {report.class_}{treated}",
        f"ceiling    {report.ceiling}",
        f"allowed    {', '.join(report.allowed)}",
        f"principal  {report.principal}",
        *([f"rights     {', '.join(rights)}"] if rights else []),
        f"peer       {', '.join(facts)}",
        *(f"today      {line}" for line in rations(report.daily)),
        "because",
        *(f"  - {why}" for why in report.why),
    ]
