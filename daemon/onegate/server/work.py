"""What the engine computed for one request, over all of its runs."""


class Work:
    """Tells what was cached, what had to be computed again, and what was made for nothing.

    `cached_tok` of its prompt the engine had in its cache when it first ran, None where it does not
    say. `recomputed_tok` before the next token of a later run had been computed before, and were
    not in the cache any more; where the engine does not say what is there, as many as can be.
    `discarded_tok` of output were made by runs that it could not go on from.

    All that is computed of prompts is `prompt_tok - cached_tok + recomputed_tok`.
    """

    __slots__ = (
        "_before_tok",
        "_cached_tok",
        "_done_tok",
        "_had_tok",
        "cached_tok",
        "discarded_tok",
        "recomputed_tok",
    )

    def __init__(self) -> None:
        self.cached_tok: int | None = None
        self.recomputed_tok = 0
        self.discarded_tok = 0
        # Of this run: what comes before its next token, of that cached, and computed or cached.
        self._before_tok = 0
        self._cached_tok = 0
        self._done_tok = 0
        # What earlier runs had computed of it.
        self._had_tok = 0

    def accepted(self, prompt_tok: int, kept_tok: int, cached_tok: int | None) -> None:
        """A run begins: `kept_tok` of output come after the prompt, `cached_tok` of both are
        there (None: the engine does not say)."""
        self._before_tok = prompt_tok + kept_tok
        self.told(cached_tok)

    def told(self, cached_tok: int | None) -> None:
        """So many of those were there; some engines say so at the end of the run alone."""
        if cached_tok is None:
            return
        self._cached_tok = min(cached_tok, self._before_tok)
        self._done_tok = max(self._done_tok, self._cached_tok)
        if not self._had_tok:  # nothing of it had run before
            self.cached_tok = self._cached_tok

    def prefilled(self, tok: int) -> None:
        """So much of what comes before the next token is there, in all."""
        self._done_tok = min(max(self._done_tok, tok), self._before_tok)

    def produced(self) -> None:
        """All of it is: there is output."""
        self._done_tok = self._before_tok

    def ran(self, made_tok: int) -> None:
        """The run is over, and has made so much output."""
        again_tok = min(self._done_tok, self._had_tok) - self._cached_tok
        self.recomputed_tok += max(0, again_tok)
        # The last token is never in the cache: only the next one would have put it there.
        self._had_tok = max(self._had_tok, self._done_tok + max(0, made_tok - 1))
        self._before_tok = self._cached_tok = self._done_tok = 0

    def begins_anew(self, prompt_tok: int, output_tok: int) -> None:
        """The next run is from the prompt alone; so much output is lost."""
        self.discarded_tok += output_tok
        self._had_tok = min(self._had_tok, prompt_tok)
