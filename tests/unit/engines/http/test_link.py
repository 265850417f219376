import errno
import socket
import ssl

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from onegate.engines.base import EngineUnavailable
from onegate.engines.http.boundary import AddressRefused, parse_address
from onegate.engines.http.link import (
    HttpLink,
    HttpStatus,
    NobodyThere,
    _Away,
    _local_socket,
    _LocalResolver,
    retry_after_ms,
)

KEY = ConnectionKey("box", 1, False, True, None, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", 5000),
        (" 7 ", 7000),
        ("999999999", 86_400_000),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("1" * 30, None),
        ("Thu, 01 Jan 1970 00:00:30 GMT", 20_000),
        ("Thu, 01 Jan 1970 00:00:05 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", 86_400_000),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Thu, 01 Jan 1970 00:00:30 CET", None),
        ("tomorrow GMT", None),
    ],
)
def test_when_to_come_back(text, expected):
    assert retry_after_ms(text, 10_000) == expected


def test_a_status_says_what_the_server_said_in_one_line():
    assert str(HttpStatus(500, b"a\nb", None)) == "the server answered 500: a b"
    assert str(HttpStatus(500, b"", None)) == "the server answered 500: nothing more"


def test_the_key_is_in_no_text():
    link = HttpLink(parse_address("http://127.0.0.1:1"), connect_s=1.0, key="sesame")
    assert "sesame" not in repr(link)
    assert link._headers(None)["Authorization"] == "Bearer sesame"


def test_the_last_look_is_at_the_address_itself():
    for address in (("192.0.2.1", 80), ("0.0.0.0", 80)):
        with pytest.raises(_Away, match="not this machine"):
            _local_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", address))


async def test_a_name_that_leads_away_is_not_resolved(monkeypatch):
    import asyncio

    async def away(*args, **given):
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 80)),
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", away)
    with pytest.raises(_Away, match=r"box is 192\.0\.2\.1"):
        await _LocalResolver().resolve("box", 80)


@pytest.mark.parametrize(
    ("number", "certain"),
    [
        (errno.ECONNREFUSED, True),
        (errno.ENOENT, True),
        (errno.EMFILE, False),
        (errno.EADDRNOTAVAIL, False),
        (errno.EAGAIN, False),
    ],
)
def test_what_says_for_certain_that_nobody_is_there(number, certain):
    link = HttpLink(parse_address("http://127.0.0.1:1"), connect_s=1.0)
    error = aiohttp.ClientConnectorError(KEY, OSError(number, "why"))
    said = link._not_asked(error)
    assert isinstance(said, NobodyThere) is certain
    assert isinstance(said, EngineUnavailable)
    assert "why" in str(said)


def test_a_name_that_is_none_and_a_server_without_tls():
    link = HttpLink(parse_address("https://box:1"), connect_s=1.0)
    no_name = aiohttp.ClientConnectorDNSError(KEY, OSError(-2, "unknown"))
    assert "box is no name" in str(link._not_asked(no_name))
    no_tls = aiohttp.ClientConnectorSSLError(KEY, ssl.SSLError(1, "wrong version"))
    assert "does not speak TLS" in str(link._not_asked(no_tls))
    for error in (no_name, no_tls):
        assert not isinstance(link._not_asked(error), NobodyThere)


async def test_a_closed_link_opens_nothing_more():
    link = HttpLink(parse_address("http://127.0.0.1:9"), connect_s=1.0)
    await link.aclose()
    with pytest.raises(EngineUnavailable, match="stopped"):
        await link.get("/")
    assert link._session is None


async def test_a_remote_address_is_refused_before_anything_is_sent():
    link = HttpLink(parse_address("http://192.0.2.1:9"), connect_s=1.0)
    with pytest.raises(AddressRefused):
        await link.get("/")
    await link.aclose()
    await link.aclose()
