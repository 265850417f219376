"""What no single key shows: keys that contradict each other, and keys that waste each other."""

import ipaddress
import os
from collections.abc import Callable, Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from onegate.config.classes import ClassConfig
from onegate.config.engine import HOST_SOCKET_PATH, EngineConfig
from onegate.config.gate import GateConfig
from onegate.config.http import HttpConfig, OpenAiConfig
from onegate.config.model import Config, ConfigProblem
from onegate.config.ollama import OllamaConfig
from onegate.config.units import MAX_SOCKET_PATH_BYTES
from onegate.config.window import parse

# path of the key to blame, what is wrong with it, other keys that the judgement rests on
_Say = Callable[..., None]


def contradictions(config: Config, bad: Collection[str] = ()) -> list[ConfigProblem]:
    """Errors between keys. A judgement that rests on a path in `bad` is left out: it would blame
    a default for what the reader already reported."""
    found: list[ConfigProblem] = []

    def say(path: str, message: str, *others: str) -> None:
        if not any(key in bad for key in (path, *others)):
            found.append(ConfigProblem(path, message))

    _engine(config.engine, say)
    _gate(config.gate, say)
    _look_ahead(config, say)
    _usage(config, say)
    for cls in config.classes:
        _class(cls, say)
    _between_classes(config.classes, say)
    return found


def _engine(engine: EngineConfig, say: _Say) -> None:
    at = "engine"
    if engine.restart_backoff_ms > engine.restart_backoff_max_ms:
        text = f"above restart_backoff_max_ms ({engine.restart_backoff_max_ms})"
        say(f"{at}.restart_backoff_ms", text, f"{at}.restart_backoff_max_ms")
    if (
        engine.kind == "openvino"
        and engine.prefix_cache
        and engine.prefix_cache_scope == "principal"
    ):
        text = "an openvino engine cannot separate users: set prefix_cache = false, or say shared"
        say(f"{at}.prefix_cache_scope", text, f"{at}.kind", f"{at}.prefix_cache")
    if (path := engine.host_socket) is not None:
        length = len(os.fsencode(path))
        if not path.startswith("/"):
            say(f"{at}.host_socket", "expected an absolute path")
        elif length > MAX_SOCKET_PATH_BYTES:
            text = f"{length} bytes long; a socket's path has at most {MAX_SOCKET_PATH_BYTES}"
            say(f"{at}.host_socket", text)
    if engine.kind == "scripted":
        _scripted(engine, say)
        return
    if engine.kind == "ollama":
        _http(engine.ollama, engine.allow_remote, "engine.ollama", say)
        _ollama(engine.ollama, say)
        return
    if engine.kind == "openai":
        _http(engine.openai, engine.allow_remote, "engine.openai", say)
        _openai(engine.openai, say)
        return
    kv_tok, kv_at = engine.kv_tok, f"{at}.kv_tok"
    if engine.kind == "tensorrt-llm":
        kv_tok = engine.tensorrt_llm.kv_tok or engine.context_tok
        kv_at = f"{at}.tensorrt_llm.kv_tok"
        if engine.max_step_tok <= engine.max_seqs:
            text = f"not above max_seqs ({engine.max_seqs}): beside as many answers no prompt fits"
            say(f"{at}.max_step_tok", text, f"{at}.max_seqs")
    if engine.context_tok > kv_tok:
        text = f"above kv_tok ({kv_tok}): one long request could never run"
        say(f"{at}.context_tok", text, kv_at)


def _http(http: HttpConfig, allow_remote: bool, at: str, say: _Say) -> None:
    try:
        host, port = _host_and_port(http.base_url)
    except ValueError as error:
        say(f"{at}.base_url", str(error))
        return
    away = "text would leave this machine: set engine.allow_remote = true if it may"
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        pass  # a name is looked up when the engine is started
    else:
        if not ip.is_loopback and not allow_remote:
            say(f"{at}.base_url", f"{host} is not this machine, {away}", "engine.allow_remote")
        if not ip.is_loopback and http.boundary == "local":
            say(f"{at}.boundary", f"{host} is not this machine", f"{at}.base_url")
    if port == 0:
        say(f"{at}.base_url", "0 is no port")


def _host_and_port(url: str) -> tuple[str, int | None]:
    if url.startswith("unix:"):
        if not url.startswith("unix:/"):
            raise ValueError("unix: is followed by an absolute path")
        return "127.0.0.1", None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://HOST:PORT, https://HOST:PORT or unix:/PATH")
    if parts.username is not None or parts.password is not None:
        raise ValueError("a name or a password has no place in it: use api_key_file")
    if parts.query or parts.fragment:
        raise ValueError("expected no ? and no # in it")
    return parts.hostname, parts.port


def _openai(openai: OpenAiConfig, say: _Say) -> None:
    seen: set[str] = set()
    for i, pool in enumerate(openai.pools):
        if pool.model in seen:
            say(f"engine.openai.pools[{i}].model", f'"{pool.model}" is already a pool')
        seen.add(pool.model)


def _ollama(ollama: OllamaConfig, say: _Say) -> None:
    at = "engine.ollama.models"
    if not ollama.models:
        say(at, "name at least one: `ollama list` shows what there is")
    seen: set[str] = set()
    for i, model in enumerate(ollama.models):
        # One model has several spellings there: no tag is `:latest`, and case says nothing.
        name = model.model.casefold().removesuffix(":latest")
        if name in seen:
            say(f"{at}[{i}].model", f'"{model.model}" is already a pool')
        seen.add(name)


def _scripted(engine: EngineConfig, say: _Say) -> None:
    at = "engine.scripted.pools"
    seen: set[str] = set()
    if not engine.scripted.pools:
        say(at, "an engine has at least one pool")
    for i, pool in enumerate(engine.scripted.pools):
        if pool.model in seen:
            say(f"{at}[{i}].model", f'"{pool.model}" is already a pool')
        seen.add(pool.model)
        if pool.reservation != "per_slot" and pool.context_tok > pool.kv_tok:
            text = f"above kv_tok ({pool.kv_tok}): one long request could never run"
            say(f"{at}[{i}].context_tok", text, f"{at}[{i}].kv_tok")


_GATE_ORDER = (
    ("sessions_per_uid", "sessions_total", "one user could never reach it"),
    ("inbound_bytes_per_principal", "inbound_bytes", "one user could never reach it"),
    ("max_frame_bytes", "inbound_bytes_per_principal", "a frame that long could never be accepted"),
    ("write_high_water_bytes", "write_buffer_max_bytes", "a slow reader would never be held back"),
    ("unread_bytes_per_principal", "unread_bytes", "one user could never reach it"),
    ("write_buffer_max_bytes", "unread_bytes_per_principal", "no connection could reach it"),
    ("floor_quantum_tok", "max_queued_tok", "no queue could hold one quantum"),
)


def _gate(gate: GateConfig, say: _Say) -> None:
    for low, high, consequence in _GATE_ORDER:
        bound = getattr(gate, high)
        if getattr(gate, low) > bound:
            say(f"gate.{low}", f"above {high} ({bound}): {consequence}", f"gate.{high}")
    # A mode written in decimal often lands on bits that mean nothing for a socket.
    if gate.socket_mode & ~0o666:
        text = f"0o{gate.socket_mode:o} has execute bits; write it in octal, as 0o660"
        say("gate.socket_mode", text)


# A host has no queue of its own and takes as many requests as it has seats. A server's queue knows
# no ranks, so its adapter sends no more than that either.
_NO_LOOK_AHEAD = ("openvino", "scripted", "ollama", "openai")


def _look_ahead(config: Config, say: _Say) -> None:
    kind = config.engine.kind
    if config.gate.look_ahead and kind in _NO_LOOK_AHEAD:
        text = f'must be 0: an engine of kind "{kind}" takes no more requests than it has seats'
        say("gate.look_ahead", text, "engine.kind")


def _usage(config: Config, say: _Say) -> None:
    usage, n_classes = config.usage, len(config.classes)
    # One more than the principals: those that are added up.
    day_rows = (usage.principals_per_day + 1) * n_classes
    if day_rows > usage.max_rows:
        text = f"below {day_rows}, one full day: principals_per_day and one, by {n_classes} classes"
        say("usage.max_rows", text, "usage.principals_per_day")


_CLASS_ORDER = (
    ("max_tokens_default", "max_tokens_max"),
    ("ttft_timeout_ms", "ttft_timeout_ms_max"),
    ("timeout_ms", "timeout_ms_max"),
    ("ttft_timeout_ms", "timeout_ms"),
)


def _class(cls: ClassConfig, say: _Say) -> None:
    at = f"class.{cls.name}"
    for low, high in _CLASS_ORDER:
        bound = getattr(cls, high)
        value = getattr(cls, low)
        if bound is None or (value is None and low == "ttft_timeout_ms" and high == "timeout_ms"):
            continue
        if value is None or value > bound:
            shown = "none" if value is None else value
            say(f"{at}.{low}", f"{shown} is above {high} ({bound})", f"{at}.{high}")
    for i, text in enumerate(cls.run_window):
        try:
            parse(text)
        except ValueError as error:
            say(f"{at}.run_window[{i}]", str(error), f"{at}.run_window")


def _between_classes(classes: tuple[ClassConfig, ...], say: _Say) -> None:
    holder: dict[int, str] = {}
    for cls in classes:
        if cls.rank in holder:
            other = holder[cls.rank]
            text = f'{cls.rank} is already the rank of "{other}"'
            say(f"class.{cls.name}.rank", text, f"class.{other}.rank")
        holder[cls.rank] = cls.name
    total = sum(cls.floor_share for cls in classes)
    if total >= 1:
        keys = [f"class.{cls.name}.floor_share" for cls in classes]
        say("class", f"floor shares add up to {total:g}; together they must stay below 1", *keys)


class PoolFacts(NamedTuple):
    """What one pool turned out to be able to do; None where the engine does not say."""

    model: str
    max_context_tok: int | None
    max_seqs: int | None


def configured_pools(config: Config) -> tuple[PoolFacts, ...]:
    """The pools as far as the file itself decides them; none for a server that is not ours."""
    engine = config.engine
    if engine.kind == "scripted":
        return tuple(PoolFacts(p.model, p.context_tok, p.max_seqs) for p in engine.scripted.pools)
    if engine.kind == "ollama":
        return tuple(PoolFacts(m.model, m.context_tok, m.max_seqs) for m in engine.ollama.models)
    if engine.kind in ("openvino", "tensorrt-llm"):
        return (PoolFacts(engine.model, engine.context_tok, engine.max_seqs),)
    return ()


def warnings(config: Config, pools: tuple[PoolFacts, ...] = ()) -> list[ConfigProblem]:
    """What works but is probably not meant. `pools`: what is known of the engine by now; empty:
    what the file says about it."""
    found: list[ConfigProblem] = []
    engine = config.engine
    foreign = engine.needs_host and engine.host_socket != HOST_SOCKET_PATH
    if foreign and engine.python is not None:
        text = "not used: whoever starts the host at engine.host_socket chooses its interpreter"
        found.append(ConfigProblem("engine.python", text))
    gate = config.gate
    for pool in pools or configured_pools(config):
        if pool.max_seqs is not None and gate.max_in_flight < pool.max_seqs:
            text = f'{gate.max_in_flight} is below the {pool.max_seqs} seats of "{pool.model}"'
            found.append(ConfigProblem("gate.max_in_flight", f"{text}: some stay empty"))
        if (context := pool.max_context_tok) is not None:
            found.extend(_too_small_for(config, pool.model, context))
    for cls in config.classes:
        if cls.max_queued_tok > gate.max_queued_tok:
            text = f"above gate.max_queued_tok ({gate.max_queued_tok}), which is reached first"
            found.append(ConfigProblem(f"class.{cls.name}.max_queued_tok", text))
        if cls.timeout_ms is not None and cls.timeout_ms > cls.safety_timeout_s * 1000:
            text = f"{cls.safety_timeout_s:g} s end requests before timeout_ms ({cls.timeout_ms})"
            found.append(ConfigProblem(f"class.{cls.name}.safety_timeout_s", text))
        if cls.daily_tok is not None and cls.daily_tok < cls.max_tokens_default:
            text = f"below max_tokens_default ({cls.max_tokens_default}): one answer may use it up"
            found.append(ConfigProblem(f"class.{cls.name}.daily_tok", text))
    found.extend(_nobody_below(config.classes))
    return found


def _nobody_below(classes: tuple[ClassConfig, ...]) -> list[ConfigProblem]:
    """Keys that speak of lower classes where there are none. `classes`: best first."""
    found: list[ConfigProblem] = []
    for i, cls in enumerate(classes):
        at, below = f"class.{cls.name}", classes[i + 1 :]
        if cls.preempt == "lower_rank" and not any(other.preemptible for other in below):
            text = 'no class of a lower rank is preemptible, so nothing is stopped: say "never"'
            found.append(ConfigProblem(f"{at}.preempt", text))
        for key in ("behaviour_live", "behaviour_starts_per_min"):
            if getattr(cls, key) is not None and not below:
                text = "there is no class of a lower rank to be treated as"
                found.append(ConfigProblem(f"{at}.{key}", text))
    return found


def _too_small_for(config: Config, model: str, context_tok: int) -> list[ConfigProblem]:
    found: list[ConfigProblem] = []
    for cls in config.classes:
        at = f"class.{cls.name}"
        quota = int(cls.max_queued_tok * cls.per_principal_share)
        if cls.max_queued_tok < context_tok:
            text = f'below the context of "{model}" ({context_tok}): longer requests cannot queue'
            found.append(ConfigProblem(f"{at}.max_queued_tok", text))
        elif quota < context_tok:
            text = f'leaves one user {quota} tokens, below the context of "{model}"'
            found.append(ConfigProblem(f"{at}.per_principal_share", f"{text} ({context_tok})"))
    return found
