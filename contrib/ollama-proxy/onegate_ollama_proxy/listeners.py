"""Whom the gate is told that a request is for: from the listener, the kernel and the headers."""

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import translate

from onegate.protocol.errors import Reason
from onegate.protocol.messages import OnBehalf
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.config import ConfigError, HintConfig, ListenerConfig, read_text
from onegate_ollama_proxy.who import Who

CLASS_HEADER = "X-Onegate-Class"
# What a user is called elsewhere: long enough for a UUID or an address of mail.
MAX_FLOW_CHARS = 128
MAX_KEYS = 1024
# Shorter ones can be guessed.
MIN_KEY_CHARS = 16
_MAX_MATCHED = 255
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")


@dataclass(frozen=True, slots=True)
class Listener:
    """One address and the rules for its clients. `keys`: NAME by key; None where none is asked."""

    config: ListenerConfig
    keys: Mapping[str, str] | None = None

    def behalf(self, who: Who, headers: Mapping[str, str]) -> OnBehalf:
        """The end client of a request. Raises `BadAsk` for a client without a key that has to have
        one."""
        flow = self._flow(headers)
        ceiling = self.config.ceiling
        if self.keys is not None:
            name = _owner(self.keys, headers.get("Authorization", ""))
            return OnBehalf(source="keyfile", principal=name, flow=flow, ceiling=ceiling)
        principal = self.config.principal
        if who.uid is not None:
            return OnBehalf(
                source="sock_diag",
                uid=who.uid,
                unit=who.unit,
                slice=who.slice,
                # Those that the header is for come as the listener's principal. Another program
                # could be a new person with each request, and never act like a loop.
                flow=flow if principal is None else None,
                ceiling=ceiling,
            )
        if principal is None:
            return OnBehalf(source="unknown", flow=flow, ceiling=ceiling)
        return OnBehalf(source="listener", principal=principal, flow=flow, ceiling=ceiling)

    def _flow(self, headers: Mapping[str, str]) -> str | None:
        header = self.config.flow_header
        value = "" if header is None else headers.get(header, "").strip()
        return value if value and len(value) <= MAX_FLOW_CHARS and value.isprintable() else None


def _owner(keys: Mapping[str, str], authorization: str) -> str:
    """Whose key this is. Every key is compared, so that time tells nothing about any of them."""
    scheme, _, shown = authorization.partition(" ")
    found = None
    for key, name in keys.items():
        if hmac.compare_digest(key.encode(), shown.strip().encode()):
            found = name
    if found is None or scheme.casefold() != "bearer":
        raise BadAsk(
            "this address wants a key: set OLLAMA_API_KEY, or the client's API key, to one of the "
            "keys in the proxy's key file",
            reason=Reason.PERMISSION,
        )
    return found


def read_keys(text: str, place: str) -> dict[str, str]:
    """Lines of `NAME KEY`; `#` begins a comment. Raises ConfigError, and never shows a key."""
    keys: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or _NAME.match(words[0]) is None:
            raise ConfigError(f"{place}, line {number}: a line is NAME KEY")
        name, key = words
        if len(key) < MIN_KEY_CHARS or not key.isascii():
            raise ConfigError(
                f"{place}, line {number}: a key has {MIN_KEY_CHARS} ASCII characters or more: make "
                "one with `openssl rand -hex 16`"
            )
        if key in keys:
            raise ConfigError(f"{place}, line {number}: {keys[key]} has the same key already")
        keys[key] = name
    if len(keys) > MAX_KEYS:
        raise ConfigError(f"{place} has {len(keys)} keys, at most {MAX_KEYS} are read")
    return keys


def listener_of(config: ListenerConfig) -> Listener:
    """A listener with its keys read. Raises ConfigError."""
    if config.key_file is None:
        return Listener(config)
    return Listener(config, read_keys(read_text(config.key_file), config.key_file))


@dataclass(frozen=True, slots=True)
class Classes:
    """What chooses the class of a request, below what its client may have at most."""

    hints: tuple[HintConfig, ...]
    _patterns: tuple[re.Pattern[str], ...] = field(init=False)

    def __post_init__(self) -> None:
        patterns = tuple(re.compile(translate(hint.user_agent)) for hint in self.hints)
        object.__setattr__(self, "_patterns", patterns)

    def choose(
        self, listener: ListenerConfig, allowed: list[str], headers: Mapping[str, str]
    ) -> tuple[str, tuple[str, ...]]:
        """(class, notices). `allowed` are the client's classes as the gate says, best first.

        It begins with the listener's class. What the client says of itself, by its name or by the
        header, can only lower it; the header of a class that there is not, or that is above, is a
        notice.
        """
        chosen = listener.class_ if listener.class_ in allowed else allowed[0]
        agent = headers.get("User-Agent", "")[:_MAX_MATCHED]
        for hint, pattern in zip(self.hints, self._patterns, strict=True):
            if pattern.match(agent):
                chosen = lower(chosen, hint.class_, allowed)
                break
        asked = headers.get(CLASS_HEADER)
        if asked is None:
            return chosen, ()
        wanted = asked.strip().casefold()
        if lower(chosen, wanted, allowed) != wanted:
            sentence = f"{CLASS_HEADER}: {wanted[:40]!a} is no class below {chosen}, left out"
            return chosen, (sentence,)
        return wanted, ()


def lower(chosen: str, other: str, allowed: list[str]) -> str:
    """The lower of two classes; `other` counts only if it is among those allowed."""
    if other not in allowed:
        return chosen
    return max(chosen, other, key=allowed.index)
