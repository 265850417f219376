from onegate.engines.host import memory
from onegate.engines.host.memory import rss_bytes


def test_a_process_holds_something():
    assert 1_000_000 < rss_bytes() < 1 << 45


def test_unknown_is_none(monkeypatch):
    class Nowhere:
        def __init__(self, path):
            pass

        def read_text(self, encoding):
            raise OSError

    monkeypatch.setattr(memory, "Path", Nowhere)
    assert rss_bytes() is None
