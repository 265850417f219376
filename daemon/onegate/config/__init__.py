"""Configuration: read once, checked whole, then frozen.

`check` and `load` give a `Config` or raise `ConfigError` with every problem; `warnings` says what
works but is probably not meant; `reference` writes the page that documents it all.
"""

from onegate.config.checks import PoolFacts, warnings
from onegate.config.classes import ORDINARY_CLASS, ClassConfig
from onegate.config.document import check, load, needs_restart, socket_path
from onegate.config.engine import (
    EngineConfig,
    ScriptedConfig,
    ScriptedPool,
    TensorRtLlmConfig,
)
from onegate.config.gate import GateConfig
from onegate.config.http import HttpConfig, OpenAiConfig, OpenAiPool
from onegate.config.log import LogConfig
from onegate.config.model import Config, ConfigError, ConfigProblem
from onegate.config.ollama import OllamaConfig, OllamaModel
from onegate.config.page import reference, rule_text
from onegate.config.rules import Grant, Hint
from onegate.config.usage import MAX_USAGE_ROWS, UsageConfig, usage_directory

__all__ = [
    "MAX_USAGE_ROWS",
    "ORDINARY_CLASS",
    "ClassConfig",
    "Config",
    "ConfigError",
    "ConfigProblem",
    "EngineConfig",
    "GateConfig",
    "Grant",
    "Hint",
    "HttpConfig",
    "LogConfig",
    "OllamaConfig",
    "OllamaModel",
    "OpenAiConfig",
    "OpenAiPool",
    "PoolFacts",
    "ScriptedConfig",
    "ScriptedPool",
    "TensorRtLlmConfig",
    "UsageConfig",
    "check",
    "load",
    "needs_restart",
    "reference",
    "rule_text",
    "socket_path",
    "usage_directory",
    "warnings",
]
