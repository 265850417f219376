"""The command line, and what the exit codes mean."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from onegate import __version__
from onegate.engines.plan import EngineUnprepared
from onegate.server import main as main_module
from onegate.server.listener import Inherited, ListenError
from onegate.server.main import main, parser

# The daemon's signals are for its whole process, and this is not its.
pytestmark = pytest.mark.usefixtures("own_signals")


class Listener:
    closed = 0
    turned_away = 0
    inherited = False

    def close(self) -> None:
        self.closed += 1

    def turn_away(self) -> None:
        self.turned_away += 1


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Listener:
    """Instead of a socket; the environment holds nothing of systemd's."""
    made = Listener()
    for name in ("LISTEN_PID", "LISTEN_FDS", "NOTIFY_SOCKET", "ONEGATE_CONFIG", "ONEGATE_SOCKET"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(main_module, "bind", lambda path, **options: made)
    return made


class App:
    """Runs as it is told to."""

    result: Any = 0
    config: Any = None
    parts: dict[str, Any]

    def __init__(self, config: Any, **parts: Any) -> None:
        type(self).config = config
        type(self).parts = parts
        if isinstance(self.result, BaseException):
            raise self.result

    async def run(self) -> int:
        code: int = self.result
        return code


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> type[App]:
    monkeypatch.setattr(main_module, "App", App)
    monkeypatch.setattr(App, "result", 0)
    return App


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["onegated", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_the_options() -> None:
    options = parser().parse_args(["--config", "a.toml", "--socket", "/run/a.sock"])
    assert (options.config, options.socket) == ("a.toml", "/run/a.sock")
    assert "example: onegated" in parser().format_help()


def test_help_and_version(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(monkeypatch, "--help") == 0
    assert exit_code(monkeypatch, "--version") == 0
    assert __version__ in capfd.readouterr().out


def test_a_reload_that_comes_early_does_not_end_it(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, app: type[App]
) -> None:
    assert exit_code(monkeypatch, "--socket", "/run/a.sock") == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(monkeypatch, "--nonsense") == 64


@pytest.mark.parametrize("code", [0, 70])
def test_the_code_is_that_of_the_daemon(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, app: type[App], code: int
) -> None:
    monkeypatch.setattr(app, "result", code)
    assert exit_code(monkeypatch, "--socket", "/run/a.sock") == code
    assert listener.closed == 0  # the daemon does that itself


def test_the_file_is_read(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, app: type[App], tmp_path: Path
) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[gate]\nmax_in_flight = 5\n")
    assert exit_code(monkeypatch, "--config", str(file)) == 0
    assert app.config.gate.max_in_flight == 5


def test_a_bad_configuration(
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.toml"
    file.write_text("[gate]\nmax_in_flight = 0\nnonsense = 1\n")
    assert exit_code(monkeypatch, "--config", str(file)) == 78
    errors = capfd.readouterr().err
    assert "gate.max_in_flight" in errors
    assert "gate.nonsense" in errors


def test_an_engine_that_is_not_built(
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    app: type[App],
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(app, "result", EngineUnprepared("set engine.kind"))
    assert exit_code(monkeypatch) == 78
    assert "set engine.kind" in capfd.readouterr().err
    assert listener.closed == 1
    assert listener.turned_away == 1


def test_who_waits_at_a_daemon_that_cannot_start_is_turned_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    handed_over = Listener()
    monkeypatch.setattr(main_module, "take_inherited", lambda environ, pid: Inherited({}))
    monkeypatch.setattr(main_module, "adopt", lambda inherited: handed_over)
    file = tmp_path / "a.toml"
    file.write_text("nonsense = 1\n")
    assert exit_code(monkeypatch, "--config", str(file)) == 78
    assert handed_over.turned_away == 1


def test_a_bug_is_told_and_exits_as_one(
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    app: type[App],
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(app, "result", AssertionError("the ledger is not empty"))
    assert exit_code(monkeypatch) == 70
    told = capfd.readouterr().err
    assert 'bug detail="AssertionError: the ledger is not empty"' in told
    assert "Traceback" in told


def test_nothing_to_listen_on(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str, **options: Any) -> None:
        raise ListenError(f"another daemon serves {path}")

    monkeypatch.setattr(main_module, "bind", refuse)
    assert exit_code(monkeypatch, "--socket", "/run/a.sock") == 69
    assert "another daemon serves /run/a.sock" in capfd.readouterr().err


@pytest.mark.parametrize("said", [False, True])
def test_a_new_account_has_no_cache_folder_yet(
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    app: type[App],
    tmp_path: Path,
    said: bool,
) -> None:
    monkeypatch.setattr(main_module.os, "getuid", lambda: 1000)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_RUNTIME_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    places = []
    monkeypatch.setattr(main_module, "bind", lambda path, **options: places.append(path))
    place = tmp_path / ".cache/onegate/onegate.sock"
    exit_code(monkeypatch, *(["--socket", str(place)] if said else []))
    assert places == [str(place)]
    # Of a path that somebody wrote nothing is made but its own folder, and that by bind.
    assert (tmp_path / ".cache").is_dir() is not said


def test_a_socket_that_was_handed_over_comes_first(
    monkeypatch: pytest.MonkeyPatch, listener: Listener, app: type[App]
) -> None:
    adopted: list[Inherited] = []

    def adopt(inherited: Inherited) -> Listener:
        adopted.append(inherited)
        return listener

    def bind(path: str, **options: Any) -> None:
        raise AssertionError("there was a socket already")

    monkeypatch.setattr(main_module, "bind", bind)
    monkeypatch.setattr(main_module, "adopt", adopt)
    given = Inherited({"onegate.socket": 3})
    monkeypatch.setattr(main_module, "take_inherited", lambda environ, pid: given)
    assert exit_code(monkeypatch, "--socket", "/run/a.sock") == 0
    assert adopted == [given]


@pytest.mark.parametrize(
    ("uid", "service", "own"), [(1000, False, True), (1000, True, False), (0, False, False)]
)
def test_whose_daemon_it_is(
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    app: type[App],
    uid: int,
    service: bool,
    own: bool,
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: uid)
    monkeypatch.delenv("INVOCATION_ID", raising=False)
    if service:
        monkeypatch.setenv("INVOCATION_ID", "x")
    assert exit_code(monkeypatch, "--socket", "/run/a.sock") == 0
    grants = [grant for grant in app.config.shipped_grants if grant.uid == 1000]
    assert bool(grants) is own


@pytest.mark.parametrize(
    ("arguments", "inherited", "place"),
    [
        ((), False, "/home/a/.local/state/onegate"),
        (("--socket", "/run/a.sock"), False, None),
        ((), True, None),
    ],
)
def test_where_what_was_used_is_kept(
    monkeypatch: pytest.MonkeyPatch,
    listener: Listener,
    app: type[App],
    arguments: tuple[str, ...],
    inherited: bool,
    place: str | None,
) -> None:
    monkeypatch.setattr(Listener, "inherited", inherited)
    monkeypatch.setenv("HOME", "/home/a")
    for name in ("XDG_STATE_HOME", "STATE_DIRECTORY"):
        monkeypatch.delenv(name, raising=False)
    assert exit_code(monkeypatch, *arguments) == 0
    assert app.parts["usage_directory"] == place
