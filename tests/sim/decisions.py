"""What a decision costs: the core alone, with a thousand requests waiting."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from statistics import median
from time import process_time_ns

from tests.sim.world import SECOND

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    RequestSpec,
    Reservation,
)

WAITING, PRINCIPALS, SEATS = 1000, 10, 8
PROMPT_TOK, MAX_TOK, OUTPUT_TOK = 400, 200, 50
# In so many parts; what else the machine does makes some of them longer.
PARTS, PART = 30, 100
NEVER_NS = 10**6 * SECOND


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of processor time: the middle of the parts, and the least."""

    us: float
    least_us: float


def measure(do: Callable[[], None]) -> Cost:
    """One call of it."""
    parts = []
    for _ in range(PARTS):
        began_ns = process_time_ns()
        for _ in range(PART):
            do()
        parts.append((process_time_ns() - began_ns) / PART / 1000)
    return Cost(median(parts), min(parts))


class Crowded:
    """A core in which `WAITING` requests of batch wait for `SEATS` seats, and some more could."""

    def __init__(self) -> None:
        cost_tok = PROMPT_TOK + MAX_TOK
        room_tok = (WAITING + 2 * SEATS) * cost_tok
        room = {"per_principal_share": 1.0, "safety_timeout_ns": NEVER_NS}
        classes = (
            ClassSpec("interactive", 0, 10**9, **room, preempts=True),
            ClassSpec("loop", 1, 10**9, **room, floor_share=0.05, preemptible=True),
            ClassSpec("batch", 2, room_tok, **room, floor_share=0.05, preemptible=True),
        )
        limits = GateLimits(64, 10**9, 4096, 0, 30 * SECOND, 1024)
        capacity = PoolCapacity(SEATS, 32_768, Reservation.GROW, kv_tok=10**7, max_step_tok=10**6)
        self._core = Controller(limits, classes, (PoolSpec("m", PoolState.READY, capacity),))
        self._rids: Iterator[int] = count(1)
        self._now_ns = 0
        self._running: list[int] = []
        self._said = 0
        for _ in range(20 * SEATS):  # until it has learned what there is to learn
            self._tell(self._request())
            if len(self._running) == SEATS and self._core.view(self._now_ns).queued:
                self.turn()
        while (view := self._core.view(self._now_ns)).queued < WAITING:
            self._tell(self._request())
        assert view.queued_tok + SEATS * cost_tok < room_tok, "or nobody else could wait"

    def fill(self) -> None:
        """Let so many come that the next one finds no room."""
        while not isinstance(self._tell(self._request())[-1], fx.Refuse):
            pass

    def refuse(self) -> None:
        """One more comes, finds no room, and is told when to come back."""
        *_, last = self._tell(self._request())
        assert isinstance(last, fx.Refuse), last

    def token(self) -> None:
        """One that runs says one more, as if none of it would ever end."""
        self._said += 1
        self._tell(ev.Produced(self._running[-1], 1 + self._said % OUTPUT_TOK))

    def turn(self) -> None:
        """One is done, its seat is free, the next starts, and another one comes to wait."""
        rid = self._running.pop(0)
        self._tell(ev.Produced(rid, 1))
        self._tell(ev.Produced(rid, OUTPUT_TOK))
        self._tell(ev.Settled(rid, OUTPUT_TOK, True))
        self._tell(ev.SeatFreed(rid))
        *_, last = self._tell(self._request())
        assert isinstance(last, fx.Queue), last

    def _request(self) -> ev.Arrived:
        rid = next(self._rids)
        now_ns = self._now_ns
        return ev.Arrived(
            RequestSpec(
                rid,
                "m",
                "batch",
                f"uid:{rid % PRINCIPALS}",
                "",
                PROMPT_TOK,
                MAX_TOK,
                now_ns,
                prompt_bytes=4 * PROMPT_TOK,
                ttft_deadline_ns=now_ns + NEVER_NS,
                deadline_ns=now_ns + NEVER_NS,
            )
        )

    def _tell(self, event: ev.Event) -> list[fx.Effect]:
        self._now_ns += SECOND // 100
        effects = self._core.handle(event, self._now_ns)
        self._running += [effect.rid for effect in effects if isinstance(effect, fx.Grant)]
        return effects


def costs() -> dict[str, Cost]:
    """Each decision by its name."""
    crowd = Crowded()
    token = measure(crowd.token)
    turn = measure(crowd.turn)
    crowd.fill()
    return {
        "a token": token,
        "two tokens, settle, seat freed, grant, admit": turn,
        "refusal with a hint and a ticket": measure(crowd.refuse),
    }
