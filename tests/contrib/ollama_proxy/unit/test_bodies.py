"""Bodies: read in time, and bounded."""

from typing import Any

import pytest

from onegate.protocol.errors import Reason
from onegate_ollama_proxy.bodies import Bodies
from onegate_ollama_proxy.refused import Refused


def bodies(**fields: Any) -> Bodies:
    return Bodies(**({"each_bytes": 10, "total_bytes": 16, "timeout_s": 5.0} | fields))


async def test_a_body_is_held_until_the_request_ends(asked: Any) -> None:
    some = bodies()
    async with some.of(asked(b"12345", b"678").end().request, "eva") as body:
        assert body == b"12345678"
        assert some.held_bytes == 8
    assert some.held_bytes == 0


async def refused(some: Bodies, request: Any, client: str = "eva") -> Any:
    with pytest.raises(Refused) as error:
        async with some.of(request, client):
            raise AssertionError("it was taken")
    return error.value.no


async def test_a_length_that_is_too_long_is_not_read(asked: Any) -> None:
    headers = {"Content-Length": "11"}
    no = await refused(bodies(), asked(**headers).request)
    assert (no.status, no.reason) == (413, Reason.TOO_LARGE)


async def test_a_body_that_turns_out_too_long(asked: Any) -> None:
    some = bodies()
    no = await refused(some, asked(b"123456", b"789012").end().request)
    assert no.status == 413
    assert some.held_bytes == 0


async def test_one_client_has_half_of_all(asked: Any) -> None:
    some = bodies()
    async with some.of(asked(b"12345").end().request, "eva"):
        no = await refused(some, asked(b"1234").end().request)
        assert (no.status, no.reason) == (429, Reason.BYTES_FULL)
        assert no.sentence.startswith("you have")
        assert no.retry_after_ms is not None
        async with some.of(asked(b"12345678").end().request, "bob"):
            no = await refused(some, asked(b"1234").end().request, "max")
            assert no.sentence.startswith("all clients together")
            assert some.held_bytes == 13
    assert some.held_bytes == 0


async def test_a_body_that_stops_in_the_middle(asked: Any) -> None:
    no = await refused(bodies(timeout_s=0.01), asked(b"123").request)
    assert (no.status, no.retryable) == (408, True)


async def test_a_body_that_cannot_be_read(asked: Any) -> None:
    from aiohttp import web

    one = asked(b"1")
    one.payload.set_exception(web.RequestPayloadError("no gzip"))
    no = await refused(bodies(), one.request)
    assert (no.status, no.reason) == (400, Reason.INVALID)


async def test_a_body_that_is_packed_in_a_strange_way(asked: Any) -> None:
    headers = {"Content-Encoding": "snappy"}
    no = await refused(bodies(), asked(b"1", **headers).end().request)
    assert no.reason is Reason.UNSUPPORTED
