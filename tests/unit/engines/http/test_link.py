import socket

import pytest

from onegate.engines.http.boundary import AddressRefused, parse_address
from onegate.engines.http.link import (
    HttpLink,
    HttpStatus,
    _Away,
    _local_socket,
    _LocalResolver,
    retry_after_ms,
)


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
        ("Fri, 31 Dec 1999 23:59:59 GMT", None),
    ],
)
def test_when_to_come_back(text, expected):
    assert retry_after_ms(text) == expected


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


async def test_a_remote_address_is_refused_before_anything_is_sent():
    link = HttpLink(parse_address("http://192.0.2.1:9"), connect_s=1.0)
    with pytest.raises(AddressRefused):
        await link.get("/")
    await link.aclose()
    await link.aclose()
