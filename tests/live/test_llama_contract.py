"""What every adapter keeps, with a real llama.cpp server behind it."""

import pytest
from tests.contract.test_contract import *  # noqa: F403 - each of its tests, with another engine
from tests.live.llama_server import LlamaServer

from onegate.config import EngineConfig, OpenAiConfig

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="module", params=["llama-server"])
def adapter(llama_home):
    """The prepared server, with as many slots as the other adapters have seats."""
    server = LlamaServer(llama_home, parallel=16, context=16 * 1024)
    yield EngineConfig(
        kind="openai", openai=OpenAiConfig(base_url=server.url + "/v1", boundary="local")
    )
    server.close()
