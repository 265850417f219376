"""What keeps TensorRT-LLM from starting: one sentence each, with the fix, where people look."""

import re
import shlex
import sys
from types import SimpleNamespace

import pytest
from tests.contract.trtllm import model_folder, stand_in, trtllm_config

from onegate.cli.checkup import Verdict
from onegate.cli.checkup_daemon import engine as doctor_on_engine
from onegate.engines.base import PoolState
from onegate.protocol.status import PoolStatus

pytestmark = pytest.mark.usefixtures("strict_trtllm")


def check_told(pool, sentence: str) -> None:
    """The sentence is one line, and `onegate doctor` shows all of it."""
    assert len(pool.error.splitlines()) == 1
    assert re.search(sentence, pool.error), pool.error
    told = PoolStatus(
        model=pool.model,
        state=pool.state.value,
        seats=pool.capacity.max_seqs,
        seats_used=0,
        seats_quarantined=0,
        restarts=0,
        error=pool.error,
    )
    status = SimpleNamespace(pools=[told], notices=[])
    (check,) = doctor_on_engine(SimpleNamespace(status=status, journal="the log"))
    assert check.verdict is Verdict.FAIL
    assert pool.error in check.sentence


ERRORS = {
    "there is no package": ({"without": "tensorrt_llm"}, "not installed.*engine.python"),
    "wrong CUDA": (
        {"import_error": "libcudart.so.13: CUDA driver version is insufficient"},
        "NVIDIA driver do not fit.*driver 580.65, CUDA up to 13.0",
    ),
    "no driver": (
        {"gpu": "none", "import_error": "libcuda.so.1: cannot open shared object file"},
        "NVIDIA driver do not fit.*nvidia-ml-py gets no answer",
    ),
    "no GPU": (
        {"gpu": "none", "load_error": "No CUDA GPUs are available"},
        "NVIDIA driver do not fit.*nvidia-ml-py gets no answer.*open the GPU",
    ),
    "no toolkit": (
        {"load_error": "CUDA_HOME environment variable is not set."},
        "install the CUDA toolkit.*set CUDA_HOME",
    ),
    "no MPI": ({"import_error": "libmpi.so.40: cannot open"}, "apt install libopenmpi-dev"),
    "out of memory": (
        {"load_error": "CUDA out of memory. Tried to allocate 2.00 GiB"},
        r"not enough GPU memory.*20.0 of 24.0 GiB free.*process 4321.*kv_share",
    ),
    "no room for one request": (
        {"load_error": "Impossible to fit in any sequence in kvCache"},
        r"not enough GPU memory.*engine\.context_tok",
    ),
    "a worker that dies": ({"dies": "while it loads"}, "died while it loaded.*main memory"),
    "a full disk": (
        {"load_error": "[Errno 28] No space left on device"},
        "a disk is full.*/dev/shm",
    ),
    "no code for this GPU": (
        {"load_error": "CUDA error: no kernel image is available for execution on the device"},
        r"no code for this GPU.*Stand-In 24, compute capability 8.9",
    ),
    "compiled for another GPU": (
        {"load_error": "The engine plan file is generated on an incompatible device"},
        "compiled for another GPU or another release",
    ),
    "too few GPUs": (
        {"load_error": "Only 1 GPUs are available, but 2 are required."},
        "there are 1 GPUs.*tensor_parallel",
    ),
    "a name that the release does not know": (
        {"load_error": "LLM got invalid argument: max_batch_size"},
        "does not take max_batch_size",
    ),
    "an old release": ({"version": "0.21.0"}, "0.21.0 is too old: install 1.2.1"),
    "nothing generated": ({"no_token": True}, "loaded and does not generate"),
    "a load without end": ({"load_s": 60}, "within 2 s.*load_timeout_s"),
}


@pytest.mark.parametrize("options", ERRORS.values(), ids=ERRORS)
async def test_what_keeps_it_from_loading_is_one_sentence_with_the_fix(new_box, tmp_path, options):
    given, sentence = options
    python = stand_in(tmp_path, **given).python
    box = new_box(
        trtllm_config(
            python,
            model_folder(tmp_path),
            own={"load_timeout_s": 2.0},
            restart_backoff_ms=60_000,
        )
    )
    await box.start()
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    check_told(box.pool, sentence)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("absent", "there is no model at .*engine.model"),
        ("rank0.engine", "compiled for one GPU.*engine.model"),
        ("config.json", "no config.json with weights"),
        ("adapter_config.json", "LoRA adapter.*merge"),
        ("tokenizer.json", "no tokenizer that can be read"),
    ],
)
async def test_a_folder_that_cannot_be_served(new_box, tmp_path, name, sentence):
    folder = model_folder(tmp_path)
    if name == "absent":
        folder = tmp_path / name
    elif name == "adapter_config.json":
        (folder / "config.json").rename(folder / name)
    elif (folder / name).exists():
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(b"plan")
    box = new_box(trtllm_config(stand_in(tmp_path).python, folder, restart_backoff_ms=60_000))
    await box.start()
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    check_told(box.pool, sentence)


INTERPRETERS = {
    "without onegate": (
        f'exec {shlex.quote(sys.executable)} -S "$@"',
        r"onegate is not installed for .*/python \(engine\.python\): install there the version",
    ),
    "without msgspec": (
        "echo \"ModuleNotFoundError: No module named 'msgspec'\" >&2; exit 1",
        r"msgspec is not installed for .*/python",
    ),
    "too old": (
        'echo "Try \\`python -h\' for more information." >&2; exit 2',
        r"/python \(engine\.python\) is older than Python 3\.11",
    ),
}


@pytest.mark.parametrize(("script", "sentence"), INTERPRETERS.values(), ids=INTERPRETERS)
async def test_an_interpreter_that_cannot_run_a_host(new_box, tmp_path, script, sentence):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    python.chmod(0o755)
    box = new_box(trtllm_config(str(python), model_folder(tmp_path), restart_backoff_ms=60_000))
    await box.start()
    await box.until(lambda: box.pool.state is PoolState.FAILED)
    check_told(box.pool, sentence)


async def test_another_release_is_served_and_said(serve):
    box = await serve(version="1.3.0rc9", priority=True)
    assert box.pool.identity.engine_version == "1.3.0rc9"
    said = [line for line in box.log if "not the release that onegate was written for" in line]
    assert len(said) == 1


async def test_the_release_that_it_was_written_for_needs_no_word(serve):
    box = await serve()
    assert [line for line in box.log if "was written for" in line] == []
