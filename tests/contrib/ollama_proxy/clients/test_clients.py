"""The published clients, unchanged, against the proxy: what they ask is answered as they expect."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest
from tests.contract import standin
from tests.contrib.ollama_proxy.rig import Rig, proxied
from tests.contrib.ollama_proxy.stand_in import in_a_thread

from onegate import Client
from onegate.clock import wall_ms

HERE = Path(__file__).parent
# Below what pytest gives a test, so that the test says what hung.
WITHIN_S = 150

# One seat: what a client leaves running hangs the next. No class is lowered for what one program
# does in a minute.
DIRECTED = """
[engine]
kind = "openai"
[engine.openai]
base_url = "{url}"
flavour = "vllm"
max_seqs = 1
boundary = "local"
[[engine.openai.pools]]
model = "stand-in"
tools = true
embeddings = true
"""
EMBEDDED = '[engine]\nkind = "openvino"\n'
CLASSES = "".join(
    f'[[class]]\nname = "{name}"\nbehaviour_live = "none"\nbehaviour_starts_per_min = "none"\n'
    for name in ("interactive", "loop", "batch")
)
MANAGEMENT = "[management]\neveryone = true\n"


def cases(program: str, *, without: str = "") -> set[str]:
    """The names of a program's cases, but for those with one of these marks."""
    text = (HERE / program).read_text(encoding="utf-8")
    if program.endswith(".py"):
        found = re.findall(r'^@case\((?:"(.)")?\)\ndef (\w+)', text, re.MULTILINE)
    else:
        found = [
            (mark, name)
            for name, mark in re.findall(r'^  async "?(\w+)([+*]?)"?\(\) \{$', text, re.MULTILINE)
        ]
    return {name for mark, name in found if not mark or mark not in without}


def ran(rig: Rig, *command: object) -> set[str]:
    """The cases that went well; all have to."""
    words = [str(part) for part in command]
    with subprocess.Popen(words, stdout=PIPE, stderr=STDOUT, text=True) as program:
        hangs = threading.Timer(WITHIN_S, program.kill)
        hangs.start()
        said = program.communicate()[0]
        hangs.cancel()
    if program.returncode != 0:
        sys.stdout.write(f"{rig.log}\n{rig.daemon.log}")
        pytest.fail(f"{said}\nit ended with {program.returncode}", pytrace=False)
    return set(re.findall(r"^ok +(\w+)[+*]?$", said, re.MULTILINE))


def close_batch(rig: Rig) -> None:
    with Client(rig.daemon.socket) as admin:
        admin.pause("batch", until=wall_ms() / 1000 + 3600)


@pytest.fixture(scope="module")
def directed(tmp_path_factory, timeout_factor) -> Iterator[Rig]:
    """Before an engine that does as its prompts say, with a stand-in in Ollama's place for what is
    carried there."""
    engine = standin.StandIn(flavour="vllm", model="stand-in", width=1)
    directory = tmp_path_factory.mktemp("directed")
    with (
        standin.in_a_thread(engine),
        in_a_thread(hosts={"stand-in:latest": ""}) as upstream,
        proxied(
            directory,
            DIRECTED.format(url=engine.url) + CLASSES,
            60 * timeout_factor,
            upstream=upstream.url,
            more=MANAGEMENT,
        ) as rig,
    ):
        close_batch(rig)
        yield rig


@pytest.fixture(scope="module")
def embedded(tmp_path_factory, timeout_factor) -> Iterator[Rig]:
    """Before the embedded engine, and no Ollama anywhere."""
    directory = tmp_path_factory.mktemp("embedded")
    with proxied(directory, EMBEDDED + CLASSES, 120 * timeout_factor) as rig:
        close_batch(rig)
        yield rig


def test_python_libraries(directed, client_python):
    passed = ran(directed, client_python, HERE / "programs.py", directed.url, "stand-in")
    assert passed == cases("programs.py")
    assert len(passed) > 30


def test_javascript_libraries(directed, client_node):
    passed = ran(directed, "node", client_node / "programs.mjs", directed.url, "stand-in")
    assert passed == cases("programs.mjs")
    assert len(passed) > 15


@pytest.mark.alone("model")
def test_python_libraries_before_a_real_model(embedded, client_python):
    wanted = cases("programs.py", without="+*")
    model = "smollm2-135m-instruct"
    passed = ran(embedded, client_python, HERE / "programs.py", embedded.url, model, *wanted)
    assert passed == wanted


@pytest.mark.alone("model")
def test_javascript_libraries_before_a_real_model(embedded, client_node):
    wanted = cases("programs.mjs", without="+*")
    model = "smollm2-135m-instruct"
    passed = ran(embedded, "node", client_node / "programs.mjs", embedded.url, model, *wanted)
    assert passed == wanted
