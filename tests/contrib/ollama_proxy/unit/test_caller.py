"""Who makes a request."""

from types import SimpleNamespace
from typing import Any

import pytest

from onegate.protocol.messages import ClassLimits, OnBehalf
from onegate_ollama_proxy.caller import Caller
from onegate_ollama_proxy.config import ListenerConfig
from onegate_ollama_proxy.listeners import Classes, Listener
from onegate_ollama_proxy.who import NOBODY

LIMITS = ClassLimits(max_tokens_default=1, max_tokens_max=1)


def caller(behalf: OnBehalf, headers: dict[str, str] | None = None, **more: Any) -> Caller:
    async def ask_status() -> Any:
        return "status"

    return Caller(
        listener=Listener(ListenerConfig()),
        who=NOBODY,
        headers=headers or {},
        behalf=behalf,
        gate=more.get("gate", SimpleNamespace()),
        classes=Classes(()),
        ask_status=ask_status,
    )


@pytest.mark.parametrize(
    ("behalf", "uid", "name"),
    [
        (OnBehalf(source="sock_diag", uid=7), 7, "uid:7"),
        (OnBehalf(source="keyfile", principal="webui"), None, "keyfile:webui"),
        (OnBehalf(source="unknown"), None, "unknown:-"),
    ],
)
def test_who_it_is_here(behalf: OnBehalf, uid: int | None, name: str) -> None:
    found = caller(behalf)
    assert (found.uid, found.name) == (uid, name)


async def test_the_gate_is_asked_in_his_name() -> None:
    behalf = OnBehalf(source="unknown")
    asked = []

    async def client(whom: OnBehalf) -> str:
        asked.append(whom)
        return "client"

    found = caller(behalf, gate=SimpleNamespace(client=client))
    assert await found.client() == "client"  # type: ignore[comparison-overlap]
    assert asked == [behalf]
    assert await found.status() == "status"  # type: ignore[comparison-overlap]


def test_his_class_is_one_that_the_gate_allows() -> None:
    limits = SimpleNamespace(classes={"loop": LIMITS, "batch": LIMITS})
    client: Any = SimpleNamespace(welcome=SimpleNamespace(limits=limits))
    behalf = OnBehalf(source="unknown")
    assert caller(behalf).class_for(client) == ("loop", ())
    assert caller(behalf, {"X-Onegate-Class": "batch"}).class_for(client) == ("batch", ())
