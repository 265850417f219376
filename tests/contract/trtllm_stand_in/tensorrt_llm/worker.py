"""The process that stands for the one with the model: a plain one, or one that MPI has started as
it does for the package."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from tensorrt_llm._base import OPTIONS


class PlainWorker(subprocess.Popen):
    """As MPI has it: in a session of its own, and not one that ends with who started it."""

    def __init__(self):
        wait = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
        super().__init__(wait, stdin=subprocess.DEVNULL, start_new_session=True)

    def leave(self):
        """End it in order."""
        self.kill()
        self.wait()


class MpiWorker:
    """A real one, of mpi4py's pool."""

    def __init__(self):
        from mpi4py.futures import MPIPoolExecutor

        self._pool = MPIPoolExecutor(max_workers=1, path=sys.path)
        self._until = tempfile.mktemp()
        self._pool.submit(_work, self._until)
        while not (os.path.exists(self._until) and (pid := _read(self._until))):
            time.sleep(0.01)
        self.pid = int(pid)

    def poll(self):
        try:
            stat = _read(f"/proc/{self.pid}/stat")
        except OSError:
            return 0
        return 0 if stat.rpartition(")")[2].split()[0] in "ZX" else None

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def wait(self):
        while self.poll() is None:
            time.sleep(0.01)

    def leave(self):
        os.unlink(self._until)
        self._pool.shutdown(wait=True)


def start():
    return MpiWorker() if OPTIONS.get("mpi") else PlainWorker()


def _work(until):
    with open(until, "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    while os.path.exists(until):
        time.sleep(0.05)


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
