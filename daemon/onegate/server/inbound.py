"""Bytes that clients have sent and that are still in memory.

Unfinished frames and live requests are memory, whatever they are in tokens: one request may carry
megabytes of images. They are bounded for each principal and in all. A request is held until it
ends, because the engine may die and have to be given it again.
"""

from onegate.admission.ledger import BoundedLedger
from onegate.protocol.errors import Reason
from onegate.server.outcome import Ending, Outcome


class InboundBytes:
    """The ledger of inbound bytes, by principal."""

    def __init__(self, total_bytes: int, per_principal_bytes: int) -> None:
        self._ledger = BoundedLedger(total_bytes, per_principal_bytes)

    @property
    def total_bytes(self) -> int:
        """All that is held now."""
        return self._ledger.total

    def change_limits(self, total_bytes: int, per_principal_bytes: int) -> None:
        """New bounds from a reload; what is held stays."""
        self._ledger.change_limits(total_bytes, per_principal_bytes)

    def charge(self, principal: str, n_bytes: int) -> Ending | None:
        """Take `n_bytes` for a principal, or say why not."""
        full = self._ledger.try_charge(principal, n_bytes)
        if full is None:
            return None
        if n_bytes > full.limit:
            return Ending(
                Outcome.REJECTED,
                Reason.TOO_LARGE,
                f"this takes {n_bytes} bytes of memory, at most {full.limit} may wait: "
                "send less at a time",
                limit=full.limit,
                used=n_bytes,
            )
        whose = "you have" if full.per_key else "all clients together have"
        return Ending(
            Outcome.REJECTED,
            Reason.BYTES_FULL,
            f"{whose} {full.used} bytes waiting of at most {full.limit}: "
            "send less at a time, or wait until some of it has started",
            limit=full.limit,
            used=full.used,
        )

    def refund(self, principal: str, n_bytes: int) -> None:
        """Give back what was charged."""
        self._ledger.refund(principal, n_bytes)
