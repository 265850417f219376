import sys
from types import MappingProxyType, SimpleNamespace

import pytest

from onegate.engines.host.engine import LoadFailed, Refusal
from onegate.engines.host.trtllm.text import HfText, open_text


class Tokenizer:
    """Bytes, and a token whose spelling nobody may say."""

    chat_template = "one"
    all_special_tokens = ("<end>",)
    added_tokens_decoder = MappingProxyType({300: "<tool>"})
    strips = False

    def get_vocab(self):
        spelt = {chr(0x100 + id): id for id in range(256)}
        return spelt | {"<end>": 256, "<tool>": 300, "ñandú": 299}

    def encode(self, text, *, add_special_tokens):
        text = text.strip() if self.strips else text
        return [256] * add_special_tokens + list(text.encode())

    def batch_decode(self, batch, *, skip_special_tokens, clean_up_tokenization_spaces):
        assert (skip_special_tokens, clean_up_tokenization_spaces) == (True, False)
        return [bytes(id for id in ids if id < 256).decode() for ids in batch]

    def apply_chat_template(self, history, *, tokenize, add_generation_prompt):
        assert (tokenize, add_generation_prompt) == (False, True)
        if history[0]["role"] == "system":
            raise ZeroDivisionError
        return repr(history)


def test_what_is_known_of_a_tokenizer():
    facts = HfText(Tokenizer()).facts
    assert facts.vocabulary == 301
    assert facts.specials == ("<end>", "<tool>")
    assert facts.max_bytes_per_tok == len("ñandú".encode())
    assert facts.has_template


def test_one_that_shortens_texts_bounds_nothing_and_one_without_a_template():
    tokenizer = Tokenizer()
    tokenizer.strips, tokenizer.chat_template = True, None
    facts = HfText(tokenizer).facts
    assert facts.max_bytes_per_tok is None
    assert not facts.has_template


def test_there_and_back():
    text = HfText(Tokenizer())
    assert text.encode("añ", add_special=True) == [256, *"añ".encode()]
    assert text.encode("a", add_special=False) == [97]
    assert text.decode([[97, 256], []]) == ["a", ""]
    assert text.render([("user", "x")]) == "[{'role': 'user', 'content': 'x'}]"
    with pytest.raises(Refusal) as refused:
        text.render([("system", "x")])
    assert refused.value.path == "messages"


def test_it_is_read_from_the_folder_and_from_nowhere_else(monkeypatch, tmp_path):
    asked = []

    def from_pretrained(path, **given):
        asked.append((path, given))
        return Tokenizer()

    auto = SimpleNamespace(from_pretrained=from_pretrained)
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=auto))
    open_text(tmp_path, trust_remote_code=False)
    assert asked == [(str(tmp_path), {"local_files_only": True, "trust_remote_code": False})]


def test_a_folder_without_one_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(LoadFailed, match="no tokenizer that can be read"):
        open_text(tmp_path, trust_remote_code=False)
