"""The blocking client's own part: iteration, `with`, and the words it passes on."""

import inspect
from typing import Any

import pytest

from onegate.client import sync
from onegate.client.errors import Unavailable
from onegate.client.sync import Client, Stream
from onegate.protocol import messages as m
from onegate.protocol.content import Usage


@pytest.fixture
def client(world: Any, wire: Any, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(sync, "Blocking", lambda: world)
    world.scripts.append(wire.script(wire.text("a", "b"), wire.text("c")))
    return Client("/nowhere", class_="batch", app="mail")


def test_it_connects_at_once(client: Client, world: Any) -> None:
    assert world.links[0].sent[0].class_ == "batch"
    assert client.welcome.class_ == "loop"
    assert client.connect() is client.welcome
    assert len(world.links) == 1


def test_an_error_at_once_is_raised_by_the_constructor(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "Blocking", lambda: world)
    world.scripts.append(Unavailable("nobody"))
    with pytest.raises(Unavailable):
        Client("/nowhere")


def test_generate_does_not_stream(client: Client, world: Any) -> None:
    assert client.generate("hi", max_tokens=3).text == "ab"
    assert world.sent[0].stream is False


def test_a_stream_is_iterated_and_then_has_its_reply(client: Client, world: Any) -> None:
    stream = client.stream("hi")
    assert world.sent == []
    assert stream.reply is None
    assert [chunk.text for chunk in stream] == ["a", "b"]
    assert stream.reply is not None
    assert stream.rid == stream.reply.rid
    assert world.sent[0].stream is True
    assert list(stream) == []


def test_breaking_out_cancels_although_the_stream_is_kept(client: Client, world: Any) -> None:
    stream = client.stream("hi")
    for _ in stream:
        break
    assert isinstance(world.sent[-1], m.Cancel)
    assert stream.reply is None
    assert client.generate("hi").text == "c"


def test_an_exception_in_the_loop_cancels(client: Client, world: Any) -> None:
    def divide() -> float:
        return sum(1 / 0 for _ in client.stream("hi"))

    with pytest.raises(ZeroDivisionError):
        divide()
    assert isinstance(world.sent[-1], m.Cancel)


def test_leaving_the_with_cancels(client: Client, world: Any) -> None:
    with client.stream("hi") as stream:
        pieces = iter(stream)
        next(pieces)
    assert isinstance(world.sent[-1], m.Cancel)


def test_leaving_the_clients_with_closes(client: Client, world: Any) -> None:
    with client:
        pass
    assert world.links[0].closed
    with pytest.raises(Unavailable, match="closed"):
        client.generate("hi")


def test_every_public_name_is_documented() -> None:
    for kind in (Client, Stream):
        public = [name for name in vars(kind) if not name.startswith("_") and name != "reply"]
        assert public
        assert all(inspect.getdoc(getattr(kind, name)) for name in public)


def test_a_lease_is_held_for_a_block(
    world: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "Blocking", lambda: world)

    def started(message: Any) -> list[Any]:
        return [m.Started(id=message.id, rid="r1", queue_ms=0.0)]

    def settled(message: Any) -> list[Any]:
        return [m.Ack(id=message.id, verb="settle")]

    world.scripts.append(wire.script(started, settled, started))
    client = Client("/nowhere")
    used = Usage(prompt_tok=1, output_tok=2)
    with client.lease(1, 2) as held:
        assert held.started is not None
        held.settle(used)
    assert [type(message) for message in world.sent] == [m.Lease, m.Settle]
    assert world.sent[-1].usage == used
    with pytest.raises(ZeroDivisionError), client.lease(1, 2):
        _ = 1 / 0
    assert isinstance(world.sent[-1], m.Cancel)


def test_whom_it_is_for_is_said_in_the_hello(
    world: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "Blocking", lambda: world)
    world.scripts.append(wire.script())
    behalf = m.OnBehalf(source="sock_diag", uid=7, slice="user-7.slice")
    Client("/nowhere", on_behalf=behalf)
    hello = world.links[0].sent[0]
    assert hello.on_behalf == behalf
