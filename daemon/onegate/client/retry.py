"""When a refused request is tried again, and after how long."""

from collections.abc import Callable

from onegate.client.connect import backoff_s
from onegate.client.errors import OnegateError, Rejected, Unavailable
from onegate.client.request import Retry
from onegate.protocol.errors import Reason

NS_PER_S = 1_000_000_000
# A request that so many daemons died of is not asked again: it may be why.
MAX_DEATHS = 5
# A daemon that goes away refuses at once; one that has had a request for longer had taken it.
TAKEN_NS = NS_PER_S


class Patience:
    """Decides for one request. Time is an argument, so that tests need none.

    `restart` (the default) tries again only what a restart refused, and keeps looking for the
    new daemon for `restart_timeout` seconds. `honour` does the same for what a daemon took with it
    that died, and also waits for every hint, as often as the daemon gives one, and returns with
    the ticket. A wait that ends after `deadline_ns` is not begun.
    """

    def __init__(
        self,
        retry: Retry,
        *,
        restart_timeout: float,
        deadline_ns: int | None,
        backoff: Callable[[int], float] = backoff_s,
    ) -> None:
        self._retry = retry
        self._restart_ns = round(restart_timeout * NS_PER_S)
        self._deadline_ns = deadline_ns
        self._backoff = backoff
        # The refusal of a daemon that was going away, or the loss of one that said nothing.
        self._refused: OnegateError | None = None
        self._gone_ns = 0
        self._attempts = 0
        self._deaths = 0

    def wait_s(
        self, error: OnegateError, now_ns: int, *, connecting: bool = False, held_ns: int = 0
    ) -> float:
        """Seconds to wait before the next attempt. Raises where there is none.

        `connecting`: the error is that there is no daemon to ask, not what became of a request.
        `held_ns`: how long a daemon had the request; where it had taken it, the time to find
        another one begins anew.

        What is raised is `error`; or, where the daemon that had refused for its restart did not
        come back in time, that refusal.
        """
        if self._retry == "never":
            raise error
        going = isinstance(error, Rejected) and error.reason is Reason.SHUTTING_DOWN
        died = self._retry == "honour" and isinstance(error, Unavailable) and not connecting
        if held_ns >= TAKEN_NS:
            self._refused, self._attempts = None, 0
        self._deaths += died
        if died and self._deaths > MAX_DEATHS:
            raise error
        if going or died:
            if self._refused is None:
                self._refused, self._gone_ns = error, now_ns
            return self._restarting(error, now_ns)
        if self._refused is not None and connecting and isinstance(error, Unavailable):
            return self._restarting(error, now_ns)
        self._refused, self._attempts = None, 0  # it is back, and has spoken
        if (
            self._retry == "honour"
            and isinstance(error, Rejected)
            and error.retry_after is not None
        ):
            return self._within(error.retry_after, now_ns, error)
        raise error

    def _restarting(self, error: OnegateError, now_ns: int) -> float:
        assert self._refused is not None
        self._attempts += 1
        hint = error.retry_after if isinstance(error, Rejected) else None
        wait_s = self._backoff(self._attempts) if hint is None else hint
        if now_ns + wait_s * NS_PER_S > self._gone_ns + self._restart_ns:
            raise self._refused from (None if error is self._refused else error)
        return self._within(wait_s, now_ns, self._refused)

    def _within(self, wait_s: float, now_ns: int, error: OnegateError) -> float:
        if self._deadline_ns is not None and now_ns + wait_s * NS_PER_S >= self._deadline_ns:
            raise error
        return wait_s
