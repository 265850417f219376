"""The `openai` engine, from its configuration."""

from collections.abc import Callable

from onegate.config import EngineConfig
from onegate.engines.http.build import http_link, http_settings
from onegate.engines.http.engine import HttpEngine
from onegate.engines.openai.dialect import OpenAiDialect
from onegate.engines.openai.survey import expected_pools


def openai_engine(
    config: EngineConfig,
    *,
    log: Callable[[str], None],
    crashed: Callable[[str, BaseException], None],
) -> HttpEngine:
    """Not started. Raises EngineUnprepared."""
    link, boundary = http_link(config.openai, allow_remote=config.allow_remote, cut="/v1")
    return HttpEngine(
        OpenAiDialect(config.openai, boundary=boundary),
        link,
        http_settings(config, config.openai),
        pools=expected_pools(config.openai),
        log=log,
        crashed=crashed,
    )
