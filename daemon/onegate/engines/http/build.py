"""The link and the settings of an HTTP engine, from its configuration."""

import os
from dataclasses import replace
from pathlib import Path

from onegate.config import EngineConfig, HttpConfig
from onegate.engines.http.boundary import is_local, parse_address
from onegate.engines.http.link import HttpLink
from onegate.engines.http.settings import HttpSettings
from onegate.engines.plan import EngineUnprepared

# How often a server is looked at. A llama-server must be left alone for more than a second at a
# time, or it does not notice whose connection is gone.
_WATCH_S = 5.0
_MAX_KEY_BYTES = 64 << 10


def http_link(config: HttpConfig, *, allow_remote: bool, cut: str = "") -> tuple[HttpLink, str]:
    """The way to the server, and where it leads: `local`, `remote` or `unknown`.

    `cut` is taken off the end of the base URL's path. Raises EngineUnprepared.
    """
    try:
        address = parse_address(config.base_url)
    except ValueError as error:
        raise EngineUnprepared(f"base_url cannot be used: {error}") from error
    address = replace(address, prefix=address.prefix.removesuffix(cut))
    link = HttpLink(
        address,
        connect_s=config.connect_timeout_s,
        allow_remote=allow_remote,
        key=None if config.api_key_file is None else read_key(config.api_key_file),
        ca_file=config.ca_file,
    )
    here = address.socket is not None or address.host == "localhost" or is_local(address.host)
    # With remote addresses allowed, a name may lead anywhere.
    return link, config.boundary if here or not allow_remote else "remote"


def http_settings(config: EngineConfig, http: HttpConfig) -> HttpSettings:
    """Deadlines, and how a server that is away is asked for again."""
    return HttpSettings(
        first_s=http.first_timeout_s,
        idle_s=http.idle_timeout_s,
        confirm_s=http.confirm_timeout_s,
        watch_s=_WATCH_S,
        backoff_first_ms=config.restart_backoff_ms,
        backoff_max_ms=config.restart_backoff_max_ms,
        backoff_reset_s=config.restart_reset_s,
    )


def read_key(name: str) -> str:
    """The key in a file, or in a systemd credential where `name` has no slash. Raises
    EngineUnprepared with a sentence in which the key is not."""
    path = Path(name)
    if "/" not in name:
        directory = os.environ.get("CREDENTIALS_DIRECTORY")
        if directory is None:
            raise EngineUnprepared(
                f"api_key_file = {name!r} is a systemd credential, and there are none: add "
                f"LoadCredential={name}:FILE to the service, or write an absolute path"
            )
        path = Path(directory) / name
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_KEY_BYTES + 1)
    except OSError as error:
        raise EngineUnprepared(f"api_key_file {path} cannot be read: {error.strerror}") from error
    try:
        key = data.decode("ascii").strip()
    except UnicodeDecodeError:
        key = ""
    if not key or len(data) > _MAX_KEY_BYTES or not key.isprintable() or " " in key:
        raise EngineUnprepared(f"api_key_file {path} does not hold one key on one line")
    return key
