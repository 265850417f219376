"""The part of transformers that is used, over a vocabulary of bytes and words."""

import os

SPECIALS = {"<|start|>": 256, "<|end|>": 257, "<|pad|>": 258}
WORDS = [f" {a}{b}" for a in ("sea", "lamp", "rock", "gull", "fog", "tide") for b in "abcdefgh"]
FIRST_WORD = 259
_SPELT = SPECIALS | {word: FIRST_WORD + i for i, word in enumerate(WORDS)}


class AutoTokenizer:
    @staticmethod
    def from_pretrained(path, *, local_files_only, trust_remote_code):
        assert local_files_only, "nothing is to be fetched"
        if not os.path.exists(os.path.join(path, "tokenizer.json")):
            raise OSError(f"Can't load tokenizer for '{path}'")
        return Tokenizer()


class Tokenizer:
    chat_template = "one"
    all_special_tokens = list(SPECIALS)
    added_tokens_decoder = {id: token for token, id in SPECIALS.items()}

    def get_vocab(self):
        return {f"<0x{id:02X}>": id for id in range(256)} | _SPELT

    def encode(self, text, *, add_special_tokens):
        ids = [SPECIALS["<|start|>"]] if add_special_tokens else []
        at = 0
        while at < len(text):
            starts = (text[at : at + n] for n in (9, 7, 6, 5))
            token = next((start for start in starts if start in _SPELT), None)
            if token is None:
                ids += text[at].encode("utf-8", "surrogatepass")
                at += 1
            else:
                ids.append(_SPELT[token])
                at += len(token)
        return ids

    def batch_decode(self, batch, *, skip_special_tokens, clean_up_tokenization_spaces):
        assert skip_special_tokens
        assert not clean_up_tokenization_spaces, "it eats spaces"
        return [decode(ids) for ids in batch]

    def apply_chat_template(self, history, *, tokenize, add_generation_prompt):
        assert not tokenize
        assert add_generation_prompt
        text = "".join(f"<|start|>{turn['role']}:{turn['content']}<|end|>" for turn in history)
        return f"{text}<|start|>assistant:"


def decode(ids):
    data = b""
    for id in ids:
        if id < 256:
            data += bytes([id])
        elif id >= FIRST_WORD:
            data += WORDS[id - FIRST_WORD].encode()
    return data.decode("utf-8", "replace")
