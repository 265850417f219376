"""Bodies as they come in."""

import pytest
from aiohttp import web

from onegate_ollama_proxy.incoming import Incoming, small_body
from onegate_ollama_proxy.refused import Refused


@pytest.mark.parametrize("encoding", ["", "identity", "gzip", "GZIP", "deflate", "br", "zstd"])
async def test_what_the_server_unpacks(asked, encoding):
    Incoming(asked(**{"Content-Encoding": encoding}).request, 5.0)


@pytest.mark.parametrize("encoding", ["snappy", "gzip, gzip", "x" * 1000])
async def test_what_it_does_not(asked, encoding):
    with pytest.raises(Refused) as error:
        Incoming(asked(**{"Content-Encoding": encoding}).request, 5.0)
    assert error.value.no.status == 501
    assert len(error.value.no.sentence) < 200


async def test_its_length_is_that_of_what_is_read(asked):
    assert Incoming(asked(**{"Content-Length": "3"}).request, 5.0).length == 3
    packed = {"Content-Length": "3", "Content-Encoding": "gzip"}
    assert Incoming(asked(**packed).request, 5.0).length is None
    assert Incoming(asked().request, 5.0).length is None


async def test_it_is_read_to_its_end(asked):
    incoming = Incoming(asked(b"12", b"3").end().request, 5.0)
    assert b"".join([piece async for piece in incoming.pieces()]) == b"123"
    assert incoming.error is None


async def test_one_that_stops_in_the_middle(asked):
    incoming = Incoming(asked(b"12").request, 0.01)
    pieces = incoming.pieces()
    assert await anext(pieces) == b"12"
    with pytest.raises(Refused) as error:
        await anext(pieces)
    assert error.value.no.status == 408
    assert incoming.error is error.value


async def test_one_that_cannot_be_unpacked(asked):
    one = asked()
    one.payload.set_exception(web.RequestPayloadError("no gzip"))
    with pytest.raises(Refused) as error:
        await Incoming(one.request, 5.0).piece()
    assert error.value.no.status == 400


async def test_a_small_one(asked):
    assert await small_body(asked(b"12", b"3").end().request, 3, 5.0) == b"123"
    with pytest.raises(Refused) as error:
        await small_body(asked(b"12", b"34").request, 3, 5.0)
    assert "longer than 3 bytes" in error.value.no.sentence
    with pytest.raises(Refused) as error:
        await small_body(asked(b"12").request, 3, 0.01)
    assert error.value.no.status == 408
