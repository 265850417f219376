"""The floor: a waiting class gets at least its share of all tokens, whatever waits above it.

While a class waits it earns its share of every token that the engine computes in the pools that it
waits for. What a grant by the floor uses while somebody better waits is taken from that account, so
that one long request is paid for by a long wait and the share holds in the long run. Everything
else that the class is given counts as served: it uses up credit, and then puts the class in the
lead, by at most its share of what the pool has computed within the window. A lead has to be earned
off first, so that a night's work that has had the box until just now does not take a seat from the
first people who come; nothing is owed back for the idle night itself. Credit never lapses while the
class waits, because whoever has earned a grant is the next to start: what it saves up is at most
its share of what runs until a seat is free.
"""


class Floor:
    """The account of one class with a floor."""

    def __init__(self, share: float) -> None:
        self.share = share
        # What the class is owed (positive) or has had in advance (negative).
        self.credit_tok = 0.0
        # What it has had beyond its share lately, at nobody's expense.
        self.lead_tok = 0.0

    def earn(self, tok: int, window_tok: int) -> None:
        """So many tokens were computed, for whomever, while the class waited; `window_tok` within
        the window."""
        earned_tok = self.share * tok
        lead_tok = min(self.lead_tok, self.share * window_tok)
        self.lead_tok = max(0.0, lead_tok - earned_tok)
        self.credit_tok += earned_tok - (lead_tok - self.lead_tok)

    def count(self, tok: int, window_tok: int) -> None:
        """So many tokens were computed for the class, and at nobody's expense."""
        used_tok = min(tok, max(0.0, self.credit_tok))
        self.credit_tok -= used_tok
        self.lead_tok = min(self.share * window_tok, self.lead_tok + tok - used_tok)

    def owed(self, head_tok: int, quantum_tok: int) -> bool:
        """Has the class earned its next grant? A quantum is enough to begin a longer request."""
        return self.credit_tok >= max(1, min(head_tok, quantum_tok))

    def spend(self, tok: int) -> None:
        """A floor grant was begun, or went on, with so many tokens. May leave a debt."""
        self.credit_tok -= tok

    def repay(self, tok: int) -> None:
        """A floor grant ended and left so many of the tokens it was begun with."""
        self.credit_tok += tok

    def idle(self) -> None:
        """Nothing of the class waits, or it is closed: credit is for those who wait."""
        self.credit_tok = min(self.credit_tok, 0.0)
