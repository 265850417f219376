"""What of the way to the engine can be wrong: its interpreter, its key, and who else comes to its
port."""

import ipaddress
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from onegate.cli.checkup import Check, Machine, Verdict
from onegate.cli.checkup_machine import ENGINE_UNIT, INSTALL, PREFIX, is_present
from onegate.config import Config, HttpConfig

INTERPRETER = f"/usr/local/lib/systemd/system/{ENGINE_UNIT}.d/interpreter.conf"
_VARIABLE = "Environment=ONEGATE_ENGINE_PYTHON="
_RECIPE = "systemd/engine-port.nft"

# Nobody, whom no rule means to let in.
_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--")
_CONNECT = """
import socket, sys
place, port = sys.argv[1], int(sys.argv[2])
try:
    if port:
        socket.create_connection((place, port), 2).close()
    else:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(2)
            sock.connect(place)
except OSError:
    sys.exit(3)
"""
_REFUSED = 3
_PORTS = {"http": 80, "https": 443}
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp
_LOOPBACK_6 = "00000000000000000000000001000000"
_MAPPED = "0000000000000000FFFF0000"


def interpreter(machine: Machine, config: Config | None) -> list[Check]:
    """Is the engine's service started with the interpreter that the configuration names?"""
    if config is None or not is_present(machine):
        return []
    name, engine = "engine", config.engine
    wanted = engine.python if engine.needs_host else None
    has = _interpreter_of(machine)
    if has == wanted:
        return []
    text = (
        f"{ENGINE_UNIT} is started with {has or 'the interpreter of onegate'}, and the "
        f"configuration has {wanted or 'no engine.python'}"
    )
    return [Check(name, Verdict.FAIL, text, INSTALL)]


def key(config: Config | None) -> list[Check]:
    """Is the key that a server wants where the configuration says?"""
    server = None if config is None else _server(config)
    name = getattr(server, "api_key_file", None)
    if name is None:
        return []
    if "/" not in name:
        text = f"api_key_file is the credential {name}, which only the service can see"
        return [Check("key", Verdict.SKIP, text)]
    look = f"ls -lL {shlex.quote(name)}"
    if not Path(name).is_file():
        text = f"api_key_file {name} is no file that is there: the daemon does not start without it"
        return [Check("key", Verdict.FAIL, text, look)]
    return [Check("key", Verdict.OK, f"api_key_file {name} is there")]


def port(machine: Machine, config: Config | None, *, is_up: bool) -> list[Check]:
    """Can others than the daemon speak to an engine that is a server? `is_up`: the daemon can."""
    server = None if config is None else _server(config)
    if server is None:
        return []
    name, (place, number) = "port", _place(server.base_url)
    if number and not _is_here(place):
        return []  # another machine's firewall is that machine's
    where = f"{place}:{number}" if number else place
    found = []
    if number and _listens_beyond(machine, number):
        text = f"port {number} listens for other machines, too: start the engine at 127.0.0.1 alone"
        command = f"sudo ss -ltnp sport = :{number}"
        found.append(Check(name, Verdict.WARN, text, command))
    who, before = ("everybody on this machine", _NOBODY) if machine.uid == 0 else ("you", ())
    ran = machine.run(*before, machine.python, "-I", "-c", _CONNECT, place, str(number))
    if ran is None or ran.code not in (0, _REFUSED):
        text = f"whether others than the daemon reach the engine at {where} could not be tried"
        found.append(Check(name, Verdict.SKIP, text))
    elif ran.code == 0:
        text = f"{who} can use the engine at {where} past the gate"
        found.append(Check(name, Verdict.WARN, text, _closing(machine, place, number)))
    elif is_up:
        text = f"the daemon reaches the engine at {where}, and {who} can not"
        found.append(Check(name, Verdict.OK, text.replace("everybody on this machine", "others")))
    else:
        text = f"nobody answers at {where}, so that who may connect is not seen"
        found.append(Check(name, Verdict.SKIP, text))
    return found


def _closing(machine: Machine, place: str, number: int) -> str:
    if not number:
        return f"namei -l {place}"
    if is_present(machine):
        return f"sudo nft -D port={number} -f {PREFIX}/current/{_RECIPE}"
    # There is no user onegate, and nft takes no name that nobody has.
    user = machine.user_name(machine.uid)
    return f"sed 's/root, onegate/root, {user}/' {_RECIPE} | sudo nft -D port={number} -f -"


def _interpreter_of(machine: Machine) -> str | None:
    try:
        lines = machine.at(INTERPRETER).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return next(
        (line.removeprefix(_VARIABLE) for line in lines if line.startswith(_VARIABLE)), None
    )


def _server(config: Config) -> HttpConfig | None:
    match config.engine.kind:
        case "ollama":
            return config.engine.ollama
        case "openai":
            return config.engine.openai
        case _:
            return None


def _place(base_url: str) -> tuple[str, int]:
    """A host and its port, or the path of a Unix socket and 0. The URL has been checked."""
    if base_url.startswith("unix:"):
        return base_url.removeprefix("unix:").partition(":")[0], 0
    parts = urlsplit(base_url)
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listens_beyond(machine: Machine, number: int) -> bool:
    """Does anybody listen at that port on another address than this machine's own?"""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = machine.at(table).read_text(encoding="ascii").splitlines()[1:]
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for row in rows:
            _, local, _, state, *_ = row.split()
            address, _, port_hex = local.rpartition(":")
            if state == _LISTEN and int(port_hex, 16) == number and not _is_loopback(address):
                return True
    return False


def _is_loopback(address: str) -> bool:
    """Of an address as /proc/net/tcp has it: words of four bytes, each in this machine's order."""
    if len(address) > len("0100007F") and not address.startswith(_MAPPED):
        return address == _LOOPBACK_6
    return address.endswith("7F")
