"""What the conductor and a generator say to each other: frames of msgpack on a pair of pipes."""

from typing import Any

import msgspec
from msgspec import Struct

from onegate.bench.prompts import Rule
from onegate.bench.record import Record
from onegate.bench.schedule import Arrival
from onegate.bench.targets.base import Facts
from onegate.bench.targets.spec import Spec
from onegate.protocol.framing import frame

# A part of two million requests with a thousand pieces each would not fit, and is nobody's.
MAX_FRAME_BYTES = 1 << 30


class Open(Struct, frozen=True, tag="open"):
    """Build the target and wait until it can answer. `scenario` is the file's text."""

    spec: Spec
    scenario: dict[str, Any]
    ready_s: float


class Prepare(Struct, frozen=True, tag="prepare"):
    """Make the prompts of a part. Different salts give different prompts."""

    salt: str
    rule: Rule
    arrivals: list[Arrival]


class Go(Struct, frozen=True, tag="go"):
    """Run what was prepared; times on the machine's monotonic clock and from `start_ns` on."""

    start_ns: int
    window_ns: int
    end_ns: int


class Quit(Struct, frozen=True, tag="quit"):
    """Leave."""


ToGenerator = Open | Prepare | Go | Quit


class Opened(Struct, frozen=True, tag="opened"):
    """The target answers; how it counts tokens was learned."""

    facts: Facts
    rule: Rule


class Prepared(Struct, frozen=True, tag="prepared"):
    """The prompts are there."""


class Going(Struct, frozen=True, tag="going"):
    """So many requests are over."""

    done: int


class Effort(Struct, frozen=True, kw_only=True):
    """What one generator took for a part. `lag_ms` is the worst delay of its own event loop."""

    cpu_s: float
    wall_s: float
    lag_ms: float


class PartDone(Struct, frozen=True, tag="done"):
    """The part is over."""

    records: list[Record]
    effort: Effort


class Trouble(Struct, frozen=True, tag="trouble"):
    """The generator cannot go on; one sentence."""

    message: str


FromGenerator = Opened | Prepared | Going | PartDone | Trouble

_encoder = msgspec.msgpack.Encoder()
to_generator = msgspec.msgpack.Decoder(ToGenerator)
from_generator = msgspec.msgpack.Decoder(FromGenerator)


def packed(message: ToGenerator | FromGenerator) -> bytes:
    """The bytes to write."""
    return frame(_encoder.encode(message))
