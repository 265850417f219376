"""How long answers are, by class, principal and flow.

A flow's own curve is asked first, then that of its principal, then that of its class. What one
principal says moves its own two curves as it likes. The class's curve, which others fall back to,
holds only the last `VOTES` answers of each principal: a flood replaces its own votes and nobody
else's. Flow names are the caller's to choose, so they cost only the flows of the same principal.
"""

from collections import OrderedDict, deque
from typing import TypeVar

from onegate.admission.estimate.survival import Survival

# Of each class the last so many principals are remembered, of each of these the last so many flows:
# with `VOTES` this bounds memory (3 to 6 KiB a curve) and the cost of a hostile uid's imagination.
PRINCIPALS = 32
FLOWS = 8
# Answers of one principal in its class's curve: two principals make it known.
VOTES = 16

T = TypeVar("T")


class _Principal:
    """One principal in one class."""

    __slots__ = ("curve", "flows", "votes")

    def __init__(self) -> None:
        self.curve = Survival()
        self.flows: OrderedDict[str, Survival] = OrderedDict()
        self.votes: deque[tuple[int, bool]] = deque()


class _Class:
    """One class: its principals, the least recently heard first, and the curve of their votes."""

    __slots__ = ("curve", "principals")

    def __init__(self) -> None:
        self.curve = Survival(memory=None)
        self.principals: OrderedDict[str, _Principal] = OrderedDict()


class Lengths:
    """All curves. Classes are few and named by the configuration; the rest is bounded here."""

    def __init__(self) -> None:
        self._classes: dict[str, _Class] = {}

    def ended(
        self, class_: str, principal: str, flow: str, output_tok: int, *, finished: bool
    ) -> None:
        """An answer of this flow came to its own end, or was stopped, after `output_tok`."""
        in_class = self._classes.setdefault(class_, _Class())
        own = _touch(in_class.principals, principal, _Principal)
        if len(in_class.principals) > PRINCIPALS:
            _, gone = in_class.principals.popitem(last=False)
            for tok, was_finished in gone.votes:
                in_class.curve.take_back(tok, ended=was_finished)
        own.curve.add(output_tok, ended=finished)
        _touch(own.flows, flow, Survival).add(output_tok, ended=finished)
        if len(own.flows) > FLOWS:
            own.flows.popitem(last=False)
        own.votes.append((output_tok, finished))
        in_class.curve.add(output_tok, ended=finished)
        if len(own.votes) > VOTES:
            tok, was_finished = own.votes.popleft()
            in_class.curve.take_back(tok, ended=was_finished)

    def of(self, class_: str, principal: str, flow: str) -> Survival | None:
        """The narrowest curve with enough answers; None when even the class has too few.

        Valid until the next `ended`; not to be changed by the caller.
        """
        in_class = self._classes.get(class_)
        if in_class is None:
            return None
        own = in_class.principals.get(principal)
        if own is not None:
            curve = own.flows.get(flow)
            if curve is not None and curve.known:
                return curve
            if own.curve.known:
                return own.curve
        return in_class.curve if in_class.curve.known else None

    def forget(self) -> None:
        """Another model answers now, or the same one otherwise: nothing is known of it."""
        self._classes.clear()


def _touch(by_name: OrderedDict[str, T], name: str, new: type[T]) -> T:
    """The one of that name, made if need be, as the most recently used."""
    found = by_name.get(name)
    if found is None:
        found = by_name[name] = new()
    by_name.move_to_end(name)
    return found
