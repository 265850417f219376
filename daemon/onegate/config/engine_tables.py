"""The tables of a configuration that name its engine, as text: for install.sh and demonstrations.

`python -m onegate.config.engine_tables TEMPLATE --engine KIND …` prints the installed file.
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from onegate.config.document import check
from onegate.config.model import ConfigError

_EXIT_CONFIG = 78


@dataclass(frozen=True)
class EngineChoice:
    """An engine as somebody chooses it on a command line; what is empty keeps its default.

    `models` are a server's, by its names for them; elsewhere one, the model itself. `python` is the
    interpreter of the engine's own environment.
    """

    kind: str
    models: tuple[str, ...] = ()
    base_url: str | None = None
    python: str | None = None


def engine_text(choice: EngineChoice) -> str:
    """All that a configuration needs of it."""
    own = server_tables(choice)
    return f"[engine]\n{engine_keys(choice)}" + (f"\n{own}" if own else "")


def engine_keys(choice: EngineChoice) -> str:
    """Its lines of `[engine]`."""
    lines = [f"kind = {_string(choice.kind)}"]
    if choice.kind not in _SERVERS:
        lines += [f"model = {_string(model)}" for model in choice.models]
    if choice.python is not None:
        lines.append(f"python = {_string(choice.python)}")
    return "\n".join(lines) + "\n"


def server_tables(choice: EngineChoice) -> str:
    """Its own tables below `[engine]`, for a server of somebody else's; else nothing."""
    if choice.kind not in _SERVERS:
        return ""
    server = _SERVERS[choice.kind]
    text = f"[engine.{choice.kind}]\n"
    if choice.base_url is not None:
        text += f"base_url = {_string(choice.base_url)}\n"
    text += server.hints
    for model in choice.models:
        array = f"[[engine.{choice.kind}.{server.models}]]"
        text += f"\n{array}\nmodel = {_string(model)}\n{server.hints_of_a_model}"
    return text


@dataclass(frozen=True)
class _Server:
    """The array of its models, and lines that are there to be uncommented."""

    models: str
    hints: str
    hints_of_a_model: str = ""


_BOUNDARY = """\
# boundary = "local"               # neither a proxy nor a tunnel listens there
"""
_SERVERS = {
    "ollama": _Server(
        models="models",
        hints=_BOUNDARY,
        hints_of_a_model="""\
# context_tok = 4096               # Ollama's num_ctx, for each seat
# max_seqs = 1                     # seats: its OLLAMA_NUM_PARALLEL
""",
    ),
    "openai": _Server(
        models="pools",
        hints="""\
# max_seqs = 4                     # requests that it was started to run at once
# api_key_file = "engine-key"      # LoadCredential=engine-key:FILE of the service
"""
        + _BOUNDARY,
    ),
}


def installed(template: str, choice: EngineChoice) -> str:
    """The installed file, from the one that is shipped. Raises ConfigError for what is no good."""
    lines = []
    for line in template.splitlines(keepends=True):
        if line.startswith("kind = "):
            line = engine_keys(choice)
        elif line.startswith(("# model = ", "# device = ")) and choice != EngineChoice("openvino"):
            continue  # they are the embedded engine's
        elif line == "[gate]\n" and choice.kind in _SERVERS:
            lines.append(server_tables(choice) + "\n")
        lines.append(line)
    text = "".join(lines)
    check(text)
    return text


def _string(value: str) -> str:
    """A basic string of TOML, which escapes what JSON escapes."""
    return json.dumps(value, ensure_ascii=False)


def main(arguments: list[str]) -> int:
    """Print the file; exit code 78, and a sentence for each mistake, for one that is no good."""
    parser = argparse.ArgumentParser(prog="onegate.config.engine_tables")
    parser.add_argument("template", type=Path)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--model", action="append", default=[], dest="models")
    parser.add_argument("--base-url")
    parser.add_argument("--python")
    options = parser.parse_args(arguments)
    choice = EngineChoice(options.engine, tuple(options.models), options.base_url, options.python)
    try:
        text = installed(options.template.read_text(encoding="utf-8"), choice)
    except ConfigError as error:
        for problem in error.errors:
            sys.stderr.write(f"{problem}\n")
        return _EXIT_CONFIG
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
