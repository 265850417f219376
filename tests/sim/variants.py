"""What may be switched off, one name each, and where: this is the one place that knows."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from onegate.admission.model import ClassSpec, GateLimits


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything about a run that a mechanism hangs on."""

    limits: GateLimits
    classes: tuple[ClassSpec, ...]
    tickets: bool = True
    one_principal: bool = False

    def each_class(self, **given: object) -> "Setup":
        """The same with these fields in every class."""
        return replace(self, classes=tuple(replace(spec, **given) for spec in self.classes))

    def people(self, **given: object) -> "Setup":
        """The same with these fields in the class that comes first."""
        first, *rest = self.classes
        return replace(self, classes=(replace(first, **given), *rest))

    def gate(self, **given: object) -> "Setup":
        """The same with these limits."""
        return replace(self, limits=replace(self.limits, **given))


Switch = Callable[[Setup], Setup]

MECHANISMS: dict[str, Switch] = {
    "preempt": lambda setup: setup.each_class(preempts=False),
    "floor": lambda setup: setup.each_class(floor_share=0.0),
    # Nobody is spared, however much has been computed for him already.
    "protection": lambda setup: setup.gate(recompute_share=1.0),
    # Stop somebody whenever no seat is free, whatever is about to come free.
    "survival": lambda setup: setup.gate(preempt_delta_ns=0),
    "fairness": lambda setup: replace(setup, one_principal=True),
    "displacement": lambda setup: setup.gate(displaces=False),
    "tickets": lambda setup: replace(setup, tickets=False),
    # Everybody is the probe that is let in to see.
    "prediction": lambda setup: setup.gate(probe_after=0),
    "itl": lambda setup: setup.each_class(itl_target_ns=None),
}


def without(setup: Setup, names: Collection[str]) -> Setup:
    """The setup with these mechanisms off. Raises KeyError for one that there is not."""
    for name in names:
        setup = MECHANISMS[name](setup)
    return setup
