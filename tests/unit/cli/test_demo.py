"""The demonstration, without a daemon."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onegate.cli import demo as verb
from onegate.cli.demo import configuration, next_commands, settled, show, table, wait_for_model
from onegate.cli.flood import BATCH, INTERACTIVE, Figures
from onegate.cli.main import run
from onegate.cli.private_daemon import DaemonEnded
from onegate.cli.terminal import console
from onegate.cli.wait_ready import Look
from onegate.config import check
from onegate.config.engine_tables import EngineChoice
from onegate.protocol import messages as m


@pytest.mark.parametrize(
    "choice",
    [
        EngineChoice("openvino"),
        EngineChoice("openvino", ("/m/x.gguf",)),
        EngineChoice("scripted"),
        EngineChoice("ollama", ("llama3.2",)),
        EngineChoice("openai", (), "http://127.0.0.1:8080/v1"),
    ],
)
def test_the_configuration_is_valid_and_lets_its_owner_do_everything(choice: EngineChoice) -> None:
    config = check(configuration(choice, 7))
    assert config.engine.kind == choice.kind
    grant = config.grants[0]
    assert (grant.uid, grant.ceiling, grant.admin) == (7, "interactive", True)


class FakeDaemon:
    socket = "/s"

    def __init__(self, error: DaemonEnded | None = None) -> None:
        self.error = error
        self.stopped = False

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def __enter__(self) -> "FakeDaemon":
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    state = {"now": 0}

    def sleep(seconds: float) -> None:
        state["now"] += round(seconds * 1e9)

    monkeypatch.setattr(verb, "monotonic_ns", lambda: state["now"])
    monkeypatch.setattr(verb.time, "sleep", sleep)
    return state


def test_the_model_is_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    looks: list[Any] = [Look(None, "loading"), Look(None, "loading"), Look("tiny")]
    monkeypatch.setattr(verb, "look", lambda socket, model: looks.pop(0))
    daemon: Any = FakeDaemon()
    assert wait_for_model(daemon) == "tiny"
    assert clock["now"] == round(2 * verb.POLL_S * 1e9)


def test_a_daemon_that_ends_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, clock: Any) -> None:
    monkeypatch.setattr(verb, "look", lambda socket, model: Look(None, "nobody"))
    daemon: Any = FakeDaemon(DaemonEnded("it ended"))
    with pytest.raises(DaemonEnded, match="it ended"):
        wait_for_model(daemon)
    assert clock["now"] == 0


def test_a_model_that_never_comes_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    monkeypatch.setattr(verb, "look", lambda socket, model: Look(None, "tiny is failed"))
    daemon: Any = FakeDaemon()
    with pytest.raises(DaemonEnded, match="tiny is failed"):
        wait_for_model(daemon)


def test_an_engine_that_is_down_is_waited_for_shortly(
    monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    # It has been down, is tried again, and is down for good.
    looks = [Look(None, "nobody answers", True)] * 10 + [Look(None, "loading")]

    def look(socket: str, model: None) -> Look:
        return looks.pop(0) if looks else Look(None, "nobody answers", True)

    monkeypatch.setattr(verb, "look", look)
    daemon: Any = FakeDaemon()
    with pytest.raises(DaemonEnded, match="nobody answers"):
        wait_for_model(daemon)
    least_s = 10 * verb.POLL_S + verb.DOWN_TIMEOUT_S
    assert least_s <= clock["now"] / 1e9 < least_s + 1 < verb.READY_TIMEOUT_S


class FakePerson:
    """An asynchronous client whose daemon is busy for `busy` questions."""

    def __init__(self, given: Any, busy: int = 0) -> None:
        self._given = given
        self.busy = busy
        self.closed = 0

    async def status(self) -> Any:
        if self.busy > 0:
            self.busy -= 1
            return self._given.status()
        idle = self._given.status().gate
        return self._given.status(gate=msgspec.structs.replace(idle, in_flight=0, queued=0))

    async def stream(self, **options: Any) -> AsyncIterator[m.Chunk]:
        options["progress"](m.Started(id=1, rid="r", queue_ms=5.0))
        yield m.Chunk(id=1, n_tok=2, text="blue")

    async def close(self) -> None:
        self.closed += 1

    async def __aenter__(self) -> "FakePerson":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@pytest.fixture
def person(given: Any, monkeypatch: pytest.MonkeyPatch) -> FakePerson:
    made = FakePerson(given, busy=1)
    monkeypatch.setattr(verb, "AsyncClient", lambda *a, **k: made)
    return made


async def test_the_show(person: FakePerson, capsys: Any) -> None:
    made = await show("/s", 3)
    text = capsys.readouterr().out
    assert "3 batch jobs at once: 3 run, 4 wait" in text
    assert "blue" in text
    assert "The first word came after" in text
    assert made.row_count == 2
    assert person.closed == 2


async def test_settling_ends_when_nothing_runs(given: Any, monkeypatch: Any) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(verb.asyncio, "sleep", sleep)
    busy: Any = FakePerson(given, busy=2)
    status = await settled(busy)
    assert status.gate.in_flight == 0
    assert len(slept) == 2


async def test_settling_does_not_last_for_ever(
    given: Any, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    async def sleep(seconds: float) -> None:
        clock["now"] += round(seconds * 1e9)

    monkeypatch.setattr(verb.asyncio, "sleep", sleep)
    busy: Any = FakePerson(given, busy=10**6)
    assert (await settled(busy)).gate.in_flight > 0


def test_the_table_has_every_figure(capsys: Any) -> None:
    rows = [
        Figures(INTERACTIVE, 1, 3.0, 120.4, 31.2, 0),
        Figures(BATCH, 60, 2500.0, None, None, 2),
    ]
    console().print(table(rows, {INTERACTIVE: 0, BATCH: 33}))
    text = capsys.readouterr().out
    assert next(line.split() for line in text.splitlines() if line.strip().startswith("i")) == (
        "interactive 1 3 ms 120 ms 31 0 0".split()
    )
    assert "batch 60 2500 ms - - 2 33".split() in [line.split() for line in text.splitlines()]


def played(monkeypatch: pytest.MonkeyPatch, daemon: FakeDaemon) -> None:
    async def shown(socket: str, jobs: int) -> Any:
        return table([], {})

    monkeypatch.setattr(verb, "PrivateDaemon", lambda config: daemon)
    monkeypatch.setattr(verb, "show", shown)


def test_the_verb_tells_what_to_do_next(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    daemon = FakeDaemon()
    played(monkeypatch, daemon)
    monkeypatch.setattr(verb, "look", lambda socket, model: Look("tiny"))
    assert run(["demo", "--engine", "scripted", "--jobs", "3"]) == 0
    text = capsys.readouterr().out
    assert "Its engine is ready: tiny" in text
    assert "onegated --config onegate.toml &" in text
    assert daemon.stopped
    assert run(["demo"]) == 0
    text = capsys.readouterr().out
    assert "onegated &" in text
    assert "onegate.toml" not in text


def test_a_server_that_runs_here_is_shown_by_its_address(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    seen: list[str] = []
    played(monkeypatch, FakeDaemon())
    monkeypatch.setattr(verb, "PrivateDaemon", lambda text: seen.append(text) or FakeDaemon())
    monkeypatch.setattr(verb, "look", lambda socket, model: Look("llama3.2"))
    url = "http://127.0.0.1:9"
    assert run(["demo", "--engine", "ollama", "--model", "llama3.2", "--base-url", url]) == 0
    engine = check(seen[0]).engine
    assert (engine.ollama.base_url, engine.ollama.models[0].model) == (url, "llama3.2")
    # With that a daemon of one's own is another one's, too.
    said = capsys.readouterr().out.partition("With this in onegate.toml:\n\n")[2]
    shown, _, commands = said.partition("\n  ")
    assert check(shown).engine == engine
    assert "onegated --config onegate.toml &" in commands


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "ollama"], "name at least one"),
        (["--engine", "openai", "--base-url", "ftp://x"], "expected http://HOST:PORT"),
        (["--base-url", "http://127.0.0.1:9"], "--base-url is a server's"),
    ],
)
def test_an_engine_that_cannot_be_meant_is_64(capsys: Any, arguments: list[str], said: str) -> None:
    assert run(["demo", *arguments]) == 64
    assert said in capsys.readouterr().err


def test_a_daemon_that_does_not_start_is_69(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    daemon = FakeDaemon(DaemonEnded("the daemon ended with exit code 78: engine.model: no"))
    played(monkeypatch, daemon)
    monkeypatch.setattr(verb, "look", lambda socket, model: Look(None, "nobody"))
    assert run(["demo"]) == 69
    assert "engine.model: no" in capsys.readouterr().err
    assert daemon.stopped


def test_the_next_commands_can_be_typed_from_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verb.shutil, "which", lambda name: f"/bin/{name}")
    assert next_commands("")[0][0] == "onegated &"
    monkeypatch.setattr(verb.shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv/bin/python"))
    monkeypatch.chdir(tmp_path)
    assert next_commands("")[1][0] == ".venv/bin/onegate wait-ready"
    monkeypatch.setattr(sys, "executable", "/opt/onegate/bin/python")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert next_commands("")[1][0] == "/opt/onegate/bin/onegate wait-ready"
