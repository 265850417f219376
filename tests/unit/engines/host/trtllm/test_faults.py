import re

import pytest

from onegate.engines.host.trtllm.faults import is_request_error, load_words, words_of
from onegate.engines.host.trtllm.gpu import GpuFacts

GPU = GpuFacts("Card", "580.65", "8.9", 13000, 24 << 30, 20 << 30, (77,))


def test_an_error_of_one_request_is_known_by_its_name(request_error):
    class Own(request_error): ...

    assert is_request_error(request_error("x"))
    assert is_request_error(Own("x"))
    assert not is_request_error(RuntimeError("RequestError"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("CUDA driver version is insufficient", "do not fit .driver 580.65, CUDA up to 13.0"),
        ("libcuda.so.1: cannot open", "install the driver that this release asks for"),
        ("no kernel image is available", "no code for this GPU .Card, compute capability 8.9"),
        ("No CUDA GPUs are available", "let the engine open the GPU"),
        ("Pre SM 80 GPUs do not support bfloat16", "no code for this GPU"),
        ("CUDA_HOME environment variable is not set", "toolkit that .* set CUDA_HOME"),
        ("libnvinfer.so.10: cannot open", "a library or a compiler of CUDA is missing"),
        ("[Errno 12] Cannot allocate memory", "not enough main memory"),
        ("[Errno 28] No space left on device", "a disk is full"),
        ("libmpi.so.40 not found", "apt install libopenmpi-dev"),
        ("surprise", "it cannot start: RuntimeError: surprise"),
    ],
)
def test_a_broken_installation(text, sentence):
    assert re.search(sentence, words_of(RuntimeError(text), what="it cannot start", gpu=GPU))


def test_without_a_driver_that_is_said():
    assert "(nvidia-ml-py gets no answer)" in words_of(OSError("libcuda.so.1"), what="x")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory", "process 77"),
        ("Executor creation failed due to insufficient GPU memory.", "20.0 of 24.0 GiB free"),
        ("The engine plan file is generated on an incompatible device", "compiled for another"),
        ("Only 1 GPUs are available, but 2 are required.", "tensor_parallel is 2"),
        ("TorchLLM got invalid argument: waiting_queue_policy", "not take waiting_queue_policy"),
        ("Impossible to fit in any sequence in kvCache", "not enough GPU memory"),
        ("Executor worker died during initialization", "died while it loaded"),
        ("No CUDA GPUs are available", "do not fit (driver 580.65"),
        ("nobody knows", "cannot be loaded: RuntimeError: Executor"),
    ],
)
def test_a_model_that_does_not_come_up(make_settings, text, part):
    """The cause is chained below an error that says nothing."""
    error = RuntimeError("Executor worker returned error")
    error.__cause__ = ValueError(text)
    words = load_words(error, make_settings(tensor_parallel=2), GPU)
    assert part in words
    assert "\n" not in words


def test_a_chain_that_bites_its_tail_and_a_very_long_text():
    one, two = RuntimeError("a"), RuntimeError("b" * 5000)
    one.__cause__, two.__context__ = two, one
    words = words_of(one, what="x")
    assert len(words) < 400
    assert words.endswith("b")
