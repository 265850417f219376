"""The engine's interpreter, and who else comes to its port."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.checkup import Machine, Ran, Verdict
from onegate.cli.checkup_engine import INTERPRETER, interpreter, key, port
from onegate.cli.checkup_machine import INSTALL
from onegate.config import Config, check

ROOT = Path(__file__).parents[3]
OWN = '[engine]\nkind = "tensorrt-llm"\nmodel = "/m"\npython = "/opt/t/bin/python"\n'
HOSTED = check(OWN + 'host_socket = "/run/onegate-engine/host.sock"\n')
OLLAMA = '[engine]\nkind = "ollama"\nollama.models = [{model = "m"}]\n'
OPENAI = '[engine]\nkind = "openai"\nopenai.base_url = "%s"\n'
FAR = check(OPENAI % "http://192.0.2.1/v1" + "allow_remote = true\n")


class Asked(list[tuple[str, ...]]):
    """The commands that were run, each of which ends with `code`; None: it hangs."""

    code: int | None = 0

    def __call__(self, *command: str) -> Ran | None:
        self.append(command)
        return None if self.code is None else Ran(self.code, "", "")


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def machine(tmp_path: Path, asked: Asked) -> Callable[..., Machine]:
    def make(code: int | None = 0, **more: Any) -> Machine:
        asked.code = code
        fields = {"root": tmp_path, "environ": {}, "uid": 1000, "gids": frozenset({1000})}
        return Machine(**(fields | {"run": asked, "python": "/p"} | more))

    return make


def install(root: Path, python: str | None = None) -> None:
    (root / "opt/onegate").mkdir(parents=True, exist_ok=True)
    (root / "opt/onegate/current").symlink_to("1.2-abc")
    if python is not None:
        drop_in = root / INTERPRETER.lstrip("/")
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(f"# why\n[Service]\nEnvironment=ONEGATE_ENGINE_PYTHON={python}\n")


# --- interpreter ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "has", "fails"),
    [
        (HOSTED, "/opt/t/bin/python", False),
        (HOSTED, None, True),
        (HOSTED, "/opt/old/bin/python", True),
        (Config(), None, False),
        (Config(), "/opt/t/bin/python", True),
        (check(OLLAMA), None, False),
        (check(OWN), None, False),  # the daemon starts it
        (None, None, False),
    ],
)
def test_the_service_is_started_with_the_interpreter_that_is_configured(
    machine: Any, tmp_path: Path, config: Config | None, has: str | None, fails: bool
) -> None:
    assert interpreter(machine(), config) == []  # nothing is installed
    install(tmp_path, has)
    found = interpreter(machine(), config)
    assert [(f.verdict, f.command) for f in found] == ([(Verdict.FAIL, INSTALL)] if fails else [])


# --- key ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "verdict"),
    [("there", Verdict.OK), ("folder", Verdict.FAIL), ("nothing", Verdict.FAIL)],
)
def test_the_key_is_where_the_configuration_says(
    tmp_path: Path, name: str, verdict: Verdict
) -> None:
    (tmp_path / "there").write_text("k")
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    (found,) = key(check(OPENAI % "http://127.0.0.1/v1" + f'openai.api_key_file = "{path}"\n'))
    assert found.verdict is verdict
    assert found.command == (f"ls -lL {path}" if verdict is Verdict.FAIL else None)


def test_a_credential_is_the_services(tmp_path: Path) -> None:
    (found,) = key(check(OPENAI % "http://127.0.0.1/v1" + 'openai.api_key_file = "engine-key"\n'))
    assert found.verdict is Verdict.SKIP
    assert key(check(OPENAI % "http://127.0.0.1/v1")) == key(Config()) == key(None) == []


# --- port -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [None, Config(), HOSTED, FAR])
def test_without_a_server_on_this_machine_there_is_no_port_to_look_at(
    machine: Any, asked: Asked, config: Config | None
) -> None:
    assert port(machine(), config, is_up=True) == []
    assert asked == []


@pytest.mark.parametrize("uid", [0, 1000])
def test_who_can_connect_goes_past_the_gate(
    machine: Any, asked: Asked, tmp_path: Path, uid: int
) -> None:
    names = {"user_name": lambda uid: f"u{uid}"}
    (found,) = port(machine(0, uid=uid, **names), check(OLLAMA), is_up=True)
    assert found.verdict is Verdict.WARN
    assert ("everybody" in found.sentence) == (uid == 0)
    assert "127.0.0.1:11434 past the gate" in found.sentence
    # Nobody is called onegate there, and the rule for it is one that nft does not take.
    recipe = f"sed 's/root, onegate/root, u{uid}/' systemd/engine-port.nft"
    assert found.command == f"{recipe} | sudo nft -D port=11434 -f -"
    assert "{ root, onegate }" in (ROOT / "systemd/engine-port.nft").read_text()
    # Root may do anything, so that it asks as nobody.
    assert asked[0][:2] == (("setpriv", "--reuid=65534") if uid == 0 else ("/p", "-I"))
    assert asked[0][-2:] == ("127.0.0.1", "11434")
    install(tmp_path)
    (found,) = port(machine(0, uid=uid), check(OLLAMA), is_up=True)
    assert "-f /opt/onegate/current/systemd/engine-port.nft" in (found.command or "")


@pytest.mark.parametrize(
    ("code", "is_up", "verdict", "said"),
    [
        (3, True, Verdict.OK, "and you can not"),
        (3, False, Verdict.SKIP, "nobody answers"),
        (1, True, Verdict.SKIP, "could not be tried"),
        (None, True, Verdict.SKIP, "could not be tried"),
    ],
)
def test_who_cannot(
    machine: Any, code: int | None, is_up: bool, verdict: Verdict, said: str
) -> None:
    (found,) = port(machine(code), check(OLLAMA), is_up=is_up)
    assert found.verdict is verdict
    assert said in found.sentence


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://localhost:8000/v1", ("localhost", "8000")),
        ("https://[::1]/v1", ("::1", "443")),
        ("unix:/run/v/v.sock:/v1", ("/run/v/v.sock", "0")),
    ],
)
def test_every_kind_of_address_is_tried(
    machine: Any, asked: Asked, url: str, place: tuple[str, str]
) -> None:
    (found,) = port(machine(0), check(OPENAI % url), is_up=True)
    assert asked[0][-2:] == place
    if place[1] == "0":
        assert found.command == "namei -l /run/v/v.sock"


def test_what_is_run_connects(tmp_path: Path, machine: Any, asked: Asked) -> None:
    """The program itself, at a socket of which the file alone is there, and then its listener."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))
        port(machine(0), check(OPENAI % f"unix:{path}"), is_up=True)
        command = [sys.executable, *asked[0][1:]]
        assert subprocess.run(command, check=False).returncode == 3
        sock.listen()
        assert subprocess.run(command, check=False).returncode == 0


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
ROW = "   0: {}:2CAA {}:0000 {} 00000000:00000000 00:00000000 00000000  1000  0 1\n"


@pytest.mark.parametrize(
    ("table", "address", "state", "beyond"),
    [
        ("tcp", "0100007F", "0A", False),
        ("tcp", "00000000", "0A", True),
        ("tcp", "0200000A", "0A", True),
        ("tcp", "0200000A", "01", False),  # a connection
        ("tcp6", "00000000000000000000000001000000", "0A", False),
        ("tcp6", "0000000000000000FFFF00000100007F", "0A", False),
        ("tcp6", "00000000000000000000000000000000", "0A", True),
        ("tcp6", "000080FE00000000FF00000000007F7F", "0A", True),
    ],
)
def test_an_engine_that_listens_for_other_machines(
    machine: Any, tmp_path: Path, table: str, address: str, state: str, beyond: bool
) -> None:
    (tmp_path / "proc/net").mkdir(parents=True)
    other = ROW.replace("2CAA", "2CAB").format("00000000", "0", "0A")
    (tmp_path / "proc/net" / table).write_text(HEAD + other + ROW.format(address, "0", state))
    found = port(machine(3), check(OLLAMA), is_up=True)
    assert [f.verdict for f in found] == [Verdict.WARN, Verdict.OK][not beyond :]
    if beyond:
        assert "for other machines" in found[0].sentence
