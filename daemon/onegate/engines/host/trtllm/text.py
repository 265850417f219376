"""The model's own tokenizer and chat template, read by transformers, which TensorRT-LLM brings.

Prompts go in as ids: given text, the library would tokenise it on the loop that serves everybody.
"""

import importlib
from pathlib import Path
from typing import Any

from onegate.engines.host.engine import LoadFailed, Refusal
from onegate.engines.host.pipeline import TextFacts

# It cuts nothing short unless it is asked to.
_NO_LIMIT_TOK = 2**31 - 1
# Texts on which a tokenizer that folds or strips its input shows that it does.
_PROBE_TEXTS = ("  two  spaces\n\n\n ", "e\u0301 \u212b \ufb01", "\tTab\r\n")


def open_text(path: Path, *, trust_remote_code: bool) -> "HfText":
    """The tokenizer in a model's folder. Raises LoadFailed."""
    try:
        transformers: Any = importlib.import_module("transformers")
        found = transformers.AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=trust_remote_code
        )
        return HfText(found)
    except Exception as error:
        # Its formats are many, and so are the errors of their readers.
        text = " ".join(str(error).split())[:200]
        raise LoadFailed(
            f"{path} holds no tokenizer that can be read ({type(error).__name__}: {text}): "
            "put the model's tokenizer files beside its weights"
        ) from error


class HfText:
    """See `pipeline.TextSide`."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        vocabulary: dict[str, int] = tokenizer.get_vocab()
        added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
        specials = added | {str(token) for token in tokenizer.all_special_tokens}
        # A vocabulary spells a byte with a character of one or two: never too few.
        longest = max(len(token.encode("utf-8", "surrogatepass")) for token in vocabulary)
        self.facts = TextFacts(
            vocabulary=max(vocabulary.values()) + 1,
            encode_max_tok=_NO_LIMIT_TOK,
            max_bytes_per_tok=longest if self._keeps_texts() else None,
            specials=tuple(sorted(specials)),
            has_template=tokenizer.chat_template is not None,
        )

    def encode(self, text: str, *, add_special: bool) -> list[int]:
        """See `TextSide.encode`."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special)
        return ids

    def decode(self, batch: list[list[int]]) -> list[str]:
        """See `TextSide.decode`."""
        texts: list[str] = self._tokenizer.batch_decode(
            batch, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return texts

    def render(self, turns: list[tuple[str, str]]) -> str:
        """See `TextSide.render`. Raises Refusal where the template rejects the conversation."""
        history = [{"role": role, "content": text} for role, text in turns]
        try:
            text: str = self._tokenizer.apply_chat_template(
                history, tokenize=False, add_generation_prompt=True
            )
        except Exception as error:
            # A template raises what its author chose, and what its language raises.
            raise Refusal(
                "invalid", "the model's chat template rejects these messages", path="messages"
            ) from error
        return text

    def _keeps_texts(self) -> bool:
        """Whether a text comes back from the tokenizer as it went in."""
        return all(
            self.decode([self.encode(text, add_special=False)]) == [text] for text in _PROBE_TEXTS
        )
