"""Frames: cut anywhere, bounded before anything is kept, linear however they drip."""

import tracemalloc

import pytest

from onegate.protocol.errors import LocalProtocolError, RemoteProtocolError
from onegate.protocol.framing import DEFAULT_MAX_FRAME_BYTES, FrameReader, frame


def fed(reader: FrameReader, data: bytes | bytearray | memoryview) -> list[bytes]:
    return list(reader.feed(data))


def test_a_frame_is_its_length_and_its_payload() -> None:
    assert frame(b"abc") == b"\x00\x00\x00\x03abc"


def test_nothing_is_no_frame() -> None:
    with pytest.raises(LocalProtocolError):
        frame(b"")


def test_a_length_that_four_bytes_cannot_hold_is_refused() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**32

    with pytest.raises(LocalProtocolError):
        frame(Huge())


def test_payloads_come_out_in_order() -> None:
    reader = FrameReader(10)
    assert fed(reader, frame(b"a") + frame(b"bc") + frame(b"def")[:5]) == [b"a", b"bc"]
    assert fed(reader, b"ef") == [b"def"]
    assert reader.frames == 3


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_takes_any_kind_of_bytes_and_returns_bytes(kind: type) -> None:
    data = frame(b"abc")
    (whole,) = fed(FrameReader(10), kind(data))
    reader = FrameReader(10)
    fed(reader, kind(data[:5]))
    (pieced,) = fed(reader, kind(data[5:]))
    assert (type(whole), whole) == (type(pieced), pieced) == (bytes, b"abc")


def test_a_reused_buffer_does_not_change_what_was_taken() -> None:
    buffer = bytearray(frame(b"abc"))
    (payload,) = fed(FrameReader(10), buffer)
    buffer[:] = b"\xff" * len(buffer)  # also proves that no view of it is held
    buffer.clear()
    assert payload == b"abc"


def test_tells_what_is_unfinished() -> None:
    reader = FrameReader(10)
    seen = []
    for byte in frame(b"ab"):
        seen.append((reader.incomplete, reader.buffered_bytes, reader.frames))
        fed(reader, bytes([byte]))
    assert seen == [(i > 0, i, 0) for i in range(6)]
    assert (reader.incomplete, reader.buffered_bytes, reader.frames) == (False, 0, 1)


def test_the_largest_frame_is_taken_and_one_byte_more_is_not() -> None:
    assert fed(FrameReader(10), frame(b"x" * 10)) == [b"x" * 10]
    with pytest.raises(RemoteProtocolError, match="11 bytes was announced; at most 10"):
        fed(FrameReader(10), frame(b"x" * 11)[:4])


def test_what_came_before_a_lying_header_is_not_lost() -> None:
    reader = FrameReader(10)
    payloads = reader.feed(frame(b"a") + frame(b"bc") + b"\0\0\0\0")
    assert [next(payloads), next(payloads)] == [b"a", b"bc"]
    with pytest.raises(RemoteProtocolError):
        next(payloads)
    assert reader.frames == 2


def test_two_gibibytes_are_refused_by_their_header() -> None:
    with pytest.raises(RemoteProtocolError, match="2147483648"):
        fed(FrameReader(DEFAULT_MAX_FRAME_BYTES), b"\x80\x00\x00\x00")


def test_an_empty_frame_is_refused() -> None:
    reader = FrameReader(10)
    fed(reader, b"\x00\x00\x00")
    with pytest.raises(RemoteProtocolError, match="empty"):
        fed(reader, b"\x00")


def test_a_maximum_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="max_frame_bytes"):
        FrameReader(0)


def test_a_large_frame_is_copied_a_few_times_whatever_the_pieces() -> None:
    payload = bytes(DEFAULT_MAX_FRAME_BYTES)
    data = frame(payload)
    reader, got = FrameReader(DEFAULT_MAX_FRAME_BYTES), []
    tracemalloc.start()
    try:
        for i in range(0, len(data), 65536):
            got += fed(reader, data[i : i + 65536])
        peak_bytes = tracemalloc.get_traced_memory()[1]
        held_bytes = tracemalloc.get_traced_memory()[0] - len(got[0])
    finally:
        tracemalloc.stop()
    assert got == [payload]
    assert peak_bytes < 2.3 * len(payload)
    assert held_bytes < 100_000  # the buffer is given back


def test_dripped_bytes_cost_no_object_each() -> None:
    reader = FrameReader(DEFAULT_MAX_FRAME_BYTES)
    fed(reader, frame(bytes(200_001))[:4])
    tracemalloc.start()
    try:
        for _ in range(200_000):
            fed(reader, b"\x00")
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
