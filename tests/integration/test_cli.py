"""`onegate` as a process, against the real daemon."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from onegate import Client

ONEGATE = str(Path(sys.executable).with_name("onegate"))
LONG = ("--max-tokens", "4000", "--temperature", "0.9")

Done = subprocess.CompletedProcess[str]
Run = Callable[..., Done]


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ONEGATE_")}
    return kept | {"COLUMNS": "200"} | more


@pytest.fixture
def run(daemon: Any) -> Run:
    def run(*arguments: str, text: str | None = None) -> Done:
        return subprocess.run(
            [ONEGATE, *arguments],
            env=environment(ONEGATE_SOCKET=daemon.socket),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    return run


@pytest.fixture
def gate(daemon: Any) -> Iterator[Client]:
    with Client(daemon.socket) as gate:
        yield gate


# A pool that never stops by itself, so that what is cancelled would otherwise still run.
SLOW = """\
[engine]
kind = "scripted"
[[engine.scripted.pools]]
model = "scripted"
max_seqs = 2
a_ms = 20.0
"""


def started(daemon: Any, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """`onegate ask` of a long answer that has begun to run."""
    process = subprocess.Popen(
        [ONEGATE, "ask", "hello there friend", *arguments],
        env=environment(ONEGATE_SOCKET=daemon.socket),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )
    assert process.stdout is not None
    assert process.stdout.read(5)
    return process


def free(daemon: Any, gate: Client) -> None:
    """Until no seat is taken any more."""
    daemon.wait(lambda: gate.status().pools[0].seats_used == 0 or None)


# --- asking ---------------------------------------------------------------------------------------


def test_ask_prints_the_answer_and_nothing_else(run: Run, gate: Client) -> None:
    done = run("ask", "hello there", "--max-tokens", "8", "--temperature", "0")
    assert (done.returncode, done.stderr) == (0, "")
    turns = [{"role": "user", "content": "hello there"}]
    assert done.stdout.rstrip("\n") == gate.generate(
        messages=turns, max_tokens=8, temperature=0
    ).text.rstrip("\n")
    assert done.stdout.endswith("\n")


def test_ask_reads_standard_input(run: Run) -> None:
    first = run("ask", "hello there", "--max-tokens", "8")
    assert run("ask", "-", "--max-tokens", "8", text="hello there").stdout == first.stdout


def test_ask_json_is_one_document(run: Run) -> None:
    done = run("ask", "hello", "--max-tokens", "8", "--json", "--class", "batch")
    document = json.loads(done.stdout)
    assert (done.returncode, document["usage"]["output_tok"]) == (0, 8)


def test_a_refusal_is_a_sentence_a_document_and_a_code(run: Run) -> None:
    assert run("pause", "batch").returncode == 0
    done = run("ask", "hello", "--class", "batch", "--json")
    assert done.returncode == 75
    assert json.loads(done.stdout)["error"]["reason"] == "paused"
    assert done.stderr.count("\n") == 1
    assert run("unpause", "batch").returncode == 0
    assert run("ask", "hello", "--class", "batch", "--max-tokens", "2").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["--model", "gpt-99"], 65, "scripted"),
        (["--max-tokens", "0"], 65, "max_tokens"),
        (["--class", "royal"], 65, "royal"),
        (["--frobnicate"], 64, "frobnicate"),
    ],
)
def test_bad_requests(run: Run, arguments: list[str], code: int, word: str) -> None:
    done = run("ask", "hello", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert word in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_cancels_on_the_daemon(start_daemon: Any) -> None:
    daemon = start_daemon(SLOW)
    with Client(daemon.socket) as gate:
        process = started(daemon, *LONG)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
        assert (process.returncode, stderr) == (130, b"")
        free(daemon, gate)


def test_a_closed_pipe_ends_it_quietly_and_cancels(start_daemon: Any) -> None:
    daemon = start_daemon(SLOW)
    command = f"{shlex.quote(ONEGATE)} ask 'hello there friend' {' '.join(LONG)} | head -c 5"
    with Client(daemon.socket) as gate:
        done = subprocess.run(
            ["bash", "-c", f'{command}; echo " ${{PIPESTATUS[0]}}"'],
            env=environment(ONEGATE_SOCKET=daemon.socket),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.stdout[5:].strip() == "141"
        assert done.stderr == ""
        free(daemon, gate)


def test_a_killed_client_frees_its_seat(start_daemon: Any) -> None:
    daemon = start_daemon(SLOW)
    with Client(daemon.socket) as gate:
        process = started(daemon, *LONG)
        process.kill()
        process.communicate(timeout=30)
        free(daemon, gate)


class Person:
    """Somebody at a terminal, where `onegate` runs as its controlling process."""

    def __init__(self, daemon: Any, *arguments: str) -> None:
        self._terminal, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["setsid", "--ctty", ONEGATE, *arguments],
            env=environment(ONEGATE_SOCKET=daemon.socket, TERM="xterm"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.seen = b""

    def sees(self, pattern: bytes) -> None:
        """Read on until `pattern` has come since the last time."""
        while not (match := re.search(pattern, self.seen)):
            data = self._read()
            assert data, f"the terminal was closed after {self.seen!r}"
            self.seen += data
        self.seen = self.seen[match.end() :]

    def types(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def leaves(self) -> int:
        """The exit code, after everything was read."""
        while data := self._read():
            self.seen += data
        os.close(self._terminal)
        return self.process.wait(30)

    def _read(self) -> bytes:
        try:
            return os.read(self._terminal, 1024)
        except OSError:
            return b""  # how Linux says that the other end of a terminal is closed


def test_a_person_sees_text_on_the_terminal(daemon: Any) -> None:
    person = Person(daemon, "ask", "hello there", "--max-tokens", "8")
    assert person.leaves() == 0
    assert len(person.seen.replace(b"\r\x1b[2K", b"").split()) >= 4


def test_a_person_stops_an_answer_and_goes_on_talking(start_daemon: Any) -> None:
    daemon = start_daemon(SLOW)
    person = Person(daemon, "chat")
    person.sees(b"> ")
    person.types(b"hello there friend\n")
    person.sees(b"friend\r\n")
    person.sees(rb"\w+ \w+ ")
    person.types(b"\x03")
    person.sees(rb"\(stopped\)\r\n")
    with Client(daemon.socket) as gate:
        free(daemon, gate)
    person.sees(b"> ")
    person.types(b"and again\n")
    person.sees(b"again\r\n")
    person.sees(rb"\w+ \w+ ")
    person.sees(b"> ")
    person.types(b"\x04")
    assert person.leaves() == 0


def test_chat_reads_lines(run: Run) -> None:
    done = run("chat", "--max-tokens", "4", text="hello\nand again\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("command", "code", "sentence"),
    [
        ("ask hello --max-tokens 2 >&-", 74, "cannot write"),
        ("status --json >&-", 74, "cannot write"),
        ("status >/dev/full", 74, "No space left on device"),
        ("ask hello --max-tokens 2 --json >/dev/full", 74, "No space left on device"),
        ("--help >/dev/full", 74, "No space left on device"),
        ("metrics >/dev/null 2>&-", 0, ""),
        ("ask hello --model no 2>&-", 65, ""),
        ("ask - <&-", 64, "holds no question"),
        ("ask - </dev/null", 64, "holds no question"),
        ("ask hello --model $'a\\e[2J'", 65, "printable"),
        ("ask hello --class $'\\xff'", 65, "not UTF-8"),
        ("ask $'\\xff'", 65, "the prompt is not UTF-8"),
        ("ask - < <(printf '\\xff')", 65, "standard input is not UTF-8"),
        ("chat < <(printf '\\xff')", 65, "standard input is not UTF-8"),
    ],
)
def test_streams_and_bytes_as_a_shell_may_leave_them(
    daemon: Any, command: str, code: int, sentence: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{shlex.quote(ONEGATE)} {command}"],
        env=environment(ONEGATE_SOCKET=daemon.socket),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code
    assert sentence in done.stderr
    assert done.stderr.count("\n") == bool(sentence)


# --- looking --------------------------------------------------------------------------------------


def test_what_it_says_about_itself(run: Run) -> None:
    for verb in ("whoami", "status", "capacity"):
        human, document = run(verb), run(verb, "--json")
        assert (human.returncode, document.returncode) == (0, 0), human.stderr
        assert human.stdout.strip()
        assert isinstance(json.loads(document.stdout), dict)
        assert human.stderr == document.stderr == ""
    assert json.loads(run("status", "--json").stdout)["state"] == "serving"
    assert json.loads(run("whoami", "--json").stdout)["admin"] is True
    assert "\nonegate_" in run("metrics").stdout


def test_wait_ready(run: Run, daemon: Any, tmp_path: Path) -> None:
    assert run("wait-ready").stdout == "ready: scripted\n"
    nothing = str(tmp_path / "nothing.sock")
    done = run("wait-ready", "--timeout", "0.3", "--socket", nothing)
    assert (done.returncode, done.stdout) == (69, "")
    assert "no socket" in done.stderr


def test_no_daemon_is_69(run: Run, tmp_path: Path) -> None:
    done = run("ask", "hello", "--socket", str(tmp_path / "nothing.sock"))
    assert (done.returncode, done.stdout) == (69, "")
    assert "`onegated` starts a daemon" in done.stderr


def test_an_administrator_cancels_by_id(start_daemon: Any) -> None:
    daemon = start_daemon(SLOW)
    with Client(daemon.socket) as gate:
        process = started(daemon, *LONG)
        (request,) = gate.requests()
        done = subprocess.run(
            [ONEGATE, "cancel", request.rid],
            env=environment(ONEGATE_SOCKET=daemon.socket),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"{request.rid} is cancelled\n")
        _, stderr = process.communicate(timeout=30)
        assert process.returncode == 75
        assert b"cancelled" in stderr
        free(daemon, gate)


def test_a_narrow_locale_is_no_error(run: Run, daemon: Any) -> None:
    done = subprocess.run(
        [ONEGATE, "--help"],
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


# --- the demonstration ----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a demonstration makes its directory."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def demo(place: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ONEGATE, "demo", "--engine", "scripted", *arguments],
        env=environment(TMPDIR=str(place)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def left_behind(place: Path) -> list[str]:
    """Directories, and processes that name them."""
    found = [str(path) for path in place.iterdir()]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if os.fsencode(place) in command:
                found.append(command.replace(b"\0", b" ").decode())
    return found


def test_the_demonstration_shows_both_classes_and_leaves_nothing(place: Path) -> None:
    process = demo(place, "--jobs", "40")
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stderr) == (0, "")
    rows = [line.split() for line in stdout.splitlines()]
    interactive = next(row for row in rows if row[:1] == ["interactive"])
    batch = next(row for row in rows if row[:1] == ["batch"])
    assert (interactive[1], batch[1]) == ("1", "40")
    assert interactive[-1] == "0"
    assert "onegate wait-ready" in stdout
    assert left_behind(place) == []


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("moment", ["starting", "ready", "jobs at once"])
def test_a_demonstration_that_is_interrupted_leaves_nothing(
    place: Path, number: int, code: int, moment: str
) -> None:
    process = demo(place, "--jobs", "500")
    assert process.stdout is not None
    while moment not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (code, "")
    assert left_behind(place) == []
