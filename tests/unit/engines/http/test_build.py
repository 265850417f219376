import pytest

from onegate.config import EngineConfig, HttpConfig
from onegate.engines.http.build import http_link, http_settings, read_key
from onegate.engines.plan import EngineUnprepared


@pytest.mark.parametrize(
    ("url", "remote", "declared", "expected"),
    [
        ("http://127.0.0.1:1", False, "unknown", "unknown"),
        ("http://127.0.0.1:1", True, "local", "local"),
        ("unix:/x", True, "unknown", "unknown"),
        ("http://192.0.2.1:1", True, "local", "remote"),
        ("http://box:1", True, "local", "remote"),
        ("http://box:1", False, "local", "local"),
    ],
)
def test_where_it_leads(url, remote, declared, expected):
    config = HttpConfig(base_url=url, boundary=declared)
    assert http_link(config, allow_remote=remote)[1] == expected


def test_the_end_of_the_path_can_be_cut():
    link, _ = http_link(HttpConfig(base_url="http://[::1]:1/a/v1"), allow_remote=False, cut="/v1")
    assert link.address.prefix == "/a"
    with pytest.raises(EngineUnprepared, match="base_url"):
        http_link(HttpConfig(base_url="gopher://x"), allow_remote=False)


def test_settings_are_the_configured_ones():
    http = HttpConfig(first_timeout_s=1.0, idle_timeout_s=2.0, confirm_timeout_s=3.0)
    settings = http_settings(EngineConfig(restart_backoff_ms=7), http)
    assert (settings.first_s, settings.idle_s, settings.confirm_s) == (1.0, 2.0, 3.0)
    assert settings.backoff_first_ms == 7
    assert settings.watch_s >= 2.0  # a llama-server looks after its connections once a second


def test_a_key_from_a_file_or_a_credential(tmp_path, monkeypatch):
    (tmp_path / "key").write_text(" sesame\n")
    assert read_key(str(tmp_path / "key")) == "sesame"
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    with pytest.raises(EngineUnprepared, match="LoadCredential=key"):
        read_key("key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_key("key") == "sesame"


@pytest.mark.parametrize("data", [b"", b"\n", b"two words", b"a\nb", b"\xff", b"x" * 70_000])
def test_what_is_no_key_is_not_quoted(tmp_path, data):
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(EngineUnprepared) as error:
        read_key(str(tmp_path / "key"))
    assert "words" not in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(EngineUnprepared, match="cannot be read"):
        read_key(str(tmp_path / "none"))
