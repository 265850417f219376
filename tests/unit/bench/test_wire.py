"""Messages between the conductor and a generator."""

from typing import Any

from onegate.bench.prompts import Rule
from onegate.bench.schedule import Arrival
from onegate.bench.targets.spec import Spec
from onegate.bench.wire import (
    MAX_FRAME_BYTES,
    Effort,
    Going,
    Open,
    PartDone,
    Prepare,
    Trouble,
    from_generator,
    packed,
    to_generator,
)
from onegate.protocol.framing import FrameReader


def payload(data: bytes) -> bytes:
    (only,) = FrameReader(MAX_FRAME_BYTES).feed(data)
    return only


def test_both_directions_survive_the_way(made: Any) -> None:
    for out in (
        Open(Spec("gate", "/s"), {"class": [{"name": "chat"}]}, 3.0),
        Prepare("salt", Rule("words", 1, True), [Arrival(-5, 0, 1, 2, 3, 4, "decode")]),
    ):
        assert to_generator.decode(payload(packed(out))) == out
    for back in (
        PartDone([made.record(1, (2, 3))], Effort(cpu_s=1.0, wall_s=2.0, lag_ms=3.0)),
        Going(3),
        Trouble("no"),
    ):
        assert from_generator.decode(payload(packed(back))) == back
