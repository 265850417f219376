"""Who may not be stopped: a floor's quantum, and what had to be computed again too often.

A count of preemptions would not do: three of a request that has hardly begun cost nothing, and one
of a long one throws a minute away. So what is counted is work, per request and per class, in output
tokens: a prompt token weighs what it costs beside one of output in this pool.
"""

from collections.abc import Collection, Mapping

from onegate.admission.model import Resume
from onegate.admission.records import Pool, Record

# A class may be behind by this much: enough for those who have just begun, of whom there nearly
# always is one. What is dearer is thrown away only if little was in the minutes before.
BURST_TOK = 1024.0


class Allowance:
    """What a class may have computed again: a share of what it has had computed."""

    def __init__(self, share: float) -> None:
        self.share = share
        self.left_tok = BURST_TOK

    def earn(self, tok: float) -> None:
        """So much work was done for the class."""
        self.left_tok = min(BURST_TOK, self.left_tok + self.share * tok)

    def allows(self, tok: float) -> bool:
        """May so much be done again?"""
        return tok <= self.left_tok

    def spend(self, tok: float) -> None:
        """So much has to be; or had not, if it is negative."""
        self.left_tok = min(BURST_TOK, self.left_tok - tok)


def again_tok(pool: Pool, record: Record) -> float:
    """What would have to be done again if it were stopped now and nothing of it were cached.

    One that goes on from its tokens has them computed as a prompt is.
    """
    if record.spec.resume is Resume.EXACT:
        return pool.weight * (record.computed_tok + record.made_tok)
    return pool.weight * record.computed_tok + record.made_tok


def likely_again_tok(pool: Pool, record: Record) -> float:
    """The same, where what is cached is probably found again."""
    if pool.spec.keeps_prefix and record.spec.resume is Resume.EXACT:
        return 0.0
    return again_tok(pool, record)


def used_up(pool: Pool, record: Record) -> bool:
    """Would it have been computed more than twice?"""
    size_tok = pool.weight * record.prompt_tok + record.spec.max_tok
    return record.again_tok + likely_again_tok(pool, record) > size_tok


def is_protected(pool: Pool, record: Record) -> bool:
    """May one of a preemptible class not be stopped, by its floor or by what it has lost already?

    What a floor has begun runs until its quantum is used, and to its end where stopping throws its
    work away: else it would use up the floor of its class and never finish.
    """
    if not record.held:
        return False
    by_floor = record.by_floor and record.spec.resume is not Resume.EXACT
    return by_floor or record.prepaid_tok > 0 or used_up(pool, record)


def most_protected(pool: Pool) -> int:
    """Of a pool's requests so many may be protected at a time."""
    return max(1, pool.capacity.max_seqs // 2)


def floor_may_start(
    pool: Pool, records: Mapping[int, Record], preemptible: Collection[str], look_ahead: int
) -> bool:
    """May a grant by a floor begin here: a seat is left for each that somebody was stopped for,
    and not too many of the `preemptible` classes are protected already?"""
    free = pool.capacity.max_seqs + look_ahead - pool.ledger.seats
    if pool.kept and free <= len(pool.kept) - pool.stopping:
        return False
    if not preemptible:
        return True
    running = (records[rid] for rid in pool.ledger)
    count = sum(r.spec.class_ in preemptible and is_protected(pool, r) for r in running)
    return count < most_protected(pool)
