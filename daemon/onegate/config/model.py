"""The whole configuration as one frozen value, and the error that says why there is none."""

from typing import NamedTuple

from msgspec import Struct

from onegate.config.classes import SHIPPED_CLASSES, ClassConfig
from onegate.config.engine import EngineConfig
from onegate.config.gate import GateConfig
from onegate.config.log import LogConfig
from onegate.config.rules import SHIPPED_HINTS, Grant, Hint, shipped_grants
from onegate.config.usage import UsageConfig

# More than anybody corrects in one sitting; a hostile file could otherwise print megabytes.
MAX_PROBLEMS_SHOWN = 100


class ConfigProblem(NamedTuple):
    """One thing that is wrong: `path` as in the file (`class.batch.rank`, `grant[0].uid`)."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ConfigError(Exception):
    """The configuration cannot be used. `errors` holds every problem, not only the first."""

    def __init__(self, errors: list[ConfigProblem]) -> None:
        self.errors = errors
        shown = [str(problem) for problem in errors[:MAX_PROBLEMS_SHOWN]]
        if len(errors) > MAX_PROBLEMS_SHOWN:
            shown.append(f"and {len(errors) - MAX_PROBLEMS_SHOWN} more")
        super().__init__("\n".join(shown))


class Config(Struct, frozen=True, kw_only=True):
    """Checked configuration. `classes` is complete and ordered by rank, best first.

    Grants and hints are tried in order, those of the file first, then the shipped ones.
    """

    engine: EngineConfig = EngineConfig()
    gate: GateConfig = GateConfig()
    usage: UsageConfig = UsageConfig()
    log: LogConfig = LogConfig()
    classes: tuple[ClassConfig, ...] = SHIPPED_CLASSES
    grants: tuple[Grant, ...] = ()
    hints: tuple[Hint, ...] = ()
    shipped_grants: tuple[Grant, ...] = shipped_grants(None)
    shipped_hints: tuple[Hint, ...] = SHIPPED_HINTS

    @property
    def step_target_ms(self) -> float | None:
        """How short a step of the engine has to be for the class that wants it shortest; None
        where none says."""
        targets = [cls.itl_target_ms for cls in self.classes if cls.itl_target_ms is not None]
        return min(targets, default=None)
