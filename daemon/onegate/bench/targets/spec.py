"""How a target is named on the command line, and what is made of the name."""

import os
from urllib.parse import urlsplit

from msgspec import Struct, structs

from onegate.bench.files import Unreadable, read_text
from onegate.bench.targets.base import Log, Target, TargetError
from onegate.bench.targets.gate import GateTarget
from onegate.bench.targets.host import HostTarget
from onegate.bench.vary import varied
from onegate.client.connect import socket_path
from onegate.config import ConfigError, check, load

KINDS = ("gate", "host", "private", "embedded", "openai", "ollama")
HTTP_KINDS = ("openai", "ollama")
# Daemons of one's own, which have to be started.
PRIVATE_KINDS = ("private", "embedded")
FORMS = (
    "gate[:SOCKET] · host[:CONFIG] · private[:CONFIG] · embedded · openai:URL · ollama:URL, "
    "each with an optional #MODEL"
)
_MAX_CONFIG_BYTES = 1024 * 1024
_HERE = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}
# One program plays many people here, and is not to be treated as the loop that it is.
_PATIENT = "".join(
    f'[[class]]\nname = "{name}"\nbehaviour_live = "none"\nbehaviour_starts_per_min = "none"\n'
    for name in ("interactive", "loop")
)
_SCRIPTED = f'[engine]\nkind = "scripted"\n{_PATIENT}'
_EMBEDDED = f'[engine]\nkind = "openvino"\n{_PATIENT}'


class Spec(Struct, frozen=True):
    """A target by its kind; `where` is a socket, a configuration file or a URL, "" the default.

    `label` is what a report calls it, where that is not what the rest says. `setting` is what its
    configuration has otherwise (`vary`), of a private one.
    """

    kind: str
    where: str = ""
    model: str | None = None
    label: str = ""
    setting: str = ""

    def __str__(self) -> str:
        if self.label:
            return self.label
        text = f"{self.kind}:{self.where}" if self.where else self.kind
        text = text if self.model is None else f"{text}#{self.model}"
        return f"{text}, {self.setting}" if self.setting else text

    @property
    def one_process(self) -> bool:
        """Whether all callers must share one generator: a host has one daemon, and only one."""
        return self.kind == "host"

    def at(self, socket: str) -> "Spec":
        """The same target, once its private daemon listens at `socket`."""
        return structs.replace(self, kind="gate", where=socket, label=str(self))


def read_spec(text: str) -> Spec:
    """`KIND[:WHERE][#MODEL]`. Raises TargetError."""
    rest, _, model = text.partition("#")
    kind, _, where = rest.partition(":")
    if kind not in KINDS:
        raise TargetError(f"{text!r} is no target: it is {FORMS}")
    if kind == "embedded" and where:
        raise TargetError(f"{text!r} has no configuration of its own: private:{where}")
    if kind in HTTP_KINDS and not where.startswith(("http://", "https://", "unix:/")):
        raise TargetError(f"{text!r} lacks its URL: {kind}:http://127.0.0.1:PORT, or unix:/PATH")
    return Spec(kind=kind, where=where, model=model or None)


def server_of(spec: Spec) -> str | None:
    """What the target is reached at, to tell whether two are one; None where each is its own.

    A name and a number of one host are not seen to be the same, but for this machine's.
    """
    if spec.kind not in ("gate", *HTTP_KINDS):
        return None
    if spec.kind == "gate" or spec.where.startswith("unix:"):
        path = spec.where.removeprefix("unix:")
        return os.path.realpath(socket_path(path) if spec.kind == "gate" else path)
    try:
        url = urlsplit(spec.where)
        port = url.port or {"http": 80, "https": 443}.get(url.scheme)
    except ValueError:
        return spec.where
    host = url.hostname or ""
    return f"{_HERE.get(host, host)}:{port}"


def engine_text(spec: Spec) -> str:
    """The configuration of a host or a private daemon. Raises TargetError."""
    text = _EMBEDDED if spec.kind == "embedded" else _SCRIPTED
    if spec.where:
        try:
            text = read_text(spec.where, _MAX_CONFIG_BYTES)
        except Unreadable as error:
            raise TargetError(f"{spec} {error}") from error
    return varied(text, spec.setting) if spec.setting else text


def build(spec: Spec, *, ready_s: float, log: Log) -> Target:
    """The target, not opened. Raises TargetError."""
    if spec.kind == "gate":
        return GateTarget(socket_path(spec.where), spec.model, ready_s=ready_s)
    if spec.kind == "host":
        try:
            config = load(spec.where, environ={}) if spec.where else check(_SCRIPTED)
        except ConfigError as error:
            raise TargetError(f"{spec}: {error}") from error
        kind = config.engine.kind
        if kind in HTTP_KINDS:
            raise TargetError(f"{spec}: {kind} runs in no host. Bare it is {kind}:URL")
        if kind == "tensorrt-llm":  # which loads for minutes
            ready_s = max(ready_s, config.engine.tensorrt_llm.load_timeout_s)
        return HostTarget.of(config, spec.model, ready_s=ready_s, log=log)
    if spec.kind in HTTP_KINDS:
        return _http(spec, ready_s)
    raise TargetError(f"{spec} has to be started before it can be measured")


def _http(spec: Spec, ready_s: float) -> Target:
    """Loaded only here: the rest of the harness does without its library."""
    try:
        from onegate.bench.targets.ollama import OllamaTarget
        from onegate.bench.targets.openai import OpenAiTarget
    except ImportError as error:
        raise TargetError(f"{spec} needs one more package: pip install 'onegate[http]'") from error
    kind = OpenAiTarget if spec.kind == "openai" else OllamaTarget
    return kind(spec.where, spec.model, ready_s=ready_s)
