"""Engine hosts whose TensorRT-LLM is the stand-in beside this file."""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from onegate.config import EngineConfig, TensorRtLlmConfig

STAND_IN = Path(__file__).with_name("trtllm_stand_in")


@dataclass
class StandIn:
    """An interpreter that finds the stand-in, and what was called of it."""

    python: str
    log: Path
    environ: dict[str, str]

    def calls(self, name: str) -> list[dict]:
        """Every call of this name, in order."""
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
        return [line for line in lines if line["call"] == name]


def stand_in(
    directory: Path,
    *,
    version: str = "1.2.1",
    without: str = "",
    gpu: str = "",
    interpreter: str = sys.executable,
    beside: dict[str, str] | None = None,
    **options,
) -> StandIn:
    """See trtllm_stand_in/README.md for the options. `without`: a package that is not there;
    `beside`: more of an environment, where the interpreter needs it."""
    log = directory / "calls.jsonl"
    # An interpreter of another environment has msgspec and not onegate.
    paths = [] if interpreter == sys.executable else [str(STAND_IN.parents[2] / "daemon")]
    if version != "1.2.1":
        info = directory / "other" / f"tensorrt_llm-{version}.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: tensorrt-llm\nVersion: {version}\n"
        (info / "METADATA").write_text(text, encoding="utf-8")
        paths.append(str(info.parent))
    if without != "tensorrt_llm":
        paths.append(str(STAND_IN))
    python = directory / "python"
    environ = {
        "PYTHONPATH": ":".join(paths),
        "TLLM_STAND_IN": json.dumps(options),
        "TLLM_STAND_IN_LOG": str(log),
        "TLLM_STAND_IN_GPU": gpu,
        "XDG_CACHE_HOME": str(directory / "cache"),
        **(beside or {}),
    }
    exports = "".join(f"export {k}={shlex.quote(v)}\n" for k, v in environ.items())
    python.write_text(f'#!/bin/sh\n{exports}exec {shlex.quote(interpreter)} "$@"\n')
    python.chmod(0o755)
    return StandIn(str(python), log, environ)


def model_folder(
    directory: Path,
    name: str = "fine-tune",
    weights: bytes = b"weights",
    *,
    context_tok: int = 131072,
) -> Path:
    """A folder that looks like a downloaded model."""
    folder = directory / name
    folder.mkdir()
    config = {"architectures": ["StandIn"], "max_position_embeddings": context_tok}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def trtllm_config(python: str, folder: Path, **given) -> EngineConfig:
    """A configuration for a pool of 16 seats and 8192 tokens."""
    own = given.pop("own", {})
    given.setdefault("max_step_tok", 256)
    given.setdefault("context_tok", 4096)
    given.setdefault("restart_backoff_ms", 1)
    return EngineConfig(
        kind="tensorrt-llm",
        model=str(folder),
        python=python,
        tensorrt_llm=TensorRtLlmConfig(**own),
        **given,
    )


def is_running(pid: int) -> bool:
    """Whether a process does; one that nobody has reaped does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
