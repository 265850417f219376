"""What it means when Ollama does not answer; the speaking is tested over real connections."""

import socket

import pytest

from onegate_ollama_proxy.upstream import Upstream, UpstreamDown, UpstreamError


async def test_nobody_there():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        upstream = Upstream(f"http://127.0.0.1:{probe.getsockname()[1]}")
        with pytest.raises(UpstreamDown, match="is Ollama running there"):
            await upstream.ask("GET", "/", within_s=5.0)
        await upstream.aclose()
        await upstream.aclose()


def test_every_error_is_one_of_its_own():
    upstream = Upstream("http://127.0.0.1:1/")
    for error in (ValueError("x"), TimeoutError()):
        assert isinstance(upstream._not_answered(error), UpstreamError)
