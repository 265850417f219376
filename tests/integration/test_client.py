"""Both clients over a real socket: one suite, run once blocking and once on an event loop.

First against a daemon that the test plays step by step, then against the real one.
"""

import asyncio
import os
import signal
import socket as sockets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

from onegate import (
    AsyncClient,
    Client,
    Failed,
    InvalidRequest,
    ProtocolError,
    Rejected,
    Unavailable,
    Unsupported,
    WrongModel,
)
from onegate.protocol import messages as m
from onegate.protocol.errors import Reason
from onegate.protocol.framing import frame


class Blocking:
    """The blocking client as it is."""

    def __init__(self) -> None:
        self._open: list[Client] = []

    def open(self, socket: str, **options: Any) -> Any:
        self._open.append(Client(socket, **options))
        return self._open[-1]

    def close(self) -> None:
        for client in self._open:
            client.close()


class OnLoop:
    """The asynchronous client, driven from outside its event loop."""

    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None

    def __init__(self) -> None:
        self._runner = asyncio.Runner(debug=True, loop_factory=self.loop_factory)
        self._open: list[AsyncClient] = []

    def open(self, socket: str, **options: Any) -> Any:
        async def make() -> AsyncClient:
            client = AsyncClient(socket, **options)
            self._open.append(client)
            await client.connect()
            return client

        return Driven(self._runner, self._runner.run(make()))

    def close(self) -> None:
        for client in self._open:
            self._runner.run(client.close())
        self._runner.close()


class OnUvloop(OnLoop):
    """The same on the daemon's own kind of event loop."""

    loop_factory = staticmethod(uvloop.new_event_loop)


class Driven:
    """Awaits what it is asked for, and turns streams into ordinary ones."""

    def __init__(self, runner: asyncio.Runner, target: Any) -> None:
        self._runner = runner
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if name == "stream":
            return lambda *a, **k: Driven(self._runner, found(*a, **k))
        if not asyncio.iscoroutinefunction(found):
            return found

        def call(*arguments: Any, **keywords: Any) -> Any:
            async def wait() -> Any:
                return await found(*arguments, **keywords)

            return self._runner.run(wait())

        return call

    def __iter__(self) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(pieces)

        async def closing() -> None:
            await pieces.aclose()

        pieces = self._target.__aiter__()
        try:
            while True:
                try:
                    yield self._runner.run(following())
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(closing())


@pytest.fixture(params=[Blocking, OnLoop, OnUvloop], ids=["sync", "async", "uvloop"])
def flavour(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    made.close()


# --- against a played daemon ----------------------------------------------------------------------


def test_one_question(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        assert c.greet().model == "tiny"
        request = c.expect(m.Generate)
        assert (request.stream, request.prompt, request.params.max_tokens) == (False, "hi", 5)
        c.say(*c.answer(request.id, "a", "b"))
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket, model="tiny")
    reply = gate.generate("hi", max_tokens=5)
    assert (reply.text, reply.finish_reason, reply.usage.output_tok) == ("ab", "stop", 2)
    gate.close()


def test_bytes_may_come_one_at_a_time(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        request = c.expect(m.Generate)
        for message in c.answer(request.id, "ä", "€"):
            for byte in c._wire.send(message):
                c.write(bytes([byte]))
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    assert gate.generate("hi").text == "ä€"
    gate.close()


def test_two_streams_share_a_connection(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        first = c.expect(m.Generate)
        started, one, *rest = c.answer(first.id, "1", "2")
        c.say(started, one)
        second = c.expect(m.Generate)
        c.say(*c.answer(second.id, "x", "y"))
        c.say(*rest)
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    first, second = iter(gate.stream("first")), iter(gate.stream("second"))
    assert next(first).text == "1"
    assert [chunk.text for chunk in second] == ["x", "y"]
    assert [chunk.text for chunk in first] == ["2"]
    gate.close()


def test_breaking_out_cancels_and_the_connection_stays(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        first = c.expect(m.Generate)
        *most, _ = c.answer(first.id, "a", "b", "c")
        c.say(*most)
        assert c.expect(m.Cancel).id == first.id
        c.say(m.Ack(id=first.id, verb="cancel"), c.failed(Reason.CANCELLED, first.id))
        second = c.expect(m.Generate)
        c.say(*c.answer(second.id, "again"))
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    stream = gate.stream("hi")
    for _ in stream:
        break
    assert stream.reply is None
    assert gate.generate("hi").text == "again"
    gate.close()


def test_closing_the_client_ends_the_connection(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        c.say(*c.answer(c.expect(m.Generate).id, "a")[:2])
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    pieces = iter(gate.stream("hi"))
    next(pieces)
    gate.close()
    with pytest.raises(Unavailable, match="this client is closed"):
        next(pieces)


def test_a_wrong_model_is_known_at_construction(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.expect(m.Hello)
        c.say(c.failed(Reason.WRONG_MODEL, models=["tiny", "small"]))
        c.close()

    played.play(part)
    with pytest.raises(WrongModel) as caught:
        flavour.open(played.socket, model="large")
    assert caught.value.models == ["tiny", "small"]


def test_a_refusal_carries_its_hint(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        request = c.expect(m.Generate)
        fields = {"retry_after_ms": 250, "ticket": "t", "limit": 10, "used": 9}
        c.say(c.failed(Reason.TOKENS_FULL, request.id, **fields))
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    with pytest.raises(Rejected) as caught:
        gate.generate("hi")
    error = caught.value
    assert (error.reason, error.retry_after, error.ticket) == (Reason.TOKENS_FULL, 0.25, "t")
    assert (error.limit, error.used) == (10, 9)
    gate.close()


def test_honour_returns_with_the_ticket(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        request = c.expect(m.Generate)
        c.say(c.failed(Reason.TOKENS_FULL, request.id, retry_after_ms=1, ticket="t"))
        again = c.expect(m.Generate)
        assert again.ticket == "t"
        c.say(*c.answer(again.id, "a"))
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket, retry="honour")
    assert gate.generate("hi").text == "a"
    gate.close()


def test_a_restarting_daemon_is_waited_for(flavour: Any, played: Any) -> None:
    def going(c: Any) -> None:
        c.greet()
        request = c.expect(m.Generate)
        played.listener.close()
        Path(played.socket).unlink()
        c.say(c.failed(Reason.SHUTTING_DOWN, request.id, retry_after_ms=1))
        c.expect_end()
        played.listen()

    def coming(c: Any) -> None:
        c.greet()
        c.say(*c.answer(c.expect(m.Generate).id, "back"))
        c.expect_end()

    played.play(going, coming)
    gate = flavour.open(played.socket)
    assert gate.generate("hi").text == "back"
    gate.close()


def test_a_full_backlog_is_waited_out(flavour: Any, played: Any) -> None:
    listener = played.listen(backlog=0)
    fillers = []
    while True:
        filler = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        filler.setblocking(False)
        fillers.append(filler)
        try:
            filler.connect(played.socket)
        except BlockingIOError:
            break

    def serve() -> None:
        time.sleep(0.1)  # the client meets a full backlog meanwhile
        for _ in fillers[:-1]:
            listener.accept()[0].close()
        played._run((lambda c: (c.greet(), c.expect_end()),))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        flavour.open(played.socket).close()
    finally:
        thread.join()
        for filler in fillers:
            filler.close()


def test_a_backlog_that_stays_full_is_unavailable(flavour: Any, played: Any) -> None:
    played.listen(backlog=0)
    filler = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
    with filler:
        filler.connect(played.socket)
        with pytest.raises(Unavailable, match="more connections than it can take"):
            flavour.open(played.socket, connect_timeout=0.1)


def test_a_daemon_that_vanishes_mid_stream(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        c.say(*c.answer(c.expect(m.Generate).id, "a")[:2])
        c.close()

    played.play(part)
    gate = flavour.open(played.socket)
    pieces = iter(gate.stream("hi"))
    assert next(pieces).text == "a"
    with pytest.raises(Unavailable):
        next(pieces)


def test_a_daemon_that_talks_nonsense(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        c.expect(m.Generate)
        c.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    with pytest.raises(ProtocolError):
        gate.generate("hi")
    gate.close()


def test_what_a_newer_daemon_says_beside_is_ignored(flavour: Any, played: Any) -> None:
    def part(c: Any) -> None:
        c.greet()
        request = c.expect(m.Generate)
        c.write(frame(msgspec.msgpack.encode({"t": "weather", "id": request.id, "rain": True})))
        c.say(*c.answer(request.id, "a"))
        c.expect_end()

    played.play(part)
    gate = flavour.open(played.socket)
    assert gate.generate("hi").text == "a"
    gate.close()


def test_a_silent_daemon_is_given_up(
    flavour: Any, played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def part(c: Any) -> None:
        c.greet()
        request = c.expect(m.Generate)
        assert c.expect(m.Cancel).id == request.id
        c.expect_end()

    monkeypatch.setattr("onegate.client.call.GRACE_S", 0.0)
    played.play(part)
    gate = flavour.open(played.socket)
    with pytest.raises(Unavailable, match="did not answer"):
        gate.generate("hi", timeout=0.05)
    gate.close()


def test_nobody_there(flavour: Any, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no socket"):
        flavour.open(str(tmp_path / "nothing.sock"))
    with pytest.raises(InvalidRequest, match="too long"):
        flavour.open(str(tmp_path / ("x" * 120)))


def test_environment_names_the_socket(
    flavour: Any, played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.play(lambda c: (c.greet(), c.expect_end()))
    monkeypatch.setenv("ONEGATE_SOCKET", played.socket)
    flavour.open(None).close()


def test_an_interrupt_ends_the_request_and_the_next_one_works(played: Any) -> None:
    def interrupted(c: Any) -> None:
        c.greet()
        c.expect(m.Generate)
        os.kill(os.getpid(), signal.SIGINT)  # is delivered to the main thread, which waits
        c.expect_end()

    def after(c: Any) -> None:
        c.greet()
        c.say(*c.answer(c.expect(m.Generate).id, "a"))
        c.expect_end()

    played.play(interrupted, after)
    with Client(played.socket) as gate:
        with pytest.raises(KeyboardInterrupt):
            gate.generate("hi")
        assert gate.generate("hi").text == "a"


# --- against the real daemon ----------------------------------------------------------------------


def test_text_comes_from_the_real_daemon(flavour: Any, daemon: Any) -> None:
    gate = flavour.open(daemon.socket)
    reply = gate.generate("hello there", max_tokens=8)
    assert reply.text
    assert reply.usage.output_tok == 8
    assert reply.finish_reason == "length"
    assert reply.identity.engine == "scripted"
    assert reply.timings.e2e_ms >= 0
    stream = gate.stream("hello there", max_tokens=8)
    assert "".join(chunk.text for chunk in stream) == reply.text
    assert stream.reply.usage == reply.usage
    gate.close()


def test_every_verb_is_answered(flavour: Any, daemon: Any) -> None:
    gate = flavour.open(daemon.socket)
    assert gate.count("hello there").n_tok > 0
    assert gate.capacity(10, 10).verdict == "start"
    assert gate.status().state == "serving"
    assert gate.requests() == []
    assert gate.whoami().peer.uid == os.getuid()
    assert "onegate_" in gate.metrics()
    assert gate.pause("batch") is True
    with pytest.raises(Rejected) as caught:
        gate.generate("hi", class_="batch")
    assert caught.value.reason is Reason.PAUSED
    assert gate.unpause("batch") is True
    assert gate.unpause("batch") is False
    assert gate.cancel_any("no-such-id") is False
    with pytest.raises(Unsupported):
        gate.embed(["hi"])
    gate.close()


def test_bad_requests_are_named(flavour: Any, daemon: Any) -> None:
    with pytest.raises(WrongModel) as caught:
        flavour.open(daemon.socket, model="no-such-model")
    assert caught.value.models == ["scripted"]
    gate = flavour.open(daemon.socket)
    with pytest.raises(WrongModel):
        gate.generate("hi", model="no-such-model")
    with pytest.raises(InvalidRequest) as invalid:
        gate.generate(messages=[])
    assert invalid.value.path == "messages"
    with pytest.raises(InvalidRequest, match="no class"):
        gate.generate("hi", class_="no-such-class")
    assert gate.generate("hi", max_tokens=1).text
    gate.close()


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"tools": [{"function": {"name": "f"}}]}, "tools"),
        ({"think": "high"}, "think"),
        ({"schema": {"type": "object"}}, "params.response_format"),
        ({"response_format": {"type": "json_object"}}, "params.response_format"),
    ],
)
def test_what_the_engine_cannot_do_is_unsupported(
    flavour: Any, daemon: Any, options: dict[str, Any], path: str
) -> None:
    gate = flavour.open(daemon.socket)
    turns = [{"role": "user", "content": "hi"}]
    with pytest.raises(Unsupported) as caught:
        gate.generate(messages=turns, **options)
    assert caught.value.path == path
    assert gate.generate(messages=turns, max_tokens=1).text
    gate.close()


def test_an_image_goes_along_and_is_unsupported_where_nobody_can_see(
    flavour: Any, daemon: Any
) -> None:
    gate = flavour.open(daemon.socket)
    image = {"type": "image", "data": b"\x89PNG", "media_type": "image/png"}
    with pytest.raises(Unsupported) as caught:
        gate.generate(messages=[{"role": "user", "content": [image]}])
    assert caught.value.path == "messages[0].content[0]"
    gate.close()


def test_breaking_out_frees_the_seat(flavour: Any, daemon: Any) -> None:
    gate = flavour.open(daemon.socket)
    for _ in gate.stream("hello there", max_tokens=3000, ignore_eos=True):
        break
    daemon.wait(lambda: gate.status().pools[0].seats_used == 0 or None)
    gate.close()


def test_a_killed_engine_host_is_a_failure_after_the_start(flavour: Any, daemon: Any) -> None:
    gate = flavour.open(daemon.socket)
    hot = {"max_tokens": 3000, "ignore_eos": True, "temperature": 0.9}
    pieces = iter(gate.stream("hello there", **hot))
    next(pieces)
    for pid in daemon.children:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Failed) as caught:
        for _ in pieces:
            pass
    assert caught.value.reason is Reason.ENGINE_FAILED
    daemon.wait_ready()
    assert gate.generate("hello", max_tokens=2).text
    gate.close()


def test_a_resumed_stream_says_that_the_engine_was_restarted(flavour: Any, daemon: Any) -> None:
    gate = flavour.open(daemon.socket)
    whole = gate.generate("hello there", max_tokens=40).text
    stream = gate.stream("hello there", max_tokens=40)
    pieces = iter(stream)
    text = next(pieces).text
    for pid in daemon.children:
        os.kill(pid, signal.SIGKILL)
    text += "".join(chunk.text for chunk in pieces)
    assert text == whole
    assert [notice.code for notice in stream.reply.notices] == ["engine_restarted"]
    gate.close()


def test_a_request_that_waited_survives_a_restart(
    tmp_path: Path, timeout_factor: float, running: Any
) -> None:
    config = """
        [engine]
        kind = "scripted"
        [[engine.scripted.pools]]
        max_seqs = 1
        a_ms = 20.0
    """
    place, timeout_s = tmp_path / "d", 30 * timeout_factor
    texts: list[str] = []

    def wait_in_the_queue(socket: str) -> None:
        with Client(socket, restart_timeout=timeout_s) as gate:
            texts.append(gate.generate("the second", max_tokens=4).text)

    with running(place, config, timeout_s) as old, Client(old.socket) as gate:
        running_stream = iter(gate.stream("the first", max_tokens=4000, ignore_eos=True))
        next(running_stream)
        thread = threading.Thread(target=wait_in_the_queue, args=(old.socket,))
        thread.start()
        old.wait(lambda: gate.status().gate.queued == 1 or None)
        old.process.send_signal(signal.SIGTERM)
        old.wait(lambda: gate.status().gate.queued == 0 or None)
        assert texts == []
        gate.close()  # what ran may end now, and the daemon with it
        assert old.process.wait(timeout_s) == 0
    with running(place, config, timeout_s):
        thread.join(timeout_s)
        assert len(texts) == 1


@pytest.mark.alone("model")
@pytest.mark.live
def test_the_embedded_model_answers(flavour: Any, openvino_daemon: Any) -> None:
    gate = flavour.open(openvino_daemon.socket, model="smollm2-135m-instruct")
    question = [{"role": "user", "content": "What is the capital of France?"}]
    reply = gate.generate(messages=question, max_tokens=24, temperature=0.0)
    assert "Paris" in reply.text
    gate.close()
