"""openvino-genai behind the small pipeline that the embedded engine drives.

The only module that touches the library. Facts that shaped it, each seen with 2026.4:
`step()` holds the GIL; `encode` cuts at the model's own context length without a word; `decode`
leaves out bytes that are no whole character; ids outside the vocabulary are computed with;
a prompt that the cache cannot hold is never scheduled and never refused; `max_num_seqs` does not
bound what runs when prompts are computed in chunks; the library's random source is one for all.
"""

import importlib.metadata
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onegate.engines.host.engine import LoadFailed, Refusal
from onegate.engines.host.pipeline import Handle, PipelineFacts, ReadTokens
from onegate.engines.host.sampling import Sampling
from onegate.engines.host.settings import OpenVinoSettings

# Tokens of one KV block, by the library's own choice per device; compared with what is measured.
_BLOCK_TOK = {"CPU": 32}
_BLOCK_TOK_ELSEWHERE = 16
# A prompt of a sentence, which the library computes in another way than a full step.
_SHORT_TOK = 16
# Of one call to sendfile(2), which takes no more than 2 GiB.
_COPY_BYTES = 1 << 30
# Longer than any context that is served here, so that a silent cut of the tokenizer shows itself.
_PROBE_WORDS = 200_000
# Texts on which a tokenizer that folds or strips its input shows that it does.
_PROBE_TEXTS = ("  two  spaces\n\n\n ", "e\u0301 \u212b \ufb01", "\tTab\r\n")


def open_pipeline(settings: OpenVinoSettings) -> "OpenVinoPipeline":
    """Load the model and warm it up. Raises LoadFailed with the sentence for the operator."""
    # Else the library counts its uses in files of the user's home, and reports them over the
    # network where there is one. It does without that package, which is hidden from it here.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        import openvino
        import openvino_genai
    except ImportError as error:
        raise LoadFailed(
            f"openvino-genai cannot be imported ({error}): "
            "install onegate with the extra openvino, pip install 'onegate[openvino]'"
        ) from error
    path = Path(settings.path)
    _check_path(path)
    scheduler = openvino_genai.SchedulerConfig()
    block_tok = _BLOCK_TOK.get(settings.device.upper(), _BLOCK_TOK_ELSEWHERE)
    scheduler.num_kv_blocks = max(1, -(-settings.kv_tok // block_tok))
    scheduler.cache_size = 0
    scheduler.max_num_batched_tokens = settings.max_step_tok
    scheduler.max_num_seqs = settings.max_seqs
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = settings.prefix_cache
    threads = settings.threads or max(1, len(os.sched_getaffinity(0)) - 1)
    properties: dict[str, Any] = {}
    if settings.device.upper() == "CPU":
        # The default cache of 8 bits rounds a prompt that is computed at once otherwise than the
        # same tokens one by one: 7 of 30 resumed answers came out different, with 16 bits none.
        properties = {"INFERENCE_NUM_THREADS": threads, "KV_CACHE_PRECISION": "f16"}
    try:
        with _as_the_library_wants_it(path) as writable:
            native = openvino_genai.ContinuousBatchingPipeline(
                writable, scheduler, settings.device, properties, {}
            )
        launch = (
            f"openvino_genai.ContinuousBatchingPipeline({str(path)!r}, "
            f"SchedulerConfig(num_kv_blocks={scheduler.num_kv_blocks}, "
            f"max_num_batched_tokens={settings.max_step_tok}, max_num_seqs={settings.max_seqs}, "
            f"dynamic_split_fuse=True, enable_prefix_caching={settings.prefix_cache}), "
            f"{settings.device!r}, {properties!r})"
        )
        return OpenVinoPipeline(
            native,
            openvino,
            settings,
            blocks=scheduler.num_kv_blocks,
            launch=launch,
            guided=openvino_genai.StructuredOutputConfig,
        )
    except LoadFailed:
        raise
    except Exception as error:
        # Whatever C++ throws arrives as some exception or other, an IndexError for a broken file.
        raise LoadFailed(_sentence(error, settings, openvino)) from error


class OpenVinoPipeline:
    """One loaded model. See `pipeline.Pipeline`."""

    def __init__(
        self,
        native: Any,
        openvino: Any,
        settings: OpenVinoSettings,
        *,
        blocks: int,
        launch: str,
        guided: Callable[..., Any],
    ) -> None:
        self._native = native
        self._tensor = openvino.Tensor
        self._guided = guided
        self._tokenizer = native.get_tokenizer()
        self._pads_cleanly = self._can_pad()
        self._bytes = _bytes_by_id(self._tokenizer.get_vocab())
        every = [[id] for id in range(len(self._bytes))]
        shown = self._tokenizer.decode(every, skip_special_tokens=True)
        spelt = self._tokenizer.decode(every, skip_special_tokens=False)
        specials = tuple(s for s, text in zip(spelt, shown, strict=True) if s and not text)
        longest = max(len(text.encode()) for text in spelt)
        self.facts = PipelineFacts(
            engine_version=importlib.metadata.version("openvino-genai"),
            launch=launch,
            vocabulary=len(every),
            encode_max_tok=len(self.encode(" a" * _PROBE_WORDS, add_special=False)),
            max_bytes_per_tok=longest if self._keeps_texts() else None,
            specials=specials,
            has_template=bool(self._tokenizer.chat_template),
            samples_by_default=bool(native.get_config().do_sample),
            kv_blocks=blocks,
            block_tok=self._warm_up(settings, blocks),
        )

    def _keeps_texts(self) -> bool:
        """Whether a text comes back from the tokenizer as it went in."""
        return all(
            self.decode([self.encode(text, add_special=False)]) == [text] for text in _PROBE_TEXTS
        )

    def _warm_up(self, settings: OpenVinoSettings, blocks: int) -> int:
        """Compute a full step and a short prompt, so that the first request does not pay for the
        library's preparations, a second for each kind; returns the block size, measured by it."""
        full_tok = max(1, settings.prompt_step_tok - 4)
        used = self._compute(full_tok, blocks)
        self._compute(min(_SHORT_TOK, full_tok), blocks)
        by_table = _BLOCK_TOK.get(settings.device.upper(), _BLOCK_TOK_ELSEWHERE)
        for block_tok in (by_table, *(1 << n for n in range(11))):
            # The first step may or may not have stored the token that it produced.
            if -(-full_tok // block_tok) <= used <= -(-(full_tok + 1) // block_tok):
                return block_tok
        raise LoadFailed(
            f"{settings.model} took {used} cache blocks for {full_tok} tokens, which this version "
            "does not understand: use the openvino-genai that onegate was tested with"
        )

    def _compute(self, n_tok: int, blocks: int) -> int:
        """Run a prompt of so many tokens; returns the KV blocks that it took."""
        ids = [100 + (n_tok + i) % 64 for i in range(n_tok)]
        three = Sampling({"max_new_tokens": 3, "ignore_eos": True, "do_sample": False})
        handle = self.add(0, ids, three)
        self.step()
        used = round(self.cache_share() * blocks)
        while handle.read().finish is None:
            self.step()
        return used

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """See `Pipeline.encode`."""
        if not text and not add_special:
            return []
        ids = self._tokenizer.encode(text, add_special_tokens=add_special).input_ids
        return [int(id) for id in ids.data[0]]

    def decode(self, batch: list[list[int]]) -> list[str]:
        """See `Pipeline.decode`."""
        if not self._pads_cleanly:
            return [self._decode_one(ids) for ids in batch]
        texts: list[str] = self._tokenizer.decode(batch, skip_special_tokens=True)
        return texts

    def _decode_one(self, ids: list[int]) -> str:
        if not ids:
            return ""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def _can_pad(self) -> bool:
        """Whether lists of different lengths can be decoded in one call: the library fills the
        shorter ones up, and a model whose filler is no control token would then say it."""
        word = self.encode("a b c", add_special=False)
        uneven = [[], word[:1], word]
        texts: list[str] = self._tokenizer.decode(uneven, skip_special_tokens=True)
        return texts == [self._decode_one(ids) for ids in uneven]

    def render(self, turns: list[tuple[str, str]]) -> str:
        """See `Pipeline.render`. Raises Refusal where the template rejects the conversation."""
        history = [{"role": role, "content": text} for role, text in turns]
        try:
            text: str = self._tokenizer.apply_chat_template(history, add_generation_prompt=True)
        except RuntimeError as error:
            raise Refusal(
                "invalid", "the model's chat template rejects these messages", path="messages"
            ) from error
        return text

    def bytes_of(self, ids: Sequence[int]) -> bytes:
        """See `Pipeline.bytes_of`."""
        return b"".join(self._bytes[id] for id in ids)

    def add(self, id: int, ids: list[int], sampling: Sampling) -> Handle:
        """See `Pipeline.add`."""
        config = self._native.get_config()
        for name, value in sampling.values.items():
            setattr(config, name, value)
        if sampling.grammar is not None:
            config.structured_output_config = self._guided(grammar=sampling.grammar)
        try:
            return _Sequence(self._native.add_request(id, self._tensor([ids]), config))
        except RuntimeError as error:
            reason = str(error).strip().rpartition("\n")[2]
            raise Refusal("invalid", f"the engine rejects the request: {reason}") from error

    def step(self) -> None:
        """See `Pipeline.step`."""
        self._native.step()

    def cache_share(self) -> float:
        """See `Pipeline.cache_share`."""
        return float(self._native.get_metrics().cache_usage) / 100

    def waiting(self) -> int:
        """See `Pipeline.waiting`."""
        metrics = self._native.get_metrics()
        return max(0, int(metrics.requests) - int(metrics.scheduled_requests))


class _Sequence:
    """A library handle; see `pipeline.Handle`."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def read(self) -> ReadTokens:
        ids: list[int] = []
        logprobs: list[float] = []
        finish = None
        while self._native.can_read():
            for output in self._native.read().values():
                ids += output.generated_ids
                logprobs += output.generated_log_probs
                name = output.finish_reason.name
                finish = None if name == "NONE" else name.lower()
        if finish is None and self._native.get_status().name in ("FINISHED", "IGNORED"):
            finish = self._native.get_status().name.lower()
        return ReadTokens(ids, logprobs, finish)

    def cancel(self) -> None:
        self._native.cancel()


def _bytes_by_id(vocabulary: dict[bytes | str, int]) -> list[bytes]:
    """The bytes of every id; of those that the table leaves out there are none."""
    found = [b""] * (max(vocabulary.values()) + 1)
    for token, id in vocabulary.items():
        found[id] = token.encode() if isinstance(token, str) else token
    return found


@contextmanager
def _as_the_library_wants_it(path: Path) -> Iterator[str]:
    """A name of the model under which a GGUF file can be opened for writing, which the library
    does before it only reads it. What we may not write to, like an installed model, is copied
    into memory until it is loaded."""
    if path.is_dir() or os.access(path, os.W_OK):
        yield str(path)
        return
    with tempfile.TemporaryDirectory() as folder, path.open("rb") as model:
        copy = os.memfd_create(path.name)
        try:
            while os.sendfile(copy, model.fileno(), None, _COPY_BYTES):
                pass
            name = Path(folder, path.name)
            name.symlink_to(f"/proc/self/fd/{copy}")
            yield str(name)
        finally:
            os.close(copy)


def _check_path(path: Path) -> None:
    if not path.exists():
        raise LoadFailed(f"there is no model at {path}: correct engine.model")
    if path.is_dir():
        if not (path / "openvino_model.xml").exists():
            raise LoadFailed(
                f"{path} holds no openvino_model.xml: engine.model must name a GGUF file or a "
                "folder with a model in OpenVINO's format"
            )
        return
    try:
        with path.open("rb") as file:
            is_gguf = file.read(4) == b"GGUF"
    except OSError as error:
        raise LoadFailed(f"{path} cannot be read ({error.strerror}): correct its mode") from error
    if not is_gguf:
        raise LoadFailed(f"{path} is not a GGUF file: correct engine.model")


def _sentence(error: Exception, settings: OpenVinoSettings, openvino: Any) -> str:
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "bad_alloc" in text or "llocat" in text:
        return (
            f"there is not enough memory for {settings.model} with a cache of "
            f"{settings.kv_tok} tokens: lower engine.kv_tok, or take a smaller model"
        )
    devices = openvino.Core().available_devices
    if settings.device not in devices and settings.device.partition(".")[0] not in devices:
        return (
            f"device {settings.device!r} cannot be used ({text[-200:]}): "
            f"set engine.device to one of {', '.join(devices)}, or install its driver"
        )
    return f"{settings.path} cannot be loaded: {text[-300:]}"
