"""Going on inside a grammar from tokens that end in the middle of a character.

A grammar is made of characters, so it can only begin between two. The tokens of an unfinished one
are left out of the prompt and produced a second time, which greedy decoding does as before.
"""

from collections.abc import Callable, Sequence

from onegate.engines.host.pipeline import Handle, ReadTokens

# A character has four bytes at most, and a token holds at least one.
_MOST_AGAIN = 3


def whole_text(ids: Sequence[int], bytes_of: Callable[[Sequence[int]], bytes]) -> tuple[str, int]:
    """The text of the longest beginning of `ids` that ends with a whole character, and how many
    ids that is. Raises ValueError where their bytes are no text."""
    said = bytes_of(ids)
    for n_again in range(min(_MOST_AGAIN, len(ids)) + 1):
        n_ids = len(ids) - n_again
        whole = said[: len(said) - len(bytes_of(ids[n_ids:]))]
        try:
            return whole.decode(), n_ids
        except UnicodeDecodeError:
            if n_again == min(_MOST_AGAIN, len(ids)):
                raise
    raise AssertionError("the last round returns or raises")


class Again:
    """A handle whose first tokens have been told before. Another one in their place is an end:
    what a reader has seen would not go on as it began."""

    def __init__(self, handle: Handle, told: Sequence[int]) -> None:
        self._handle = handle
        self._told = list(told)

    def read(self) -> ReadTokens:
        """See `Handle.read`."""
        read = self._handle.read()
        n_again = min(len(self._told), len(read.ids))
        if read.ids[:n_again] != self._told[:n_again] or (
            read.finish and n_again < len(self._told)
        ):
            self._handle.cancel()
            return ReadTokens([], [], "came out differently the second time")
        del self._told[:n_again]
        return ReadTokens(read.ids[n_again:], read.logprobs[n_again:], read.finish)

    def cancel(self) -> None:
        """See `Handle.cancel`."""
        self._handle.cancel()
