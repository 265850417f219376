"""The proxy's configuration: defaults, and sentences for what is wrong."""

from pathlib import Path

import pytest

from onegate_ollama_proxy import config as module
from onegate_ollama_proxy.config import Config, ConfigError, ListenerConfig, check, load


def test_everything_is_optional() -> None:
    config = check("")
    assert config == Config()
    assert [listener.endpoint for listener in config.listeners] == [("127.0.0.1", 11434)]
    assert (config.upstream, config.allow_remote, config.management.everyone) == (
        None,
        False,
        False,
    )


def test_all_tables_together() -> None:
    config = check(
        """
        gate = "/run/x.sock"
        upstream = "http://127.0.0.1:11435"
        [models]
        gpt = "tiny"
        [[listener]]
        address = "[::1]:1"
        class = "loop"
        [[hint]]
        user_agent = "x/*"
        class = "batch"
        [class.batch]
        refuse_after_s = 5
        [management]
        group = "staff"
        """
    )
    assert config.listeners[0].endpoint == ("::1", 1)
    assert config.listeners[0].class_ == "loop"
    assert config.hints[0].class_ == "batch"
    assert config.waiting("batch").refuse_after_s == 5
    assert config.waiting("batch").truncate is True  # the whole table is the file's
    assert config.waiting("interactive").pad_after_s == 60
    assert config.waiting("own") == config.waiting("interactive")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = 1", "unknown field `x`"),
        ("x =", "not TOML"),
        ("a = " + "[" * 2000, "not TOML"),
        ("a = " + "9" * 5000, "not TOML"),
        ("[[listener]]\nclas = 'x'", "listener[0]: Object contains unknown field"),
        ("[[listener]]\naddress = 'x'", "is not HOST:PORT"),
        ("[[listener]]\naddress = 'x:0'", "is not HOST:PORT"),
        ("[[listener]]\naddress = 'x:99999'", "is not HOST:PORT"),
        ("[[listener]]\naddress = 'x:٣'", "is not HOST:PORT"),
        ("[[listener]]\n[[listener]]", "same address"),
        ("listener = []", "listener is empty"),
        ("[[listener]]\nceiling = 'Bad Name'", "listener[0].ceiling"),
        ("[[listener]]\nkey_file = 'keys'", "listener[0].key_file"),
        ("max_body_bytes = 1", "max_body_bytes: Expected"),
        ("upstream = 'https:/x'", "upstream"),
        ("upstream = 'ollama.example'", "upstream"),
        ("upstream = 'http://ollama.example:11434'", "not this machine"),
        ("gate = 'relative'", "gate: Expected"),
        ("[class.batch]\npad_after_s = -1", "pad_after_s"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        check(text)
    assert sentence in str(error.value)
    assert len(str(error.value)) < 600


def test_elsewhere_where_that_is_allowed() -> None:
    assert check("upstream = 'http://ollama.example:1'\nallow_remote = true").upstream is not None


def test_the_file_is_the_named_one_or_the_environments_or_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CONFIG_PATH", str(tmp_path / "none.toml"))
    assert load(None, {}) == Config()
    file = tmp_path / "a.toml"
    file.write_text("max_connections = 7")
    assert load(str(file), {}).max_connections == 7
    assert load(None, {"ONEGATE_OLLAMA_PROXY_CONFIG": str(file)}).max_connections == 7
    monkeypatch.setattr(module, "CONFIG_PATH", str(file))
    assert load(None, {}).max_connections == 7
    with pytest.raises(ConfigError, match="cannot read"):
        load(str(tmp_path / "gone"), {})


def test_the_gates_socket_on_the_command_line_wins(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("gate = '/a'")
    assert load(str(file), {}).gate == "/a"
    assert load(str(file), {}, gate="/b").gate == "/b"


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(str(file), {})
    monkeypatch.setattr(module, "MAX_CONFIG_BYTES", 4)
    file.write_bytes(b"#####")
    with pytest.raises(ConfigError, match="longer than 4"):
        load(str(file), {})


def test_an_address_without_brackets_is_taken_apart_at_its_last_colon() -> None:
    assert ListenerConfig(address="0.0.0.0:80").endpoint == ("0.0.0.0", 80)
