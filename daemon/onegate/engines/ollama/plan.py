"""The Ollama engine, from its configuration."""

from collections.abc import Callable

from onegate.config import EngineConfig
from onegate.engines.http.build import http_link, http_settings
from onegate.engines.http.engine import HttpEngine
from onegate.engines.http.gpu import has_gpu
from onegate.engines.ollama.dialect import OllamaDialect


def ollama_engine(
    config: EngineConfig,
    *,
    log: Callable[[str], None],
    crashed: Callable[[str, BaseException], None],
) -> HttpEngine:
    """Not started. Raises EngineUnprepared where the address or the key cannot be used."""
    link, boundary = http_link(config.ollama, allow_remote=config.allow_remote)
    dialect = OllamaDialect(
        config.ollama,
        boundary=boundary,
        allow_remote=config.allow_remote,
        log=log,
        # Of another machine it is not known what it has.
        expects_gpu=boundary == "remote" or has_gpu(),
    )
    return HttpEngine(
        dialect,
        link,
        http_settings(config, config.ollama),
        pools=dialect.first_pools(),
        log=log,
        crashed=crashed,
    )
