"""What the answer to one request may amount to, whoever sends it."""

from msgspec import structs

from onegate.engines.base import EngineChunk, EngineMalformed, Finished

# A token may come in several pieces, down to its letters; and a server may close a character, a
# tool call or a thought behind the last token that was allowed.
_PIECES_PER_TOK = 8
_SPARE_PIECES = 64
# Tokens of real vocabularies have at most some hundred characters, runs of blanks for the most.
_CHARS_PER_TOK = 1024
_SPARE_CHARS = 64 << 10


class Allowance:
    """Of `max_tokens` tokens. Every piece and the end go through `spent` and `ended`, which make
    tokens add up to no more than was allowed: what a server says beyond it is nobody's. One that
    does not stop raises EngineMalformed."""

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = self._left_tok = max_tokens
        self._left_pieces = _SPARE_PIECES + _PIECES_PER_TOK * max_tokens
        self._left_chars = _SPARE_CHARS + _CHARS_PER_TOK * max_tokens

    def spent(self, chunk: EngineChunk) -> EngineChunk:
        """The piece, with the tokens that it may stand for."""
        # A piece may show several tokens with their log-probabilities.
        self._left_pieces -= max(1, len(chunk.logprobs or ()))
        self._left_chars -= len(chunk.text)
        if chunk.tool_call is not None:
            self._left_chars -= len(chunk.tool_call.function.arguments)
        if self._left_pieces < 0 or self._left_chars < 0:
            raise EngineMalformed(
                f"the engine goes on beyond the {self._max_tokens} tokens it was allowed"
            )
        n_tok = min(chunk.n_tok, self._left_tok)
        self._left_tok -= n_tok
        return chunk if n_tok == chunk.n_tok else structs.replace(chunk, n_tok=n_tok)

    def ended(self, finished: Finished) -> Finished:
        """The end, with no more tokens than the pieces had."""
        usage = finished.usage
        if usage.output_tok <= self._max_tokens:
            return finished
        output_tok = self._max_tokens - self._left_tok
        return structs.replace(finished, usage=structs.replace(usage, output_tok=output_tok))
