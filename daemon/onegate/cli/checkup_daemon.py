"""What of the running daemon can be wrong: whether it answers, what it says of its engine."""

import os
import stat
from dataclasses import dataclass

from onegate import __version__
from onegate.cli.checkup import Check, Machine, Verdict
from onegate.cli.checkup_machine import CLIENTS
from onegate.cli.checkup_socket import alike, anew, journal, start, unanswered
from onegate.cli.closed import paused, released
from onegate.client.connect import socket_path
from onegate.client.errors import NotPermitted, OnegateError, RequestError
from onegate.client.sync import Client
from onegate.protocol import messages as m
from onegate.protocol.address import SYSTEM_SOCKET
from onegate.protocol.errors import NoticeCode
from onegate.protocol.status import PoolStatus, Status
from onegate.source import build

# A daemon that needs longer than this to say hello is in trouble.
ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class Answers:
    """What the daemon said of itself and of the caller.

    `anew` starts it again, and `alike` makes it the code that this command is, or the other way
    round. `journal` shows what else it has said.
    """

    status: Status
    whoami: m.WhoamiReport
    anew: str
    alike: str
    journal: str


def connection(machine: Machine, socket: str | None) -> tuple[list[Check], Answers | None]:
    """Is there a socket, and does somebody answer who lets this user in?"""
    name, path = "socket", socket_path(socket)
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        text = f"there is no socket at {path}"
        return [Check(name, Verdict.FAIL, text, start(machine, path))], None
    except OSError as error:
        text = f"{path} cannot be looked at: {error.strerror}"
        return [Check(name, Verdict.FAIL, text, f"namei -l {path}")], None
    if not stat.S_ISSOCK(mode):
        return [Check(name, Verdict.FAIL, f"{path} is no socket", f"ls -l {path}")], None
    try:
        with Client(path, app="onegate doctor", connect_timeout=ANSWER_S, retry="never") as gate:
            again = anew(machine, path)
            answers = Answers(
                gate.status(),
                gate.whoami(),
                again,
                alike(machine, path, again),
                journal(machine, path),
            )
    except NotPermitted as error:
        user = machine.user_name(machine.uid)
        command = f"sudo usermod -aG {CLIENTS} {user}"
        if path != SYSTEM_SOCKET:
            command = f"ls -l {path}"
        return [Check(name, Verdict.FAIL, str(error), command)], None
    except RequestError as error:  # an answer all the same
        return [Check(name, Verdict.FAIL, str(error), "onegate wait-ready")], None
    except OnegateError as error:
        return [unanswered(machine, path, str(error))], None
    return [Check(name, Verdict.OK, f"the daemon answers at {path}")], answers


def daemon(answers: Answers) -> list[Check]:
    """Its version, what it is doing, and what it complains about itself."""
    name, status = "daemon", answers.status
    found = []
    if status.version != (mine := build(__version__)):
        # Two checkouts of one number differ behind the +, and so does a daemon that was started
        # before its code was changed.
        text = f"the daemon runs {status.version}, and this command is {mine}"
        found.append(Check(name, Verdict.WARN, text, answers.alike))
    if status.state != "serving":
        text = f"it is {status.state}, and takes nothing new"
        found.append(Check(name, Verdict.WARN, text, "onegate wait-ready"))
    for notice in status.notices:
        if notice.code == NoticeCode.ENGINE_DOWN:
            continue  # which the engine's own check says
        text = f"{notice.code}: {notice.detail}"
        found.append(Check(name, Verdict.WARN, text, "onegate status"))
    for cls in status.classes:
        if cls.paused:
            text, command = f"class {cls.name} is {paused(cls)}", f"onegate unpause {cls.name}"
            found.append(Check(name, Verdict.WARN, text, command))
    if not found:
        text = f"version {status.version} serves, {status.gate.in_flight} run, "
        found.append(Check(name, Verdict.OK, text + f"{status.gate.queued} wait"))
    return found


def engine(answers: Answers) -> list[Check]:
    """Can each model be asked for?"""
    pools, status = answers.status.pools, answers.status
    down = [notice.detail for notice in status.notices if notice.code == NoticeCode.ENGINE_DOWN]
    # One that is tried again is loading meanwhile, and the notice alone says why it has failed.
    if down and not any(pool.state == "failed" or pool.error for pool in pools):
        return [Check("engine", Verdict.FAIL, down[0], answers.journal)]
    if not pools:
        text = "the engine has not said yet which models it has"
        return [Check("engine", Verdict.WARN, text, "onegate wait-ready")]
    return [_pool(pool, answers.journal) for pool in pools]


def _pool(pool: PoolStatus, journal: str) -> Check:
    name = "engine"
    match pool.state:
        case "failed":
            why = pool.error or "it does not say why"
            return Check(name, Verdict.FAIL, f"{pool.model} cannot be served: {why}", journal)
        case "loading":
            text = f"{pool.model} is being loaded" + (f" again: {pool.error}" if pool.error else "")
            return Check(name, Verdict.WARN, text, "onegate wait-ready")
        case "released":
            text = f"{pool.model} is {released(pool)}: the device is lent to something else"
            return Check(name, Verdict.WARN, text, "onegate release-gpu --end")
        case _:
            quarantined = pool.seats_quarantined
            if quarantined >= pool.seats:
                text = f"{pool.model}: all {quarantined} seats wait for the engine to confirm"
                return Check(name, Verdict.WARN, text, "onegate status")
            return Check(name, Verdict.OK, f"{pool.model} is {pool.state}")


def caller(answers: Answers) -> list[Check]:
    """What the daemon takes this user for."""
    who = answers.whoami
    rights = ", administrator" if who.admin else ""
    text = f"you are {who.principal}, class {who.class_}, ceiling {who.ceiling}{rights}"
    return [Check("you", Verdict.OK, text)]
