"""The wire to an engine host, from both ends: whatever comes costs the connection at most."""

import asyncio
import contextlib
import itertools
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import msgpack
from tests.property.test_codec import ANY_VALUES, cut, messages, per_kind, thorough
from tests.unit.engines.host.conftest import BytePipeline

from onegate.engines.base import EngineMalformed, Reservation
from onegate.engines.host.desk import Desk
from onegate.engines.host.digest import Stamp
from onegate.engines.host.embedded import EmbeddedEngine
from onegate.engines.host.greeting import WireDiffers, read_attach
from onegate.engines.host.scripted import ScriptedEngine
from onegate.engines.host.settings import (
    OpenVinoSettings,
    ScriptedPool,
    ScriptedSettings,
    TensorRtLlmSettings,
    read_settings,
)
from onegate.engines.host.wire import WIRE, Attach, FromHost, ToHost, read
from onegate.engines.life import HostLife
from onegate.engines.seats import Seats
from onegate.engines.stall import StallRule
from onegate.engines.stream import Stream
from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.framing import frame

TO_HOST = list(get_args(ToHost))
FROM_HOST = list(get_args(FromHost))
BOTH = [(ToHost, kind) for kind in TO_HOST] + [(FromHost, kind) for kind in FROM_HOST]
DECODERS = {union: msgpack.Decoder(union) for union in (ToHost, FromHost)}
DEEP = b"\x91" * 100_000 + b"\xc0"
HUGE = b"\xcf" + b"\xff" * 8
NAMES = {"ids": ["ToHost", "FromHost"]}

SCRIPTED = ScriptedSettings(
    pools=[
        ScriptedPool(
            model="m",
            max_seqs=2,
            kv_tok=50,
            context_tok=50,
            max_step_tok=4,
            reservation=Reservation.GROW,
            switch_cost_ms=0.0,
            a_ms=0.0,
            b_ms_per_prefill_tok=0.0,
            c_ms_per_seq=0.0,
        )
    ],
    loadable=1,
)
OPENVINO = OpenVinoSettings(
    model="m",
    path="/m.gguf",
    device="CPU",
    threads=None,
    context_tok=50,
    kv_tok=50,
    max_seqs=2,
    max_step_tok=4,
    step_target_ms=None,
    prefix_cache=False,
)
TENSORRT_LLM = TensorRtLlmSettings(
    model="m",
    path="/m",
    tensor_parallel=1,
    context_tok=50,
    kv_tok=None,
    kv_share=0.9,
    kv_dtype="auto",
    max_seqs=2,
    max_step_tok=4,
    chunked_prefill=True,
    policy="max_utilization",
    guided=None,
    prefix_cache=False,
    salted=False,
    trust_remote_code=False,
    step_target_ms=None,
    stall_s=1.0,
    load_s=1.0,
)


class Said:
    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def post(self, message: FromHost) -> None:
        self.frames.append(msgpack.encode(message))

    def post_raw(self, data: bytes) -> None:
        raise AssertionError("only a scripted fault says something raw")


def scripted() -> ScriptedEngine:
    return ScriptedEngine(
        SCRIPTED, hang_up=lambda: None, now_ns=itertools.count().__next__, sleep=lambda s: None
    )


def embedded(monkeypatch: pytest.MonkeyPatch) -> EmbeddedEngine:
    def stamp(path: object) -> Stamp:
        return (("m.gguf", 1, 2, 3, 4),)

    module = "onegate.engines.host.embedded"
    monkeypatch.setattr(f"{module}.weights_stamp", stamp)
    monkeypatch.setattr(f"{module}.weights_digest", lambda *_: ("sha256:0", "weights"))
    return EmbeddedEngine(OPENVINO, lambda _: BytePipeline(), version="1")


def with_model(message: Any) -> Any:
    """The same, about the model that there is."""
    if hasattr(message, "request"):
        request = msgspec.structs.replace(message.request, model="m")
        return msgspec.structs.replace(message, request=request)
    return msgspec.structs.replace(message, model="m") if hasattr(message, "model") else message


def bent(kind: type) -> st.SearchStrategy[bytes]:
    """A message of this kind with one of its fields replaced by anything that msgpack can say."""
    fields = [f.encode_name for f in msgspec.structs.fields(kind)] + ["t"]

    def bend(parts: tuple[Any, str, bytes]) -> bytes:
        message, field, value = parts
        whole = msgpack.decode(msgpack.encode(message), type=dict[str, msgspec.Raw])
        whole[field] = msgspec.Raw(value)
        return msgpack.encode(whole)

    values = ANY_VALUES.map(msgpack.encode) | st.sampled_from(
        [DEEP, HUGE, b"\xa2\xff\xff", b"\xc1"]
    )
    return st.tuples(messages(kind), st.sampled_from(fields), values).map(bend)


class Deaf:
    def sendall(self, data: bytes) -> None:
        """Nobody hears it."""


# --- bytes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("union", "kind"), BOTH, ids=lambda value: getattr(value, "__name__", ""))
@per_kind
@given(data=st.data())
def test_a_bent_message_is_one_or_breaks_the_wire(
    union: Any, kind: type, data: st.DataObject
) -> None:
    payload = data.draw(bent(kind))
    with contextlib.suppress(RemoteProtocolError):
        read(DECODERS[union], payload)
    if kind is Attach:
        with contextlib.suppress(RemoteProtocolError, WireDiffers):
            read_attach(Deaf(), payload)  # type: ignore[arg-type]


@pytest.mark.parametrize("union", [ToHost, FromHost], **NAMES)
@thorough
@given(payload=st.binary(max_size=40) | ANY_VALUES.map(msgpack.encode))
@example(DEEP)
@example(b"\xdf\xff\xff\xff\xff")
@example(b"\x81\xa1t" + DEEP)
def test_any_bytes_are_a_message_or_break_the_wire(union: Any, payload: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        read(DECODERS[union], payload)


@pytest.mark.parametrize(("union", "kind"), BOTH, ids=lambda value: getattr(value, "__name__", ""))
@per_kind
@given(data=st.data())
def test_a_message_arrives_as_it_was_sent(union: Any, kind: type, data: st.DataObject) -> None:
    message = data.draw(messages(kind))
    assert read(DECODERS[union], msgpack.encode(message)) == message


@thorough
@given(table=ANY_VALUES | st.data())
def test_any_table_is_settings_or_a_sentence(table: Any) -> None:
    if hasattr(table, "draw"):
        good = msgspec.to_builtins(table.draw(st.sampled_from([SCRIPTED, OPENVINO, TENSORRT_LLM])))
        into = table.draw(st.sampled_from([good, *good.get("pools", [])]))
        into[table.draw(st.sampled_from(sorted(into)))] = table.draw(ANY_VALUES)
        table = good
    try:
        settings = read_settings(table)
    except msgspec.ValidationError:
        return
    if isinstance(settings, ScriptedSettings):
        for pool in ScriptedEngine(settings, hang_up=lambda: None).pools():
            assert pool.switch_cost_ms is not None
            assert 0 <= pool.switch_cost_ms < float("inf")


# --- the host, attached -------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["scripted", "embedded"])
@thorough
@given(
    wanted=st.lists(
        st.tuples(st.one_of([messages(kind) for kind in TO_HOST]), st.booleans()), max_size=4
    )
)
def test_every_message_is_carried_out_refused_or_out_of_place(
    engine: str, wanted: list[tuple[Any, bool]]
) -> None:
    said = Said()
    with pytest.MonkeyPatch.context() as monkeypatch:
        desk = Desk(scripted() if engine == "scripted" else embedded(monkeypatch), said)
        desk.step()
        for message, about_ours in wanted:
            try:
                desk.take(with_model(message) if about_ours else message)
            except RemoteProtocolError:
                break
            desk.settle()
            if desk.exit_code is None and desk.busy:
                desk.step()
        assert desk.exit_code in (None, 0)
    for payload in said.frames:
        read(DECODERS[FromHost], payload)


# --- the daemon ---------------------------------------------------------------------------------


class Nowhere:
    """A connection that is never made: messages are heard directly."""

    is_ours = False
    hello_s = 1.0
    last_line = ""


def life(pools: list[Any]) -> HostLife:
    rule = StallRule(10.0, 0)
    found = HostLife(
        Nowhere(),  # type: ignore[arg-type]
        Seats(lambda event: None, rule),
        rule,
        kind="k",
        on_pool=pools.append,
        on_silence=lambda text: None,
    )
    found.seats.enter(Stream(1, begin=lambda s: None, abandon=lambda s: None), "m")
    return found


@pytest.mark.parametrize("greeted", [False, True])
@thorough
@given(heard=st.lists(st.one_of([messages(kind) for kind in FROM_HOST]), max_size=5))
def test_what_a_host_says_is_understood_or_malformed(greeted: bool, heard: list[Any]) -> None:
    async def hear() -> None:
        daemon = life([])
        daemon._greeted = greeted
        for message in heard:
            try:
                daemon.hear(message)
            except EngineMalformed:
                return
            daemon._rule.stalled(10**12, loading=False)

    asyncio.run(hear())


@pytest.mark.parametrize("greeted", [False, True])
@thorough
@given(
    payload=st.one_of([bent(kind) for kind in FROM_HOST]) | st.binary(max_size=20),
    cuts=st.lists(st.integers(0, 4096), max_size=3),
)
def test_frames_of_a_host_end_the_link_at_most(
    greeted: bool, payload: bytes, cuts: list[int]
) -> None:
    async def hear() -> None:
        daemon = life([])
        daemon._greeted = greeted
        for piece in cut(frame(payload or b"\0"), cuts):
            daemon._link.data_received(piece)
        if daemon._link.lost.done():
            assert isinstance(daemon._link.lost.result(), EngineMalformed)

    asyncio.run(hear())


def test_the_settings_keys_are_part_of_the_wire() -> None:
    """Another set of keys is another wire: WIRE has to change with this list."""
    keys = {
        kind.__name__: [f.name for f in msgspec.structs.fields(kind)]
        for kind in (OpenVinoSettings, TensorRtLlmSettings, ScriptedSettings, ScriptedPool)
    }
    assert (WIRE, keys) == (
        2,
        {
            "OpenVinoSettings": [
                *("model", "path", "device", "threads", "context_tok", "kv_tok", "max_seqs"),
                *("max_step_tok", "step_target_ms", "prefix_cache"),
            ],
            "TensorRtLlmSettings": [
                *("model", "path", "tensor_parallel", "context_tok", "kv_tok", "kv_share"),
                *("kv_dtype", "max_seqs", "max_step_tok", "chunked_prefill", "policy", "guided"),
                *("prefix_cache", "salted", "trust_remote_code", "step_target_ms", "stall_s"),
                "load_s",
            ],
            "ScriptedSettings": ["pools", "loadable"],
            "ScriptedPool": [
                *("model", "max_seqs", "kv_tok", "context_tok", "max_step_tok", "reservation"),
                *("switch_cost_ms", "a_ms", "b_ms_per_prefill_tok", "c_ms_per_seq"),
            ],
        },
    )
