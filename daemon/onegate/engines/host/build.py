"""Which engine serves which settings."""

import importlib.metadata
from collections.abc import Callable

from onegate.engines.host.engine import HostEngine
from onegate.engines.host.settings import (
    HostSettings,
    OpenVinoSettings,
    TensorRtLlmSettings,
)


def build_engine(settings: HostSettings, *, hang_up: Callable[[], None]) -> HostEngine:
    """The engine, not loaded: that is its first step. Imports no library of another one.

    `hang_up` closes the connection to the daemon; only an engine that plays faults does so.
    """
    if isinstance(settings, OpenVinoSettings):
        from onegate.engines.host.embedded import EmbeddedEngine
        from onegate.engines.host.openvino import open_pipeline

        return EmbeddedEngine(settings, open_pipeline, version=_version("openvino-genai"))
    if isinstance(settings, TensorRtLlmSettings):
        from onegate.engines.host.trtllm.engine import TrtLlmEngine

        return TrtLlmEngine(settings)
    from onegate.engines.host.scripted import ScriptedEngine

    return ScriptedEngine(settings, hang_up=hang_up)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
