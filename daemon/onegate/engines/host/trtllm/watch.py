"""When an engine that is silent counts as dead. The library does not notice by itself: what waits
for a worker that has died waits for ever, and its own health is a flag."""

_NS_PER_S = 1_000_000_000
# So long one token may take for which nothing else is computed, once there is a doubt.
PROOF_S = 10.0
# An engine in which nothing runs is asked for one token this often.
CANARY_EVERY_S = 60.0


class Watch:
    """Sans-IO; every time is given, in nanoseconds. Progress is a token or a step of the engine.

    `stall_s` without progress while requests are inside is a stall. A doubt (a worker that has
    ended, an abort that was never answered, a request that the engine failed, a long silence) has
    to be dispelled by progress within PROOF_S; where nothing is inside a canary is sent for it.
    """

    def __init__(self, stall_s: float, now_ns: int) -> None:
        self._stall_ns = int(stall_s * _NS_PER_S)
        self._progress_ns = now_ns
        self._entered_ns = now_ns
        self._inside = 0
        self._doubt: str | None = None
        self._doubted_ns = 0

    def entered(self, now_ns: int) -> None:
        """A request went in."""
        if not self._inside:
            self._entered_ns = now_ns
        self._inside += 1

    def left(self) -> None:
        """A request is out again."""
        self._inside -= 1

    def progress(self, now_ns: int) -> None:
        """The engine has done something; no doubt is left."""
        self._progress_ns = now_ns
        self._doubt = None

    def doubt(self, reason: str, now_ns: int) -> None:
        """There is a reason to think that the engine is dead."""
        if self._doubt is None:
            self._doubt, self._doubted_ns = reason, now_ns

    def wants_canary(self, now_ns: int) -> bool:
        """Whether it is time to ask the engine for one token: only where nobody else waits for
        one, or it would queue behind them and prove nothing."""
        if self._inside:
            return False
        return self._doubt is not None or now_ns - self._progress_ns > CANARY_EVERY_S * _NS_PER_S

    def verdict(self, now_ns: int) -> str | None:
        """Why the engine is dead, or None."""
        if self._doubt is not None and now_ns - self._doubted_ns > PROOF_S * _NS_PER_S:
            return f"{self._doubt}, and no token has come for {PROOF_S:.0f} s since"
        silent_ns = now_ns - max(self._progress_ns, self._entered_ns)
        if self._inside and silent_ns > self._stall_ns:
            return (
                f"no token and no step for {silent_ns / _NS_PER_S:.0f} s "
                f"with {self._inside} requests inside"
            )
        return None
