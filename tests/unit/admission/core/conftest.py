"""A core with a clock, whose invariants are checked after each event."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from onegate.admission import effects as fx
from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.model import (
    ClassSpec,
    GateLimits,
    PoolCapacity,
    PoolSpec,
    PoolState,
    Refusal,
    RequestSpec,
    Reservation,
)

S = 10**9
LIMITS = GateLimits(
    max_in_flight=64,
    max_queued_tok=10_000,
    max_queued_requests=100,
    look_ahead=0,
    floor_window_ns=30 * S,
    floor_quantum_tok=100,
)
CLASSES = (
    ClassSpec("chat", 0, 2_000, 0.5, 900 * S),
    ClassSpec("loop", 1, 4_000, 0.5, 900 * S, waits_when_closed=True),
    ClassSpec("batch", 2, 10_000, 0.9, 7200 * S),
)


def capacity(seats: int = 1, **fields: Any) -> PoolCapacity:
    """A pool that is bounded by its seats alone, unless told otherwise."""
    plain: dict[str, Any] = {"max_context_tok": 100_000, "reservation": Reservation.GROW}
    return PoolCapacity(max_seqs=seats, **(plain | fields))


def pool(name: str = "m", state: PoolState = PoolState.READY, **fields: Any) -> PoolSpec:
    """A pool of that capacity; `switch_ns` is what loading it costs."""
    switch_ns = fields.pop("switch_ns", None)
    of_pool = {name: fields.pop(name) for name in ("keeps_prefix", "identity") if name in fields}
    return PoolSpec(name, state, capacity(**fields), switch_ns, **of_pool)


def with_floor(**shares: float) -> tuple[ClassSpec, ...]:
    """The classes with these floors."""
    return tuple(replace(c, floor_share=shares.get(c.name, 0.0)) for c in CLASSES)


def preempting(**of_class: dict[str, Any]) -> tuple[ClassSpec, ...]:
    """The classes as they are shipped: chat stops others, loop stops batch and lets chat wait for
    two seconds before it is stopped itself. More fields by class."""
    shipped: dict[str, dict[str, Any]] = {
        "chat": {"preempts": True},
        "loop": {"preempts": True, "preemptible": True, "preempt_grace_ns": 2 * S},
        "batch": {"preemptible": True},
    }
    return tuple(replace(c, **(shipped[c.name] | of_class.get(c.name, {}))) for c in CLASSES)


def request(rid: int, class_: str = "batch", **fields: Any) -> RequestSpec:
    """A small request; `pool="m"`, `principal="p"`, ten tokens of prompt and ten of answer."""
    plain: dict[str, Any] = {
        "pool": "m",
        "principal": "p",
        "flow": "f",
        "prompt_tok": 10,
        "max_tok": 10,
        "arrived_ns": 0,
    }
    return RequestSpec(rid=rid, class_=class_, **(plain | fields))


class Core:
    """A controller and its clock."""

    def __init__(
        self,
        *pools: PoolSpec,
        classes: tuple[ClassSpec, ...] = CLASSES,
        limits: GateLimits = LIMITS,
        **limit_fields: Any,
    ) -> None:
        self.limits = replace(limits, **limit_fields)
        self.controller = Controller(self.limits, classes, pools or (pool(),))
        self.now = 0

    def tell(self, event: ev.Event) -> list[fx.Effect]:
        """What comes of an event now."""
        effects = self.controller.handle(event, self.now)
        self.controller.validate()
        return effects

    def spec(self, rid: int, class_: str = "batch", **fields: Any) -> RequestSpec:
        """A request that comes now."""
        return request(rid, class_, **({"arrived_ns": self.now} | fields))

    def arrive(self, rid: int, class_: str = "batch", **fields: Any) -> list[fx.Effect]:
        """A request comes now."""
        return self.tell(ev.Arrived(self.spec(rid, class_, **fields)))

    def refusal(self, rid: int, class_: str = "batch", **fields: Any) -> Refusal:
        """The refusal that a request gets on arrival."""
        *_, last = self.arrive(rid, class_, **fields)
        assert isinstance(last, fx.Refuse)
        assert (last.rid, last.queued) == (rid, False)
        return last.refusal

    def end(self, rid: int, output_tok: int = 0) -> list[fx.Effect]:
        """A running request finishes, and the engine confirms."""
        effects = self.tell(ev.Settled(rid, output_tok, finished=True))
        return effects + self.tell(ev.SeatFreed(rid))

    def ask(self, class_: str = "batch", **fields: Any) -> Any:
        """The verdict on a request like that of `request`."""
        plain = {"pool": "m", "principal": "p", "prompt_tok": 10, "max_tok": 10}
        return self.controller.ask(class_=class_, now_ns=self.now, **(plain | fields))

    def standing(self, rid: int) -> Any:
        """Where it stands."""
        return self.controller.standing(rid, self.now)

    def view(self) -> Any:
        """Everything."""
        return self.controller.view(self.now)

    def wake(self) -> list[fx.Effect]:
        """The next timer goes off, exactly."""
        wake_ns = self.controller.next_wake_ns()
        assert wake_ns is not None
        assert wake_ns > self.now
        self.now = wake_ns
        return self.tell(ev.Tick())


@pytest.fixture
def core() -> type[Core]:
    """The core."""
    return Core


@pytest.fixture
def make() -> Any:
    """The builders of this module, and the plain limits."""

    class Make:
        pool: Callable[..., PoolSpec] = staticmethod(pool)
        request: Callable[..., RequestSpec] = staticmethod(request)
        capacity: Callable[..., PoolCapacity] = staticmethod(capacity)
        with_floor: Callable[..., tuple[ClassSpec, ...]] = staticmethod(with_floor)
        preempting: Callable[..., tuple[ClassSpec, ...]] = staticmethod(preempting)
        limits = LIMITS
        classes = CLASSES

    return Make
