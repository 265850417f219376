"""A generator, without its pipes."""

import asyncio
import os
from typing import Any

import msgspec
import pytest

from onegate.bench import generator as module
from onegate.bench.generator import Generator, Out, serve, texts
from onegate.bench.prompts import PromptTooShort, Rule
from onegate.bench.record import Outcome
from onegate.bench.schedule import Arrival
from onegate.bench.targets.base import TargetError
from onegate.bench.targets.spec import Spec
from onegate.bench.wire import (
    FromGenerator,
    Go,
    Going,
    Open,
    Opened,
    PartDone,
    Prepare,
    Prepared,
    Quit,
    Trouble,
    from_generator,
    packed,
)

RULE = Rule("words", 0, True)


class Heard(Out):
    def __init__(self) -> None:
        self.messages: list[FromGenerator] = []

    def send(self, message: FromGenerator) -> None:
        self.messages.append(from_generator.decode(packed(message)[4:]))


def opening(scenario: Any) -> Open:
    return Open(Spec("gate"), msgspec.to_builtins(scenario), 1.0)


def test_a_part_is_opened_prepared_and_run(
    virtual: Any, made: Any, model_target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual.clock_of("onegate.bench.generator", "onegate.bench.drive")
    target = model_target()
    monkeypatch.setattr(module, "build", lambda spec, **_: target)
    out = Heard()

    async def run() -> tuple[FromGenerator, FromGenerator, FromGenerator]:
        generator = Generator(out)
        arrivals = [Arrival(0, 0, 0, 0, 3, 2), Arrival(10**9, 0, 0, 1, 5, 2)]
        return (
            await generator.take(opening(made.scenario())),
            await generator.take(Prepare("s", RULE, arrivals)),
            await generator.take(Go(10**9, 0, 10**10)),
        )

    opened, prepared, done = virtual.run(run())
    assert isinstance(opened, Opened)
    assert opened.rule == RULE
    assert isinstance(prepared, Prepared)
    assert isinstance(done, PartDone)
    assert [r.outcome for r in done.records] == [Outcome.FINISHED] * 2
    assert [r.prompt_tok for r in done.records] == [3, 5]
    assert done.effort.wall_s == pytest.approx(1.26, abs=0.05)
    assert Going(1) in out.messages


def test_a_bug_of_a_request_ends_the_part(
    virtual: Any, made: Any, model_target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual.clock_of("onegate.bench.generator", "onegate.bench.drive")

    def bug(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "build", lambda spec, **_: model_target(before=bug))

    async def run() -> None:
        generator = Generator(Heard())
        await generator.take(opening(made.scenario()))
        await generator.take(Prepare("s", RULE, [Arrival(0, 0, 0, 0, 3, 2)]))
        await generator.take(Go(10**9, 0, 10**10))

    with pytest.raises(ZeroDivisionError):
        virtual.run(run())


def test_prompts_differ_between_parts_classes_and_requests(made: Any) -> None:
    scenario = made.scenario(made.cls("a"), made.cls("b"))
    arrivals = [Arrival(0, cls, 0, serial, 20, 1) for cls in (0, 1) for serial in (0, 1)]
    one, two = (texts(scenario, Prepare(salt, RULE, arrivals)) for salt in ("1", "2"))
    assert len({*one, *two}) == 8


def test_a_class_may_share_its_beginning(made: Any) -> None:
    scenario = made.scenario(made.cls(shared_prefix_tok=5))
    arrivals = [Arrival(0, 0, 0, serial, 20, 1) for serial in (0, 1)]
    one, two = texts(scenario, Prepare("1", RULE, arrivals))
    assert one.split()[:5] == two.split()[:5]
    assert one != two


async def test_trouble_is_told_and_a_conductor_that_is_gone_is_the_end(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(spec: Spec, **_: Any) -> None:
        raise TargetError("nobody there")

    monkeypatch.setattr(module, "build", fail)
    out = Heard()
    reader = asyncio.StreamReader()
    reader.feed_data(packed(opening(made.scenario())))
    assert await serve(reader, out) == 1
    assert out.messages == [Trouble("nobody there")]

    for data in (packed(Quit()), b"\x00\x00"):
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        assert await serve(reader, out) == 0


async def test_a_conductor_that_does_not_listen_is_gone_too(
    made: Any, model_target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(Out):
        def __init__(self) -> None: ...

        def send(self, message: FromGenerator) -> None:
            raise BrokenPipeError

    async def serve_one(error: Exception | None) -> int:
        def built(spec: Spec, **_: Any) -> Any:
            if error is not None:
                raise error
            return model_target()

        monkeypatch.setattr(module, "build", built)
        reader = asyncio.StreamReader()
        reader.feed_data(packed(opening(made.scenario())))
        return await serve(reader, Broken())

    assert await serve_one(None) == 0
    assert await serve_one(TargetError("nobody there")) == 1


def test_standing_still_is_noticed(
    virtual: Any, made: Any, model_target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    virtual.clock_of("onegate.bench.generator", "onegate.bench.drive")
    target = model_target()
    monkeypatch.setattr(module, "build", lambda spec, **_: target)
    ask = target.ask

    async def stopped(*given: Any) -> Any:
        found = await ask(*given)
        virtual.loop._clock.now_s += 1.0  # the whole process, and the loop with it
        return found

    target.ask = stopped

    async def run() -> Any:
        generator = Generator(Heard())
        await generator.take(opening(made.scenario()))
        await generator.take(Prepare("s", RULE, [Arrival(0, 0, 0, 0, 3, 2)]))
        return await generator.take(Go(10**9, 0, 10**10))

    assert virtual.run(run()).effort.lag_ms == pytest.approx(1000, abs=25)


async def test_a_prompt_that_cannot_be_is_told(
    made: Any, model_target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "build", lambda spec, **_: model_target())
    generator = Generator(Heard())
    await generator.take(opening(made.scenario()))
    with pytest.raises(PromptTooShort):
        await generator.take(Prepare("s", Rule("words", 30, True), [Arrival(0, 0, 0, 0, 3, 1)]))


def test_an_engines_words_do_not_command_a_terminal(capsys: Any) -> None:
    module._log("a\x1b[31mb\x9b\tc\u00e9")
    assert capsys.readouterr().err == "a\ufffd[31mb\ufffd\tc\u00e9\n"


def test_frames_go_out_whole() -> None:
    read_fd, write_fd = os.pipe()
    try:
        Out(write_fd).send(Going(7))
        assert from_generator.decode(os.read(read_fd, 100)[4:]) == Going(7)
    finally:
        os.close(read_fd)
        os.close(write_fd)
