"""What the log is told of a request."""

from onegate_ollama_proxy.told import Told


def test_nothing_is_known_before_it_is_asked() -> None:
    told = Told()
    assert (told.class_, told.model, told.reason, told.notices) == (None, None, None, [])
    told.notices.append("x")
    assert Told().notices == []
