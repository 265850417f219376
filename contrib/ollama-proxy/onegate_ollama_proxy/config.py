"""The proxy's own configuration: /etc/onegate/ollama-proxy.toml, everything in it optional."""

import os
import tomllib
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from onegate_ollama_proxy.boundary import upstream_url

CONFIG_PATH = "/etc/onegate/ollama-proxy.toml"
# Far above any real file; a wrong path may name a disk image.
MAX_CONFIG_BYTES = 1024 * 1024
OLLAMA_PORT = 11434

_Word = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[a-z][a-z0-9_-]*\Z")]
_Line = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+\Z")]
_Path = Annotated[str, Meta(max_length=4096, pattern=r"^/[^\x00-\x1f\x7f]+\Z")]
_Seconds = Annotated[float, Meta(gt=0, le=86_400)]
_Count = Annotated[int, Meta(ge=1, le=100_000)]
_Bytes = Annotated[int, Meta(ge=1024, le=1 << 32)]


class ConfigError(Exception):
    """The configuration cannot be used; the text says where and why."""


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the tables: an unknown key is an error."""


class ListenerConfig(_Table, frozen=True, rename={"class_": "class"}):
    """One address to listen on, and what its clients may be.

    address      HOST:PORT, or [HOST]:PORT
    ceiling      the best class that a client here can have
    class        the class of a request here that nothing else has lowered; default: the ceiling
    principal    whom clients are counted for of whom the kernel says nothing: those in containers
    key_file     lines of NAME KEY: every client here shows one of the keys, and is that NAME
    flow_header  the header in which a program tells its users apart; it divides the share of that
                 program and no other's, so it needs no trust; beside `principal` it is read of
                 those clients alone
    """

    address: _Line = f"127.0.0.1:{OLLAMA_PORT}"
    ceiling: _Word = "interactive"
    class_: _Word | None = None
    principal: _Line | None = None
    key_file: _Path | None = None
    flow_header: _Line | None = None

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port. Raises ConfigError."""
        host, colon, port = self.address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(f'listener.address "{self.address}" is not HOST:PORT')
        return host.removeprefix("[").removesuffix("]"), int(port)


class HintConfig(_Table, frozen=True, rename={"class_": "class"}):
    """A program that says its name is of that class, unless it is of a lower one already."""

    user_agent: _Line
    class_: _Word


class WaitingConfig(_Table, frozen=True):
    """What becomes of a request of one class that waits for long. Seconds.

    pad_after_s     from then on the client is sent bytes that mean nothing, so that it does not
                    hang up; the answer is 200 from then on, whatever becomes of it
    refuse_after_s  it is refused at once if its first token cannot be there by then
    truncate        a client's own wish to have what is too long cut is followed
    """

    pad_after_s: _Seconds | None = None
    refuse_after_s: _Seconds | None = None
    truncate: bool = True


class ManagementConfig(_Table, frozen=True):
    """Who may change and fetch models through the proxy.

    group     its members may, and root; nobody is a member of a group that does not exist
    everyone  every client may, also one of whom nothing is known
    """

    group: _Line = "onegate-admin"
    everyone: bool = False


# Programs that ask for themselves and not for a person. Whoever says another name is taken at his
# word; what he does is looked at by the gate all the same.
SHIPPED_HINTS = tuple(
    HintConfig(user_agent=pattern, class_="loop")
    for pattern in (
        "ollama-python/*",
        "OpenAI/*",
        "AsyncOpenAI/*",
        "Anthropic/*",
        "AsyncAnthropic/*",
        "python-*",
        "Python-urllib/*",
    )
)
# Node's fetch gives up after 300 s without a header.
SHIPPED_WAITING = {
    "interactive": WaitingConfig(pad_after_s=60),
    "loop": WaitingConfig(pad_after_s=60),
    "batch": WaitingConfig(refuse_after_s=240, truncate=False),
}


class Config(_Table, frozen=True, rename={"listeners": "listener", "hints": "hint"}):
    """All of it.

    gate             the gate's socket; default: where clients look for it
    upstream         Ollama's own address, for what is no inference; none: the gate's engine alone
    allow_remote     models that are answered on other machines may be asked for
    models           names that clients use, and the gate's names for them
    origins, hosts   further web pages and host names that may ask; * is a wildcard
    bodies_bytes     of all bodies that are in memory; half of it for one client
    body_timeout_s   how long a client may say nothing in the middle of a body
    """

    gate: _Path | None = None
    upstream: _Line | None = None
    allow_remote: bool = False
    models: dict[_Line, _Line] = {}
    listeners: tuple[ListenerConfig, ...] = (ListenerConfig(),)
    hints: tuple[HintConfig, ...] = ()
    classes: dict[_Word, WaitingConfig] = msgspec.field(default_factory=dict, name="class")
    management: ManagementConfig = ManagementConfig()
    origins: tuple[_Line, ...] = ()
    hosts: tuple[_Line, ...] = ()
    max_body_bytes: _Bytes = 16 * 1024 * 1024
    bodies_bytes: _Bytes = 256 * 1024 * 1024
    body_timeout_s: _Seconds = 30.0
    max_connections: _Count = 1024
    connections_per_client: _Count = 256
    relay_in_flight: _Count = 16
    drain_timeout_s: _Seconds = 30.0

    def waiting(self, class_: str) -> WaitingConfig:
        """What holds for a class; one that nobody wrote about waits like a person."""
        shipped = SHIPPED_WAITING.get(class_, SHIPPED_WAITING["interactive"])
        return self.classes.get(class_, shipped)


def check(text: str) -> Config:
    """The configuration that `text` (TOML) describes. Raises ConfigError."""
    try:
        document = tomllib.loads(text)
        config = msgspec.convert(document, Config)
    except RecursionError:
        raise ConfigError("not TOML: nested too deeply") from None
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error))) from None
    except ValueError as error:
        # An integer of thousands of digits is one, too.
        raise ConfigError(f"not TOML: {str(error)[:300]}") from None
    if not config.listeners:
        raise ConfigError("listener is empty: name an address to listen on")
    addresses = [listener.endpoint for listener in config.listeners]
    if len(set(addresses)) != len(addresses):
        raise ConfigError("two listeners have the same address: leave one out")
    if config.upstream is not None:
        try:
            url = upstream_url(config.upstream, allow_remote=config.allow_remote)
        except ValueError as error:
            raise ConfigError(f"upstream: {error}") from None
        config = structs.replace(config, upstream=url)
    return config


def _readable(problem: str) -> str:
    """msgspec's sentence with the key first: `listener[0].class: Expected ...`."""
    sentence, _, path = problem.partition(" - at `$.")
    return f"{path.rstrip('`')}: {sentence}" if path else sentence


def load(path: str | None, environ: Mapping[str, str], *, gate: str | None = None) -> Config:
    """The configuration of a file: `path`, else ONEGATE_OLLAMA_PROXY_CONFIG, else the system's if
    there is one; a file that was named must be there. `gate` takes the place of the file's.

    Raises ConfigError.
    """
    named = path or environ.get("ONEGATE_OLLAMA_PROXY_CONFIG")
    if named is None and not os.path.exists(CONFIG_PATH):
        config = Config()
    else:
        config = check(read_text(named or CONFIG_PATH))
    return config if gate is None else structs.replace(config, gate=os.path.abspath(gate))


def read_text(place: str) -> str:
    """A small text file. Raises ConfigError."""
    try:
        with open(place, "rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {place}: {error.strerror}") from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{place} is longer than {MAX_CONFIG_BYTES} bytes: is it the right file?")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{place} is not UTF-8") from None
