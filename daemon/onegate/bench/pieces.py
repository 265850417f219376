"""How many tokens each piece of text had, where a target tells only how many there were in all."""

from collections.abc import Iterable
from itertools import pairwise

from msgspec import structs

from onegate.bench.record import Record


def spread_tok(total_tok: float, pieces: int) -> list[int]:
    """As evenly as whole tokens go."""
    ends = [round(total_tok * i / pieces) for i in range(pieces + 1)]
    return [end - begin for begin, end in pairwise(ends)]


def tok_per_piece(records: Iterable[Record]) -> float | None:
    """Of the answers whose tokens were told; None where none was."""
    told = [(r.output_tok, len(r.pieces_ns)) for r in records if r.output_tok is not None]
    pieces = sum(n for _, n in told)
    return sum(n_tok for n_tok, n in told if n) / pieces if pieces else None


def recounted(record: Record, mean: float | None) -> Record:
    """The same record with the tokens that were told spread over its pieces.

    One that did not finish was told nothing: its pieces have `mean` tokens each, as those of others
    had; one where that is not known.
    """
    n = len(record.pieces_ns)
    if not n:
        return record
    total_tok = (mean or 1.0) * n if record.output_tok is None else record.output_tok
    return structs.replace(record, pieces_tok=spread_tok(total_tok, n))
