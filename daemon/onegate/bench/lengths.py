"""Token counts drawn from a mix."""

import math
from random import Random

from onegate.bench.scenario import Lengths
from onegate.bench.traces import MAX_TOK

# Standard normal quantile of 0.95: the distance from the median to the 95th percentile.
_Z95 = 1.6448536269514722


def draw_tok(lengths: Lengths, rng: Random) -> int:
    """One length, at least 1 token."""
    if lengths.kind == "uniform":
        assert lengths.low_tok is not None
        assert lengths.high_tok is not None
        drawn = rng.randint(lengths.low_tok, lengths.high_tok)
    elif lengths.kind == "lognormal":
        assert lengths.p50_tok is not None
        assert lengths.p95_tok is not None
        sigma = math.log(lengths.p95_tok / lengths.p50_tok) / _Z95
        drawn = round(rng.lognormvariate(math.log(lengths.p50_tok), sigma))
    else:
        drawn = lengths.tok
    return max(1, min(drawn, MAX_TOK if lengths.max_tok is None else lengths.max_tok))
