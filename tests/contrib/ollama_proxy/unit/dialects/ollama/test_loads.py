"""Requests that only load or unload."""

import json
from typing import Any

import pytest

from onegate_ollama_proxy.ask import LoadAsk
from onegate_ollama_proxy.dialects.ollama.loads import is_zero, load_of
from onegate_ollama_proxy.fields import Fields


@pytest.mark.parametrize("said", [0, 0.0, "0", "0s", "0m", " 0ms "])
def test_no_time_at_all(said: Any) -> None:
    assert is_zero(said)


@pytest.mark.parametrize("said", [None, 5, -1, "5m", "", "-1", True, False, [], "10s", "0h5m"])
def test_some_time(said: Any) -> None:
    assert not is_zero(said)


@pytest.mark.parametrize(("keep_alive", "unload"), [(None, False), (0, True), ("5m", False)])
def test_what_is_asked_and_answered(keep_alive: Any, unload: bool) -> None:
    fields = Fields(json.dumps({"keep_alive": keep_alive}).encode())
    ask, document = load_of(fields, "m", {"response": ""})
    assert ask == LoadAsk(model="m", unload=unload)
    assert json.loads(document(7))["done_reason"] == ("unload" if unload else "load")
