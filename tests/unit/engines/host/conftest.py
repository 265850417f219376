"""A pipeline whose tokens are bytes, so that halves of characters are easy to come by."""

from collections import deque

import pytest

from onegate.engines.base import EngineRequest
from onegate.engines.host.pipeline import PipelineFacts, ReadTokens
from onegate.engines.host.settings import OpenVinoSettings

SPECIALS = {"<|end|>": 256, "<|start|>": 257, "<|e|>": 258}
EOS = SPECIALS["<|end|>"]


class ByteHandle:
    """A sequence that says what it was told to say, one token a step."""

    def __init__(self, ids, sampling, says):
        self.ids = ids
        self.sampling = sampling
        self.says = deque(says)
        self.said = 0
        self.unread = []
        self.finish = None
        self.cancelled = False
        self.gone = False

    def step(self):
        if self.cancelled:
            self.gone = True
        if self.gone or self.finish is not None:
            return
        most = self.sampling.values["max_new_tokens"]
        for _ in range(self.per_step):
            if self.finish is None and self.says:
                id = self.says.popleft()
                self.unread.append(id)
                self.said += 1
                if id == EOS:
                    self.finish = "stop"
                elif self.said == most:
                    self.finish = "length"

    per_step = 1

    def read(self):
        ids, self.unread = self.unread, []
        return ReadTokens(ids, [-0.5] * len(ids), self.finish)

    def cancel(self):
        self.cancelled = True


class BytePipeline:
    """See `pipeline.Pipeline`. `says` is what every sequence answers."""

    def __init__(self, **facts):
        self.says = list(b"abcdefghijklmnopqrstuvwxyz")
        self.handles = {}
        self.steps = 0
        self.broken = None
        self.facts = PipelineFacts(
            **{
                "engine_version": "1",
                "launch": "bytes",
                "vocabulary": 259,
                "encode_max_tok": 5000,
                "max_bytes_per_tok": 7,
                "specials": tuple(SPECIALS),
                "has_template": True,
                "samples_by_default": False,
                "kv_blocks": 100,
                "block_tok": 8,
                **facts,
            }
        )

    def encode(self, text, *, add_special):
        ids = [257] if add_special else []
        while text:
            for special, id in SPECIALS.items():
                if text.startswith(special):
                    ids.append(id)
                    text = text[len(special) :]
                    break
            else:
                ids += text[0].encode()
                text = text[1:]
        return ids[: self.facts.encode_max_tok]

    def bytes_of(self, ids):
        return bytes(id for id in ids if id < 256)

    def decode(self, batch):
        return [bytes(id for id in ids if id < 256).decode("utf-8", "ignore") for ids in batch]

    def render(self, turns):
        text = "".join(f"<|start|>{role}:{content}<|end|>" for role, content in turns)
        return f"{text}<|start|>assistant:"

    def add(self, id, ids, sampling):
        self.handles[id] = ByteHandle(ids, sampling, self.says)
        return self.handles[id]

    def step(self):
        if self.broken is not None:
            raise self.broken
        self.steps += 1
        for handle in self.handles.values():
            handle.step()

    def cache_share(self):
        return 0.25

    def waiting(self):
        return 0


@pytest.fixture
def pipeline():
    return BytePipeline()


@pytest.fixture
def make_pipeline():
    return BytePipeline


@pytest.fixture
def make_request():
    def make(prompt=None, **given):
        given.setdefault("id", 1)
        given.setdefault("model", "m")
        given.setdefault("max_tokens", 100)
        return EngineRequest(prompt=prompt, **given)

    return make


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"weights")
    return OpenVinoSettings(
        model="m",
        path=str(path),
        device="CPU",
        threads=None,
        context_tok=500,
        kv_tok=800,
        max_seqs=4,
        max_step_tok=32,
        step_target_ms=None,
        prefix_cache=False,
    )
