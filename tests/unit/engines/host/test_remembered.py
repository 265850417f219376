import pytest

from onegate.engines.host.remembered import default_cache, recall, remember


def test_where_it_is(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert str(default_cache("digests.json")) == "/c/onegate/digests.json"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/h")
    assert str(default_cache("steps.json")) == "/h/.cache/onegate/steps.json"


def test_what_is_remembered_is_recalled(tmp_path):
    cache = tmp_path / "deep" / "cache.json"
    assert recall(cache) == {}
    remember(cache, {"a": [1, 2.5]}, what="it")
    assert recall(cache) == {"a": [1, 2.5]}
    assert [file.name for file in cache.parent.iterdir()] == ["cache.json"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_a_broken_file_says_nothing(tmp_path, content):
    cache = tmp_path / "cache.json"
    cache.write_bytes(content)
    assert recall(cache) == {}


def test_what_cannot_be_written_is_said(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")
    remember(tmp_path / "file" / "cache.json", {}, what="the time of day")
    assert "the time of day is not remembered" in capsys.readouterr().err
