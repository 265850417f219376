"""What of a request goes on; the carrying itself is tested over real connections."""

import pytest
from aiohttp.test_utils import make_mocked_request

from onegate_ollama_proxy.relay import NDJSON, SSE, _End, forwarded, target, told_error


def test_only_what_may_goes_on():
    headers = {
        "Authorization": "Bearer x",
        "Cookie": "a=b",
        "Origin": "http://evil.example",
        "X-Whatever": "1",
        "Content-Type": "application/json",
        "anthropic-version": "2023-06-01",
    }
    assert forwarded(headers) == {
        "Content-Type": "application/json",
        "anthropic-version": "2023-06-01",
    }


@pytest.mark.parametrize(
    ("asked", "goes_on"),
    [
        ("/api/show", "/api/show"),
        ("/api/show?a=%2Fb", "/api/show?a=%2Fb"),
        ("/v1/models/a%2Fb", "/v1/models/a%2Fb"),
        ("http://localhost/api/show?a=%2Fb", "/api/show?a=%2Fb"),
        ("http://x@127.0.0.1:1/v1/models/a%2Fb", "/v1/models/a%2Fb"),
    ],
)
def test_no_name_of_a_host_goes_on(asked, goes_on):
    assert target(make_mocked_request("GET", asked)) == goes_on


@pytest.mark.parametrize(
    ("kind", "said", "is_between"),
    [
        (NDJSON, [], True),
        (NDJSON, [b'{"a":1}\n'], True),
        (NDJSON, [b'{"a":1}\n{'], False),
        (NDJSON, [b'{"a":1}', b"\n"], True),
        (SSE, [], True),
        (SSE, [b"data: 1\n\n"], True),
        (SSE, [b"data: 1\n"], False),
        (SSE, [b"data: 1", b"\n", b"\n"], True),
        ("application/json", [], False),
        ("application/json", [b"{}\n\n"], False),
    ],
)
def test_where_an_error_can_be_added(kind, said, is_between):
    end = _End(kind)
    for piece in said:
        end.saw(piece)
    assert end.is_between == is_between


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b'{"error":"model not found"}', "model not found"),
        (b'{"error":{"message":"bad input","type":"x"}}', "bad input"),
        (b'{"type":"error","error":{"type":"x","message":"bad input"}}', "bad input"),
        (b'{"error":""}', None),
        (b'{"error":{}}', None),
        (b'{"error":{"message":5}}', None),
        (b"{}", None),
        (b"<html>", None),
        (b"\xff", None),
        (b'{"error":' + b"[" * 100_000, None),
    ],
)
def test_the_sentence_of_an_error(document, sentence):
    assert told_error(document) == sentence
