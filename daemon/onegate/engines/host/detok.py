"""Text out of token ids, a step at a time, for all sequences of a step in one call."""

from collections.abc import Callable, Sequence

DecodeBatch = Callable[[list[list[int]]], list[str]]

# Longer than any character in tokens.
_WINDOW_TOK = 8


class TokenText:
    """The tokens of one output, and how many of them have become text.

    A token may be half a character, and a character may only exist together with its neighbour, so
    text is the difference between two windows of tokens: the last that made text, without and with
    the new ones. A window that does not grow yet, or ends in a replacement character, waits.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._begin = 0
        self._shown = 0

    def prime(self, ids: Sequence[int], decode: DecodeBatch) -> str:
        """Begin behind `ids`, the output of an earlier run, and return the text they had made."""
        self._ids = list(ids)
        end = len(self._ids)
        text = ""
        # An unfinished character is a few tokens at most.
        for end in range(len(self._ids), max(-1, len(self._ids) - _WINDOW_TOK), -1):
            text = decode([self._ids[:end]])[0]
            if not text.endswith("\ufffd"):
                break
        self._begin, self._shown = max(0, end - _WINDOW_TOK), end
        return text

    def push(self, id: int) -> None:
        """Append a token."""
        self._ids.append(id)

    def windows(self) -> list[list[int]]:
        """The two token windows to decode."""
        return [self._ids[self._begin : self._shown], self._ids[self._begin :]]

    def take(self, before: str, after: str, *, last: bool = False) -> str:
        """New text, given the two windows decoded. `last`: also what seems unfinished."""
        if not last and after.endswith("\ufffd"):
            return ""
        if len(after) <= len(before):
            return ""
        self._begin, self._shown = self._shown, len(self._ids)
        return after[len(before) :]


def take_all(texts: Sequence[TokenText], decode: DecodeBatch) -> list[str]:
    """The new text of each, with one call of the tokenizer."""
    if not texts:
        return []
    pieces = decode([window for text in texts for window in text.windows()])
    return [text.take(*pieces[2 * i : 2 * i + 2]) for i, text in enumerate(texts)]
