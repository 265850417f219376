"""What to do about a socket: who listens there decides, and a second daemon is never the answer."""

import shlex

from onegate.cli.checkup import Check, Listening, Machine, Verdict
from onegate.cli.checkup_machine import (
    COMMANDS,
    ENGINE_UNIT,
    GATE_UNIT,
    SOCKET_UNIT,
    is_installed,
    is_present,
)
from onegate.protocol.address import SYSTEM_SOCKET

_JOURNAL = f"journalctl -u {GATE_UNIT} -n 50 --no-pager"


def start(machine: Machine, path: str) -> str:
    """What makes somebody listen where nobody does."""
    if path == SYSTEM_SOCKET:
        # Where nothing was installed there is no such unit, whoever boots the machine.
        service = machine.booted and is_present(machine)
        return f"sudo systemctl start {SOCKET_UNIT}" if service else "onegated &"
    return f"onegated --socket {shlex.quote(path)} &"


def anew(machine: Machine, path: str) -> str:
    """What replaces the daemon that answers there by one of the code that lies on the disk: it is
    ended, and when it has gone the same command is given again."""
    if _is_systemds(machine, path):
        return f"sudo systemctl restart {GATE_UNIT}"
    who = _listening(machine, path)
    if who is None or not _state(machine, who):
        return _look(path)
    user = "" if who.uid == machine.uid else f"sudo -u {machine.user_name(who.uid)} "
    again = _command(machine, who) or start(machine, path).removesuffix(" &")
    return f"{_kill(machine, who)} && tail --pid={who.pid} -f /dev/null && {user}{again} &"


def alike(machine: Machine, path: str, again: str) -> str:
    """What makes the daemon and the command the same code; `again` starts the daemon anew."""
    if _is_systemds(machine, path) and not is_installed(machine):
        return f"{COMMANDS}/onegate doctor"  # a checkout's command is not what the service runs
    return again


def journal(machine: Machine, path: str) -> str:
    """What shows more of what the daemon there and its engine have said. One that was started by
    hand has said it where it was started; its status has what still holds."""
    if _is_systemds(machine, path):
        return f"journalctl -u {GATE_UNIT} -u {ENGINE_UNIT} -n 50 --no-pager"
    return "onegate status"


def unanswered(machine: Machine, path: str, problem: str) -> Check:
    """What is wrong with a socket at which no daemon answers."""
    name = "socket"
    try:
        who = machine.listener(path)
    except OSError as error:
        text = f"{problem}; {path} cannot be looked at: {error.strerror}"
        return Check(name, Verdict.FAIL, text, f"namei -l {shlex.quote(path)}")
    if who is None:
        return Check(name, Verdict.FAIL, problem, start(machine, path))
    if _is_systemds(machine, path):
        ran = machine.run("systemctl", "is-active", GATE_UNIT)
        state = "unknown" if ran is None else ran.out.strip() or "unknown"
        if state in ("active", "activating", "deactivating", "reloading"):
            text = f"systemd listens at {path}, {GATE_UNIT} is {state} and does not answer"
            return Check(name, Verdict.FAIL, f"{text}: {problem}", _JOURNAL)
        text = f"systemd listens at {path}, and {GATE_UNIT} is {state}: {problem}"
        return Check(name, Verdict.FAIL, text, f"sudo systemctl start {GATE_UNIT}")
    match _state(machine, who):
        case "":
            text = f"a program listens at {path} and does not answer: {problem}"
            return Check(name, Verdict.FAIL, text, _look(path))
        case "T" | "t":
            text = f"process {who.pid} listens at {path} and has been stopped"
            return Check(name, Verdict.FAIL, text, _kill(machine, who, "-CONT "))
        case _:
            text = (
                f"process {who.pid} listens at {path} and does not answer: {problem}; look at it "
                f"(ps -fp {who.pid}), and end it (kill -9 where kill alone does not) before "
                "another is started"
            )
            return Check(name, Verdict.FAIL, text, _kill(machine, who))


def _is_systemds(machine: Machine, path: str) -> bool:
    if path != SYSTEM_SOCKET or not machine.booted:
        return False
    ran = machine.run("systemctl", "is-active", SOCKET_UNIT)
    return ran is not None and ran.code == 0


def _listening(machine: Machine, path: str) -> Listening | None:
    try:
        return machine.listener(path)
    except OSError:
        return None  # gone since it answered


def _state(machine: Machine, who: Listening) -> str:
    """The letter of proc_pid_stat(5), empty where the process cannot be seen."""
    if who.pid <= 0:
        return ""
    try:
        stat = machine.at(f"/proc/{who.pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def _command(machine: Machine, who: Listening) -> str:
    """How it was started, empty where that cannot be seen."""
    try:
        words = machine.at(f"/proc/{who.pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return ""
    return shlex.join(word.decode(errors="replace") for word in words)


def _kill(machine: Machine, who: Listening, signal: str = "") -> str:
    before = "" if machine.uid in (0, who.uid) else "sudo "
    return f"{before}kill {signal}{who.pid}"


def _look(path: str) -> str:
    return f"sudo ss -xlp src {shlex.quote(path)}"
