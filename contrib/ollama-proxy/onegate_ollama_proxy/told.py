"""What the line of the log says about a request beside its end."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Told:
    """Filled while the request is answered. Nothing of what was asked or answered is in it."""

    class_: str | None = None
    model: str | None = None
    reason: str | None = None
    notices: list[str] = field(default_factory=list)
