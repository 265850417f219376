"""install.sh up to the point where it would download: what it says, and with which exit code.

Each run works on a copy that has the scripts alone, so that nothing can touch the real .venv.
What it does to a system is in tests/systemd.
"""

import os
import pty
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPTS = ("install.sh", "systemd/install.bash")

Run = Callable[..., subprocess.CompletedProcess[str]]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as that")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    place = tmp_path / "check out"
    place.mkdir()
    for script in SCRIPTS:
        (place / script).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / script, place / script)
    return place


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    """A folder at the head of PATH, for commands that play a part of the machine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    command(folder, "nvidia-smi", "exit 9")
    command(folder, "df", "echo; echo / 1 1 9999999 1 /")
    return folder


def command(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def run(checkout: Path, commands: Path) -> Run:
    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        inherited = {k: v for k, v in os.environ.items() if k != "CI"}
        path = {"PATH": f"{commands}:{os.environ['PATH']}"}
        return subprocess.run(
            [checkout / "install.sh", *arguments],
            env=inherited | path | {"ONEGATE_PYTHON": "/nonexistent"} | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    sentence = done.stderr.removeprefix("install.sh: ")
    assert sentence.count("\n") == 1, done.stderr
    return sentence


def test_help_shows_every_verb(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    for verb in ("sudo ./install.sh", "uninstall", "./install.sh try", "./install.sh test"):
        assert verb in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["try", "extra"],
        ["--frobnicate"],
        ["try", "--engine"],
        ["try", "--engine", "abacus"],
        ["try", "--engine="],
        ["test", "unit", "abacus"],
        ["--engine", "abacus"],
        ["--engine=openvino", "extra"],
        ["uninstall", "--everything"],
        ["uninstall", "--purge", "extra"],
    ],
)
def test_misuse_is_exit_64(run: Run, checkout: Path, arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 64
    one_sentence(done)
    assert sorted(entry.name for entry in checkout.iterdir()) == ["install.sh", "systemd"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "m"], "Say --engine NAME too"),
        (["--engine=ollama", "--model"], "--model needs a value"),
        (["--engine=ollama", "--base-url="], "--base-url needs a value"),
        (["--engine=openai"], "say where the server is: --base-url http://127.0.0.1:8000/v1"),
        (["--engine=openvino", "--base-url=http://127.0.0.1"], "is a server's"),
        (["--engine=openvino", "--model=/a", "--model=/b"], "say --model once"),
        (["--engine=scripted", "--model=a"], "has no model to choose"),
        (["--engine=ollama", "--python=/p"], "--python is for tensorrt-llm"),
        (["--engine=tensorrt-llm"], "needs --model FOLDER and --python INTERPRETER"),
        (["--engine=tensorrt-llm", "--model=/m"], "needs --model FOLDER and --python INTERPRETER"),
        (["--engine=tensorrt-llm", "--model=m", "--python=/p"], "by its whole path"),
        (["--engine=tensorrt-llm", "--model=/m", "--python=/a b"], "without blanks"),
    ],
)
@pytest.mark.parametrize("verb", [[], ["try"]])
def test_what_an_engine_cannot_do_with_or_without(
    run: Run, verb: list[str], arguments: list[str], said: str
) -> None:
    done = run(*verb, *arguments)
    assert done.returncode == 64
    assert said in one_sentence(done)


def test_tensorrt_llm_is_installed_and_not_tried(run: Run) -> None:
    done = run("try", "--engine=tensorrt-llm", "--model=/m", "--python=/p")
    assert done.returncode == 64
    assert "sudo ./install.sh --engine tensorrt-llm" in one_sentence(done)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--engine=ollama"],
        ["--engine", "ollama", "--model", "a", "--model=b", "--base-url=http://127.0.0.1:1"],
        ["--engine=openai", "--base-url=http://127.0.0.1:1/v1"],
        ["--engine=openvino", "--model=/srv/m.gguf"],
    ],
)
def test_what_it_can_goes_on(run: Run, arguments: list[str]) -> None:
    done = run("try", *arguments)
    assert done.returncode == 69
    assert "/nonexistent is no Python" in one_sentence(done), "to the Python that is not there"


@pytest.mark.parametrize("verb", ["try", "test"])
def test_a_python_that_is_not_there(run: Run, verb: str) -> None:
    done = run(verb)
    assert done.returncode == 69
    assert "ONEGATE_PYTHON=/nonexistent is no Python 3.11 to 3.14" in one_sentence(done)


def test_a_python_that_is_too_old(run: Run, commands: Path) -> None:
    old = command(commands, "old-python", "echo 3.9 is too old")
    done = run("try", ONEGATE_PYTHON=str(old))
    assert done.returncode == 69
    assert "3.9 is too old" in one_sentence(done)


def test_without_a_choice_every_python_is_looked_at(run: Run, commands: Path) -> None:
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        command(commands, name, "echo 3.9 is too old")
    done = run("try", ONEGATE_PYTHON="")
    assert done.returncode == 69
    assert "python3.11 3.9 is too old" in one_sentence(done)
    assert "sudo apt install python3 python3-venv" in done.stderr


def test_the_python_of_a_venv_that_is_made_anew_is_none(
    run: Run, checkout: Path, commands: Path
) -> None:
    # Somebody has activated it; its folder is removed before the new one is made.
    own = checkout / ".venv/bin"
    own.mkdir(parents=True)
    command(own, "python3", "echo 3.12")
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        command(commands, name, "echo 3.9 is too old")
    for path in (f"{own}:{commands}", f"{commands}:{own}"):
        done = run("try", ONEGATE_PYTHON="", PATH=f"{path}:{os.environ['PATH']}")
        assert done.returncode == 69
        assert "python3 3.9 is too old" in one_sentence(done)
        assert (own / "python3").exists()


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_left_of_a_venv_is_not_installed_into(
    run: Run, checkout: Path, commands: Path, whole: bool
) -> None:
    # Its python would be the system's, and pip's packages would go there.
    own = checkout / ".venv/bin"
    own.mkdir(parents=True)
    if whole:
        (checkout / ".venv/pyvenv.cfg").touch()
    command(
        own, "python", 'echo "$@" >>"$(dirname "$0")/asked"; case "$*" in *install*) exit 1; esac'
    )
    for name in ("python3", "python3.14", "python3.13", "python3.12", "python3.11"):
        command(commands, name, "echo 3.9 is too old")
    done = run("try", ONEGATE_PYTHON="")
    asked = own / "asked"
    assert (asked.exists() and " install " in asked.read_text()) is whole, done.stderr


def test_a_python_without_its_venv_module(run: Run, commands: Path) -> None:
    bare = command(commands, "bare-python", '[ "$1" = -c ] && exit 1; echo 3.12')
    done = run("try", ONEGATE_PYTHON=str(bare))
    assert done.returncode == 69
    assert "sudo apt install python3-venv, or python3.12-venv" in one_sentence(done)


def test_too_little_disk(run: Run, commands: Path) -> None:
    command(commands, "df", "echo; echo / 1 1 1199 1 /")
    done = run("try")
    assert done.returncode == 69
    assert "1199 MB of free disk and 1200 MB are needed" in one_sentence(done)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("uname", '[ "$1" = -s ] && echo Darwin || echo x86_64', "Linux only"),
        ("uname", '[ "$1" = -s ] && echo Linux || echo riscv64', "x86_64 and aarch64"),
        ("getconf", "exit 1", "another C library"),
        ("getconf", "echo glibc 2.27", "glibc 2.28 or newer, and this system has glibc 2.27"),
    ],
)
def test_another_kind_of_machine(run: Run, commands: Path, name: str, body: str, said: str) -> None:
    command(commands, name, body)
    done = run("try")
    assert done.returncode == 69
    assert said in one_sentence(done)


def test_a_gpu_box_without_a_terminal_is_told(run: Run, commands: Path) -> None:
    command(commands, "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB'")
    done = run("try")
    assert "Found: an NVIDIA GPU (NVIDIA H200, 143771 MiB)" in done.stdout
    assert "nobody is there to ask, so the demonstration goes on with openvino" in done.stdout
    assert "--engine NAME" in done.stdout
    assert done.returncode == 69, "it went on, to the Python that is not there"


def test_an_ollama_is_told(run: Run, commands: Path) -> None:
    command(commands, "ollama", "exit 1")
    assert "Found: an Ollama" in run("try").stdout


def test_a_chosen_engine_asks_and_tells_nothing(run: Run, commands: Path) -> None:
    command(commands, "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB'")
    assert run("try", "--engine", "scripted").stdout == ""


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("quit", 0, ""),
        ("abacus\nq", 0, ""),
        ("", 69, "ONEGATE_PYTHON"),
        ("ollama", 69, "ONEGATE_PYTHON"),
        ("openai\n", 69, "Its address? [http://127.0.0.1:8000/v1]"),
        ("tensorrt-llm\nq", 0, ""),  # which is not to be tried
    ],
)
def test_a_person_is_asked(
    checkout: Path, commands: Path, answer: str, code: int, said: str
) -> None:
    command(commands, "nvidia-smi", "echo 'NVIDIA H200, 143771 MiB'")
    environment = os.environ | {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "ONEGATE_PYTHON": "/nonexistent",
    }
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "r+b", buffering=0) as terminal:
        asked = subprocess.Popen(
            [checkout / "install.sh", "try"],
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        terminal.write(answer.encode() + b"\n")
        assert asked.wait(timeout=30) == code
        shown = terminal.read(65536).decode()
        asked_for = "openvino, scripted, ollama, openai, or quit? [openvino]"
        assert f"What is to answer behind the gate: {asked_for}" in shown
        assert said in shown


def as_a_plain_user(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Root may do anything, so the question is put to somebody else, in a checkout of root's that
    everybody may look into."""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        os.chmod(place, 0o755)
        for script in SCRIPTS:
            Path(place, script).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / script, Path(place, script))
        return subprocess.run(
            ["setpriv", "--reuid=65534", "--clear-groups", f"{place}/install.sh", *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "sudo ./install.sh\n"),
        (["--engine", "scripted"], "sudo ./install.sh --engine scripted\n"),
        (["uninstall", "--purge"], "sudo ./install.sh uninstall --purge\n"),
    ],
)
def test_a_service_is_roots(run: Run, arguments: list[str], said: str) -> None:
    done = as_a_plain_user(*arguments) if os.geteuid() == 0 else run(*arguments)
    assert done.returncode == 77
    assert one_sentence(done).endswith(said)


@needs_root
@pytest.mark.parametrize("verb", [[], ["uninstall"]])
def test_a_machine_without_systemd(run: Run, commands: Path, verb: list[str]) -> None:
    for name in ("bash", "dirname", "id", "env"):
        (commands / name).symlink_to(shutil.which(name) or "")
    done = run(*verb, PATH=str(commands))
    assert done.returncode == 69
    assert "there is no systemctl here" in one_sentence(done)


def test_the_tiers_of_the_help_are_those_there_are(run: Run) -> None:
    script = (ROOT / "install.sh").read_text(encoding="utf-8")
    (tiers,) = re.findall(r'^TIERS="(.*)"$', script, re.MULTILINE)
    (engines,) = re.findall(r'^ENGINES="(.*)"$', script, re.MULTILINE)
    told = run("--help").stdout
    assert f"TIER is one of {tiers};" in " ".join(told.split())
    assert all(f"--engine {engine} " in told for engine in engines.split())


@needs_root
def test_a_systemd_that_is_too_old(run: Run, commands: Path) -> None:
    command(commands, "systemctl", "echo 'systemd 247 (247.3-7+deb11u4)'")
    done = run()
    assert done.returncode == 69
    assert "systemd 247 is too old, 248 is needed" in one_sentence(done)


@needs_root
def test_a_python_in_a_home_is_none_for_services(run: Run, commands: Path) -> None:
    answers = 'case "$1" in -) echo 3.12 ;; *) echo /home/ann/bin/python /home/ann ;; esac'
    done = run(ONEGATE_PYTHON=str(command(commands, "her-python", answers)))
    assert done.returncode == 69
    assert "lies in a home directory, which services can't see" in one_sentence(done)


def test_a_folder_of_another_user_is_named(run: Run, checkout: Path) -> None:
    if os.geteuid() == 0:
        done = as_a_plain_user("try")
    else:
        checkout.chmod(0o555)
        done = run("try")
        checkout.chmod(0o755)
    assert done.returncode == 69
    assert "can't be written by" in one_sentence(done)


def test_the_scripts_can_be_run() -> None:
    for script in ("install.sh", ".ci/run"):
        assert os.access(ROOT / script, os.X_OK), script
