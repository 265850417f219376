"""What it means when Ollama does not answer; the speaking is tested over real connections."""

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from onegate_ollama_proxy.upstream import Upstream, UpstreamBroke, UpstreamDown

KEY = ConnectionKey("127.0.0.1", 1, False, True, None, None, None)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (aiohttp.ClientConnectorError(KEY, OSError(111, "refused")), UpstreamDown),
        (aiohttp.ConnectionTimeoutError(), UpstreamDown),
        (aiohttp.ServerDisconnectedError(), UpstreamBroke),
        (aiohttp.ClientOSError(104, "reset"), UpstreamBroke),
        (aiohttp.ClientPayloadError(), UpstreamBroke),
        (ValueError("no HTTP"), UpstreamBroke),
        (TimeoutError(), UpstreamBroke),
    ],
)
def test_every_error_is_one_of_its_own_and_says_where(error, kind):
    found = Upstream("http://127.0.0.1:11435")._not_answered(error)
    assert type(found) is kind
    assert str(found)


def test_where_it_is():
    assert str(Upstream("http://127.0.0.1:11435")) == "http://127.0.0.1:11435"


async def test_it_can_be_closed_before_it_was_used_and_twice():
    upstream = Upstream("http://127.0.0.1:11435")
    await upstream.aclose()
    await upstream.aclose()
