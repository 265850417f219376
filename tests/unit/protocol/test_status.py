"""The status document."""

from msgspec import msgpack

from onegate.protocol.errors import LimitedBy
from onegate.protocol.status import GateStatus, RequestStatus

GATE = GateStatus(
    in_flight=0,
    max_in_flight=1,
    queued=0,
    queued_tok=0,
    max_queued_tok=1,
    inbound_bytes=0,
    sessions=0,
)


def test_what_is_not_known_is_written_as_nil() -> None:
    assert msgpack.decode(msgpack.encode(GATE))["limited_by"] is None


def test_it_can_be_read_by_older_and_newer_programs() -> None:
    document = msgpack.decode(msgpack.encode(GATE)) | {"from_tomorrow": 1, "limited_by": "moon"}
    gate = msgpack.decode(msgpack.encode(document), type=GateStatus)
    assert gate.limited_by == "moon"
    del document["limited_by"]
    assert msgpack.decode(msgpack.encode(document), type=GateStatus).limited_by is None


def test_names_on_the_wire_are_those_of_the_document() -> None:
    row = RequestStatus(
        rid="r", class_="batch", state="queued", age_ms=1, prompt_tok=1, output_tok=0, mine=True
    )
    assert msgpack.decode(msgpack.encode(row))["class"] == "batch"
    assert LimitedBy.SEATS.value == "seats"
