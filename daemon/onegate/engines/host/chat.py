"""From turns of a conversation to token ids, so that no text can pose as a control token."""

import re
from collections.abc import Callable, Sequence
from typing import Protocol

from onegate.engines.host.engine import Refusal

Render = Callable[[list[tuple[str, str]]], str]

# Private-use characters; one that occurs in no text of the conversation marks the cuts.
_MARKS = range(0xE000, 0xF8FF)


class Encode(Protocol):
    """The tokenizer; `add_special` asks for the tokens that begin every text of the model."""

    def __call__(self, text: str, *, add_special: bool) -> list[int]: ...


class ChatEncoder:
    """Renders the model's own template and tokenises it.

    A text that contains a control token's spelling, `<|im_end|>` say, is cut inside it before it
    is tokenised, and so reaches the model as the characters it is. Nobody can end his turn and
    begin one as `system` by writing the template's own words.
    """

    def __init__(self, specials: Sequence[str], encode: Encode, render: Render | None) -> None:
        # A look-ahead matches at every position, so spellings that overlap are all found.
        spellings = "|".join(re.escape(special) for special in specials if len(special) > 1)
        self._special = re.compile(f"(?={spellings})") if spellings else None
        self._encode = encode
        self._render = render

    def encode(self, turns: list[tuple[str, str]]) -> list[int]:
        """Token ids of the conversation, open for the answer.

        Without a template only a single user turn can be shown to the model, as plain text.
        Raises Refusal (`unsupported`) for more than that.
        """
        if self._render is None:
            return self._plain(turns)
        if all(len(self._pieces(text)) == 1 for _, text in turns):
            return self._encode(self._render(turns), add_special=False)
        mark = _free_mark(turns)
        rendered = self._render([(role, mark.join(self._pieces(text))) for role, text in turns])
        pieces = rendered.split(mark)
        return [id for piece in pieces for id in self._encode(piece, add_special=False)]

    def encode_raw(self, text: str) -> list[int]:
        """Token ids of a text whose writer puts the template in himself: here the spelling of a
        control token is one."""
        return self._encode(text, add_special=True)

    def _plain(self, turns: list[tuple[str, str]]) -> list[int]:
        if len(turns) != 1 or turns[0][0] != "user":
            raise Refusal(
                "unsupported", "this model has no chat template: send one prompt", path="messages"
            )
        first, *rest = self._pieces(turns[0][1])
        ids = self._encode(first, add_special=True)
        return ids + [id for piece in rest for id in self._encode(piece, add_special=False)]

    def _pieces(self, text: str) -> list[str]:
        """The text, cut behind the first character of every control token's spelling."""
        if self._special is None:
            return [text]
        cuts = [match.start() + 1 for match in self._special.finditer(text)]
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _free_mark(turns: list[tuple[str, str]]) -> str:
    taken = {char for _, text in turns for char in text}
    for code in _MARKS:
        if chr(code) not in taken:
            return chr(code)
    raise Refusal("invalid", "the text uses every private character there is", path="messages")
