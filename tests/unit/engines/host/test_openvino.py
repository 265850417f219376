import os
import subprocess
import sys

import pytest

from onegate.engines.host import openvino
from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.openvino import OpenVinoPipeline, open_pipeline
from onegate.engines.host.sampling import Sampling
from onegate.engines.host.settings import OpenVinoSettings


def settings(path, **given):
    return OpenVinoSettings(
        **{
            "model": "m",
            "path": str(path),
            "device": "CPU",
            "threads": None,
            "context_tok": 100,
            "kv_tok": 320,
            "max_seqs": 1,
            "max_step_tok": 64,
            "step_target_ms": None,
            "prefix_cache": False,
            **given,
        }
    )


def test_a_model_that_is_not_ours_is_lent_as_a_copy_that_can_be_opened_for_writing(
    tmp_path, monkeypatch
):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF and weights")
    with openvino._as_the_library_wants_it(model) as same:
        assert same == str(model)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with openvino._as_the_library_wants_it(model) as copy:
        assert copy != str(model)
        assert copy.endswith("/model.gguf")
        with open(copy, "r+b") as opened:
            assert opened.read() == b"GGUF and weights"
            opened.write(b"!")
    assert not os.path.lexists(copy)
    assert model.read_bytes() == b"GGUF and weights"
    with openvino._as_the_library_wants_it(tmp_path) as folder:
        assert folder == str(tmp_path)


def test_without_the_library_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openvino_genai", None)
    with pytest.raises(LoadFailed, match=r"onegate\[openvino\]"):
        open_pipeline(settings("/nowhere"))


def test_paths_are_looked_at_before_the_library_does(tmp_path):
    pytest.importorskip("openvino_genai", reason="absent openvino-genai")
    for path, says in (
        (tmp_path / "none.gguf", "there is no model"),
        (tmp_path, "openvino_model.xml"),
    ):
        with pytest.raises(LoadFailed, match=says):
            open_pipeline(settings(path))
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(LoadFailed, match="not a GGUF file"):
        open_pipeline(settings(tmp_path / "text.gguf"))


class Library:
    """The parts of the library's pipeline that measuring the block size needs."""

    def __init__(self, block_tok, blocks):
        self.block_tok, self.blocks = block_tok, blocks
        self.used_tok = 0
        self.configs = []
        self.tokenizer = Tokenizer()

    def get_tokenizer(self):
        return self.tokenizer

    def get_config(self):
        return type("Config", (), {"do_sample": False})()

    def add_request(self, id, ids, config):
        self.configs.append(config)
        self.used_tok = len(ids[0])
        return Request()

    def step(self):
        self.used_tok += 1

    def get_metrics(self):
        share = 100 * -(-self.used_tok // self.block_tok) / self.blocks
        return type("Metrics", (), {"cache_usage": share, "requests": 3, "scheduled_requests": 1})()


class Request:
    """Finishes with its third token."""

    def __init__(self):
        self.left = 3

    def can_read(self):
        self.left -= 1
        return self.left >= 0

    def get_status(self):
        return type("Status", (), {"name": "FINISHED" if self.left < 0 else "RUNNING"})

    def read(self):
        reason = type("Reason", (), {"name": "NONE"})
        output = type("Output", (), {})()
        output.generated_ids, output.generated_log_probs = [1], [0.0]
        output.finish_reason = reason
        return {0: output}


class Tokenizer:
    """Four tokens; a list that is shorter than the longest is filled up with `pad`."""

    chat_template = ""
    pad = 2

    def get_vocab(self):
        return {b"a": 0, b"b": 1, b"<s>": 2, b"cc": 3}

    def decode(self, batch, skip_special_tokens):
        if not isinstance(batch[0], list):
            return self.decode([batch], skip_special_tokens)[0]
        longest = max(map(len, batch))
        batch = [[*ids, *[self.pad] * (longest - len(ids))] for ids in batch]
        spelt = ["a", "b", "<s>", "cc"]
        return [
            "".join(spelt[id % 4] for id in ids if id % 4 != 2 or not skip_special_tokens)
            for ids in batch
        ]

    def encode(self, text, add_special_tokens):
        data = [[0] * min(50, len(text))]
        return type("Encoded", (), {"input_ids": type("Ids", (), {"data": data})})


@pytest.mark.parametrize("block_tok", [8, 16, 32])
def test_facts_are_taken_from_the_loaded_model(block_tok):
    library = Library(block_tok, blocks=40)
    openvino = type("OpenVino", (), {"Tensor": list})
    pipeline = OpenVinoPipeline(
        library,
        openvino,
        settings("/m", kv_tok=40 * block_tok),
        blocks=40,
        launch="l",
        guided=dict,
    )
    facts = pipeline.facts
    assert facts.block_tok == block_tok
    assert facts.vocabulary == 4
    assert facts.specials == ("<s>",)
    assert facts.encode_max_tok == 50
    assert facts.max_bytes_per_tok is None  # this tokenizer does not give texts back
    assert not facts.has_template
    assert pipeline.waiting() == 2


@pytest.mark.parametrize("pad", [2, 1])
def test_what_a_batch_is_filled_up_with_is_never_said(pad):
    library = Library(8, blocks=40)
    library.tokenizer.pad = pad
    pipeline = opened(library)
    assert pipeline.decode([[], [0], [0, 2, 3]]) == ["", "a", "acc"]


def opened(library):
    openvino = type("OpenVino", (), {"Tensor": list})
    return OpenVinoPipeline(library, openvino, settings("/m"), blocks=40, launch="l", guided=dict)


def test_a_grammar_is_set_where_there_is_one():
    library = Library(8, blocks=40)
    pipeline = opened(library)
    pipeline.add(1, [0], Sampling({"max_new_tokens": 3}, 'root ::= "a"'))
    assert library.configs[-1].structured_output_config == {"grammar": 'root ::= "a"'}
    pipeline.add(2, [0], Sampling({"max_new_tokens": 3}))
    assert not hasattr(library.configs[-1], "structured_output_config")


def test_ids_are_bytes_whatever_the_table_calls_them():
    library = Library(8, blocks=40)
    library.tokenizer.get_vocab = lambda: {b"\xe2\x82": 0, "\u20ac": 1, b"x": 3}
    assert opened(library).bytes_of([0, 1, 2, 3]) == b"\xe2\x82\xe2\x82\xacx"


def test_the_library_leaves_nothing_in_the_home_of_whoever_runs_it(tmp_path):
    code = "from tests.unit.engines.host import test_openvino as t\n"
    code += "t.open_pipeline(t.settings('/nowhere'))"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if "cannot be imported" in done.stderr:
        pytest.skip("there is no openvino")
    assert "there is no model at /nowhere" in done.stderr
    assert os.listdir(tmp_path) == []
