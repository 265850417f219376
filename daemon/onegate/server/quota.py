"""What one user may use of a class in a day (`daily_tok`), and how much of it is left.

A day is one of the table of use, which is counted from: in UTC, and remembered across restarts.
What runs counts as far as it has come, what waits does not: who begins within the ration is served
to the end. So a user goes beyond it by what had been let in before, and by no more than that.
"""

from collections.abc import Callable

from onegate.config import ClassConfig
from onegate.protocol.errors import Reason
from onegate.protocol.messages import DailyUse
from onegate.server.live import LiveRequests
from onegate.server.outcome import Ending, Outcome
from onegate.server.usage import MS_PER_DAY, UsageTable


class Quotas:
    """The rations of the day. `classes` gives the classes of now."""

    def __init__(
        self,
        usage: UsageTable,
        live: LiveRequests,
        classes: Callable[[], tuple[ClassConfig, ...]],
    ) -> None:
        self._usage = usage
        self._live = live
        self._classes = classes

    def of(self, principal: str, now_ms: int) -> dict[str, DailyUse]:
        """By class, for those that have a ration."""
        return {
            cls.name: self._use(principal, cls.name, cls.daily_tok, now_ms)
            for cls in self._classes()
            if cls.daily_tok is not None
        }

    def full(self, principal: str, cls: ClassConfig, now_ms: int) -> Ending | None:
        """Why this principal may not begin one more in the class today."""
        if cls.daily_tok is None:
            return None
        use = self._use(principal, cls.name, cls.daily_tok, now_ms)
        if use.used_tok < use.limit_tok:
            return None
        return Ending(
            Outcome.REJECTED,
            Reason.PEER_QUOTA,
            f"you have used {use.used_tok} tokens of class {cls.name} today, and {use.limit_tok} "
            "are yours in a day, which ends at midnight UTC: come back then, or ask for another "
            "class",
            limit=use.limit_tok,
            used=use.used_tok,
            retry_after_ms=use.resets_in_ms,
        )

    def _use(self, principal: str, class_: str, limit_tok: int, now_ms: int) -> DailyUse:
        running_tok = sum(
            live.prompt_tok + live.output_tok
            for live in self._live.of(principal)
            if live.class_ == class_ and live.granted_ns is not None
        )
        return DailyUse(
            limit_tok=limit_tok,
            used_tok=self._usage.day_tok(principal, class_, now_ms) + running_tok,
            resets_in_ms=MS_PER_DAY - now_ms % MS_PER_DAY,
        )
