"""`python -m tests.sim replay FILE`: the core once more, from the event log of a daemon.

A core that was made the same way and is told the same gives the same effects, so a log is a test:
of a decision that somebody asks about, and of a change that should not have changed anything.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from onegate.admission.controller import Controller
from onegate.server.event_lines import Began, Line, Lost, Step, WentOn, read


class Differs(Exception):
    """The core says something else than it said then, or the log has no beginning."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How much was the same. `lost` steps were missing: what came after them was not looked at."""

    steps: int
    lost: int


@contextmanager
def _of_the_log(what: str) -> Iterator[None]:
    """Whatever the core raises is said with its place."""
    try:
        yield
    except Exception as error:  # a file can tell a core what no daemon would: any error may follow
        raise Differs(f"{what}: the core has no answer: {error!r}") from error


def replay(lines: Iterable[Line]) -> Replayed:
    """Tell a core everything that the log tells. Raises Differs."""
    core: Controller | None = None
    steps = 0
    for line in lines:
        match line:
            case Began(limits, classes, pools):
                with _of_the_log("the beginning"):
                    core = Controller(limits, classes, pools)
            case Step(now_ns, event, effects):
                if core is None:
                    raise Differs("the log begins in the middle")
                steps += 1
                with _of_the_log(f"step {steps} at {now_ns}: {event}"):
                    said = tuple(core.handle(event, now_ns))
                    core.validate()
                if said != effects:
                    raise Differs(
                        f"step {steps} at {now_ns}: to {event} it said {effects}, now {said}"
                    )
            case WentOn():
                continue
            case Lost(count):
                return Replayed(steps, count)
    return Replayed(steps, 0)


def replay_file(path: str) -> int:
    """Replay a log; the exit code: 0, or 1 with what differs."""
    try:
        found = replay(read(path))
    except (Differs, ValueError, OSError) as error:
        print(f"{path}: {error}")  # noqa: T201
        return 1
    print(f"{path}: {found.steps} steps, the same; {found.lost} missing")  # noqa: T201
    return 0
