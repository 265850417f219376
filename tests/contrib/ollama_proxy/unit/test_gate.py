"""One connection to the gate for each end client."""

from typing import Any, ClassVar

import pytest

from onegate.protocol.messages import OnBehalf
from onegate_ollama_proxy import gate as module
from onegate_ollama_proxy.gate import Gate

EVA = OnBehalf(source="listener", principal="webui", flow="eva")
BOB = OnBehalf(source="listener", principal="webui", flow="bob")


class Client:
    made: ClassVar[list["Client"]] = []

    def __init__(self, socket: Any, **options: Any) -> None:
        self.socket = socket
        self.options = options
        self.connects = 0
        self.closed = False
        Client.made.append(self)

    async def connect(self) -> None:
        self.connects += 1

    async def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    Client.made = []
    monkeypatch.setattr(module, "AsyncClient", Client)
    return Client.made


async def test_nothing_is_connected_before_it_is_needed(clients: list[Client]) -> None:
    await Gate("/s").close()
    assert clients == []


async def test_one_connection_says_whom_it_is_for(clients: list[Client]) -> None:
    gate = Gate("/s")
    assert await gate.client(EVA) is await gate.client(EVA)
    (client,) = clients
    assert (client.socket, client.options["on_behalf"]) == ("/s", EVA)
    assert client.connects == 2  # which makes a lost connection anew
    await gate.close()
    await gate.close()
    assert client.closed


async def test_another_person_is_another_connection(clients: list[Client]) -> None:
    gate = Gate(None)
    await gate.client(EVA)
    await gate.client(BOB)
    assert [client.closed for client in clients] == [True, False]
    assert clients[1].options["on_behalf"] == BOB
    await gate.close()
