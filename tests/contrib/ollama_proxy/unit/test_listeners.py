"""Whom the gate is told of, and in which class it is asked."""

from pathlib import Path
from typing import Any

import pytest

from onegate.protocol.errors import Reason
from onegate.protocol.messages import OnBehalf
from onegate_ollama_proxy.ask import BadAsk
from onegate_ollama_proxy.config import SHIPPED_HINTS, ConfigError, HintConfig, ListenerConfig
from onegate_ollama_proxy.listeners import Classes, Listener, listener_of, lower, read_keys
from onegate_ollama_proxy.who import NOBODY, Who

KEY = "0123456789abcdef"
EVA = Who(1000, "session-3.scope", "user-1000.slice")
CLASSES = ["interactive", "loop", "batch"]


def listener(keys: dict[str, str] | None = None, **fields: Any) -> Listener:
    return Listener(ListenerConfig(**fields), keys)


def test_a_user_of_this_machine() -> None:
    assert listener().behalf(EVA, {}) == OnBehalf(
        source="sock_diag",
        uid=1000,
        unit="session-3.scope",
        slice="user-1000.slice",
        ceiling="interactive",
    )


def test_somebody_in_a_container_is_the_listeners() -> None:
    found = listener(principal="webui", ceiling="loop").behalf(NOBODY, {})
    assert found == OnBehalf(source="listener", principal="webui", ceiling="loop")
    assert listener().behalf(NOBODY, {}) == OnBehalf(source="unknown", ceiling="interactive")
    # Whom the kernel knows is himself, also on such an address.
    assert listener(principal="webui").behalf(EVA, {}).principal is None


@pytest.mark.parametrize(
    ("value", "flow"),
    [
        ("eva", "eva"),
        (" eva ", "eva"),
        ("", None),
        ("a\tb", None),
        ("x" * 128, "x" * 128),
        ("x" * 129, None),
    ],
)
def test_users_of_a_program_are_told_apart_by_its_header(value: str, flow: str | None) -> None:
    headers = {"X-User": value}
    assert listener(flow_header="X-User").behalf(NOBODY, headers).flow == flow
    assert listener().behalf(NOBODY, headers).flow is None


def test_who_is_not_of_that_program_is_not_told_apart_by_its_header() -> None:
    headers = {"X-User": "eva"}
    door = listener(flow_header="X-User", principal="webui")
    assert door.behalf(NOBODY, headers).flow == "eva"
    assert door.behalf(EVA, headers).flow is None
    # Where nobody is named, the program is one of this machine.
    assert listener(flow_header="X-User").behalf(EVA, headers).flow == "eva"


def test_a_key_says_who_it_is() -> None:
    door = listener({KEY: "webui"}, ceiling="loop")
    for word in (f"Bearer {KEY}", f"bearer  {KEY} "):
        found = door.behalf(EVA, {"Authorization": word})
        assert found == OnBehalf(source="keyfile", principal="webui", ceiling="loop")


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer ключ"]
)
def test_without_a_key_nobody_comes_in(authorization: str) -> None:
    with pytest.raises(BadAsk) as error:
        listener({KEY: "webui"}).behalf(EVA, {"Authorization": authorization})
    assert error.value.reason is Reason.PERMISSION
    assert KEY not in str(error.value)


def test_a_file_of_keys() -> None:
    text = f"# ours\nwebui {KEY}\n\nbob  abcdefghijklmnop # his\n"
    assert read_keys(text, "keys") == {KEY: "webui", "abcdefghijklmnop": "bob"}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("webui", "line 1: a line is NAME KEY"),
        (f"-x {KEY}", "line 1: a line is NAME KEY"),
        ("webui short", "16 ASCII characters"),
        ("webui " + "ö" * 16, "16 ASCII characters"),
        (f"a {KEY}\nb {KEY}", "line 2: a has the same key"),
        ("\n".join(f"n {i:016}" for i in range(1025)), "1025 keys"),
    ],
)
def test_a_file_of_keys_that_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        read_keys(text, "keys")
    assert sentence in str(error.value)
    assert KEY not in str(error.value)


def test_the_keys_of_a_listener_are_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"webui {KEY}")
    assert listener_of(ListenerConfig(key_file=str(file))).keys == {KEY: "webui"}
    assert listener_of(ListenerConfig()).keys is None
    with pytest.raises(ConfigError):
        listener_of(ListenerConfig(key_file=str(tmp_path / "gone")))


# --- the class of a request -----------------------------------------------------------------------


def choose(headers: dict[str, str], allowed: list[str] | None = None, **fields: Any) -> Any:
    classes = Classes((HintConfig(user_agent="mine/*", class_="batch"), *SHIPPED_HINTS))
    return classes.choose(ListenerConfig(**fields), allowed or CLASSES, headers)


@pytest.mark.parametrize(
    ("headers", "fields", "chosen"),
    [
        ({}, {}, "interactive"),
        ({}, {"class_": "loop"}, "loop"),
        ({}, {"class_": "royal"}, "interactive"),
        ({"User-Agent": "ollama/0.9.3 (x86_64 linux) Go/go1.24"}, {}, "interactive"),
        ({"User-Agent": "ollama-python/0.6.3"}, {}, "loop"),
        ({"User-Agent": "OpenAI/Python 3.57"}, {}, "loop"),
        ({"User-Agent": "mine/1"}, {}, "batch"),
        ({"User-Agent": "ollama-python/0.6.3"}, {"class_": "batch"}, "batch"),
        ({"X-Onegate-Class": "Batch "}, {}, "batch"),
        ({"User-Agent": "mine/1", "X-Onegate-Class": "batch"}, {}, "batch"),
    ],
)
def test_a_client_can_only_lower_itself(
    headers: dict[str, str], fields: dict[str, Any], chosen: str
) -> None:
    assert choose(headers, **fields) == (chosen, ())


@pytest.mark.parametrize(
    ("asked", "fields"),
    [("interactive", {"class_": "loop"}), ("royal", {}), ("interactive", {"class_": "batch"})],
)
def test_what_would_raise_it_is_left_out_and_said(asked: str, fields: dict[str, Any]) -> None:
    chosen, notices = choose({"X-Onegate-Class": asked}, **fields)
    assert chosen == fields.get("class_", "interactive")
    assert asked in notices[0]


def test_the_gate_says_what_is_allowed() -> None:
    assert choose({}, ["batch"]) == ("batch", ())
    assert choose({"User-Agent": "ollama-python/1"}, ["batch"]) == ("batch", ())
    assert choose({"X-Onegate-Class": "interactive"}, ["batch"])[0] == "batch"


def test_a_long_name_is_not_looked_at_to_its_end() -> None:
    assert choose({"User-Agent": "mine/" + "x" * 100_000}) == ("batch", ())


def test_the_lower_of_two() -> None:
    assert lower("loop", "batch", CLASSES) == "batch"
    assert lower("batch", "loop", CLASSES) == "batch"
    assert lower("batch", "royal", CLASSES) == "batch"
