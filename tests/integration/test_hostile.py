"""Whatever a client sends: a typed answer or a clean close, and nobody else notices.

One daemon for the whole file, and after every test it still serves.
"""

import contextlib
import math
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.daemon import Observed, observed, scripted
from tests.integration.raw import ENDS, applied, generate, hello, packed

from onegate import Client, WrongModel
from onegate.protocol.framing import frame

CONFIG = scripted(
    # Short, because tests wait for it; long enough that no honest frame is ever late.
    gate="frame_timeout_s = 3.0\nhello_timeout_s = 3.0",
    context_tok=4096,
    max_seqs=4,
    a_ms=1.0,
)
ONE_TOKEN = "[[tokens:1]]"
# Longer than any test waits, so that it ends early or not at all.
LONG = "[[tokens:4000]] [[step-ms:50]]"
# A request counts its longest answer while it waits, so that many of these fit into a queue.
SMALL = {"max_tokens": 1}


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory, timeout_factor: float) -> Iterator[Observed]:
    with observed(tmp_path_factory.mktemp("hostile"), CONFIG, 60 * timeout_factor) as daemon:
        yield daemon


@pytest.fixture(autouse=True)
def _unharmed(gate: Observed) -> Iterator[None]:
    yield
    gate.wait_idle()
    gate.check_unharmed()


def refused(answers: list[dict[str, Any]], reason: str = "protocol") -> dict[str, Any]:
    """The connection's last word: one `failed` without id, and nothing behind it."""
    last = answers[-1]
    assert last["t"] == "failed", last
    assert "id" not in last
    assert last["reason"] == reason, last
    assert last["message"]
    return last


# --- wrong inside a request: that request is refused, its connection lives ------------------------

USER = {"role": "user", "content": "Hi"}

WRONG = {
    "unknown parameter": ({"params": {"temprature": 1.0}}, "invalid", "params.temprature"),
    "wrong type": ({"params": {"temperature": "hot"}}, "invalid", "params.temperature"),
    "nil parameter": ({"params": {"top_k": None}}, "invalid", "params.top_k"),
    "NaN": ({"params": {"temperature": math.nan}}, "invalid", "params.temperature"),
    "infinity": ({"params": {"temperature": math.inf}}, "invalid", "params.temperature"),
    "max_tokens 0": ({"params": {"max_tokens": 0}}, "invalid", "params.max_tokens"),
    "max_tokens negative": ({"params": {"max_tokens": -1}}, "invalid", "params.max_tokens"),
    "max_tokens of a float": ({"params": {"max_tokens": 8.0}}, "invalid", "params.max_tokens"),
    "max_tokens as text": ({"params": {"max_tokens": "8"}}, "invalid", "params.max_tokens"),
    "max_tokens of true": ({"params": {"max_tokens": True}}, "invalid", "params.max_tokens"),
    "max_tokens beyond u64": ({"params": {"max_tokens": 2**64 - 1}}, "invalid", "params"),
    "min above max": ({"params": {"min_tokens": 9, "max_tokens": 8}}, "invalid", "params"),
    "params as a list": ({"params": []}, "invalid", "params"),
    "empty prompt": ({"prompt": ""}, "invalid", "prompt"),
    "prompt as a number": ({"prompt": 5}, "invalid", "prompt"),
    "prompt as bytes": ({"prompt": b"Hi"}, "invalid", "prompt"),
    "no prompt": ({"prompt": None}, "invalid", ""),
    "two prompts": ({"messages": [USER]}, "invalid", ""),
    "empty messages": ({"prompt": None, "messages": []}, "invalid", "messages"),
    "a role that is none": (
        {"prompt": None, "messages": [USER, {"role": "king", "content": "Hi"}]},
        "invalid",
        "messages[1].role",
    ),
    "a part that is none": (
        {"prompt": None, "messages": [{"role": "user", "content": [{"type": "film"}]}]},
        "invalid",
        "messages[0].content[0]",
    ),
    "an image without an engine for it": (
        {
            "prompt": None,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image", "data": b"\x89PNG", "media_type": "image/png"}],
                }
            ],
        },
        "unsupported",
        "messages[0].content[0]",
    ),
    "stop as a string": ({"params": {"stop": "end"}}, "invalid", "params.stop"),
    "logprobs without an engine for it": ({"params": {"logprobs": True}}, "unsupported", "params"),
    "unknown class": ({"class": "royal"}, "invalid", "class"),
    "unknown model": ({"model": "gpt-9"}, "wrong_model", ""),
    "timeout 0": ({"timeout_ms": 0}, "invalid", "timeout_ms"),
    "timeout beyond its class": ({"timeout_ms": 2**40}, "invalid", "timeout_ms"),
    "ids beyond u32": ({"prompt": None, "prompt_token_ids": [2**32]}, "invalid", "prompt_token"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_inside_a_request_is_named_and_ends_nothing_else(
    gate: Observed, name: str
) -> None:
    fields, reason, path = WRONG[name]
    with gate.greeted() as raw:
        raw.ask(1, "before [[tokens:40]]")
        raw.say("generate", **({"id": 2, "prompt": "Hi"} | fields))
        failed = raw.end(2)
        assert (failed["t"], failed["reason"]) == ("failed", reason), failed
        assert failed.get("path", "").startswith(path), failed
        assert failed["retryable"] is False
        assert raw.end(1)["t"] == "done"
        raw.ask(2, f"the id is free again {ONE_TOKEN}")
        assert raw.end(2)["t"] == "done"


def test_more_tokens_than_the_class_allows_says_both_numbers(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "Hi", **{"class": "interactive", "params": {"max_tokens": 8193}})
        failed = raw.end(1)
    assert (failed["reason"], failed["path"]) == ("invalid", "params.max_tokens")
    assert (failed["used"], failed["limit"]) == (8193, 8192)


@pytest.mark.parametrize(
    "prompt",
    ["w " * 3000, "w " * 2000 + "日本語" * 2000, "x" * 4 * 4096],
    ids=["only the engine can tell", "not only ASCII", "provable from its bytes"],
)
def test_a_prompt_beyond_the_context_says_both_numbers(gate: Observed, prompt: str) -> None:
    tokens = -(-len(prompt.encode()) // 4)
    with gate.greeted() as raw:
        raw.ask(1, prompt, params={"max_tokens": 4000})
        failed = raw.end(1)
    assert failed["reason"] == "too_large"
    assert failed["limit"] == 4096
    assert failed["used"] == tokens + 4000
    assert failed["phase"] in ("arrival", "queued")


def test_as_much_as_the_context_holds_is_taken(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, "x" * 4 * 4095, params={"max_tokens": 1})
        assert raw.end(1)["t"] == "done"


def test_a_wrong_model_is_refused_at_the_hello_with_the_right_ones(gate: Observed) -> None:
    with gate.connect() as raw:
        raw.write(hello(model="gpt-9") + generate(1, "Hi"))
        last = refused(raw.until_closed(), "wrong_model")
    assert last["models"] == ["scripted"]
    with pytest.raises(WrongModel, match="scripted"):
        Client(gate.socket, model="gpt-9")


@pytest.mark.parametrize("text", [b"\xff\xfe\xfd\xfc", b"ab\xe2\x82", b"\xed\xa0\x80x"])
def test_text_that_is_no_utf8_is_invalid_for_its_request(gate: Observed, text: bytes) -> None:
    broken = generate(1, "@" * len(text)).replace(b"@" * len(text), text)
    with gate.greeted() as raw:
        raw.write(broken)
        failed = raw.end(1)
        assert (failed["reason"], failed["path"]) == ("invalid", "prompt")
        raw.ask(1, ONE_TOKEN)
        assert raw.end(1)["t"] == "done"


def test_a_second_request_of_a_live_id_ends_both_with_one_word(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, LONG)
        raw.expect("started", 1)
        raw.ask(1, "another")
        failed = raw.end(1)
        assert (failed["reason"], failed["path"]) == ("invalid", "id")
        raw.ask(2, ONE_TOKEN)
        raw.end(2)
        gate.wait(lambda: not raw.requests())
        assert not [a for a in raw.inbox if a.get("id") == 1 and a["t"] in ENDS]
        raw.ask(1, ONE_TOKEN)
        assert raw.end(1)["t"] == "done"


def test_a_repeated_id_in_one_write_ends_all_of_it_once(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.write(generate(1, LONG) * 3)
        assert raw.end(1)["path"] == "id"
        gate.wait(lambda: not raw.requests())
        raw.ask(2, ONE_TOKEN)
        assert raw.end(2)["t"] == "done"


def test_cancelling_what_is_not_there_is_answered(gate: Observed) -> None:
    with gate.greeted() as raw:
        for id in (7, 0, 2**32 - 1):
            raw.say("cancel", id=id)
            ack = raw.find(lambda a: a["t"] == "ack")
            assert ack == {"t": "ack", "id": id, "verb": "cancel", "applied": False}
    with gate.greeted(features=["v1", "lease"]) as raw:
        raw.say("settle", id=7)
        assert not applied(raw.find(lambda a: a["t"] == "ack"))


@pytest.mark.parametrize("verb", ["embed", "lease", "load", "unload", "release_engine", "usage"])
def test_a_verb_whose_feature_is_not_there_is_unsupported(gate: Observed, verb: str) -> None:
    needs = {
        "embed": {"input": ["a"]},
        "lease": {"prompt_tok": 1, "max_tok": 1},
        "load": {"model": "scripted"},
        "unload": {"model": "scripted"},
    }
    with gate.greeted() as raw:
        raw.say(verb, id=1, **needs.get(verb, {}))
        assert raw.end(1)["reason"] == "unsupported"
        raw.ask(1, ONE_TOKEN)
        assert raw.end(1)["t"] == "done"


# --- offences: one `failed` without id, then the end ----------------------------------------------

BEFORE_HELLO = {
    "a request before the hello": generate(1, "Hi"),
    "no v1": packed({"t": "hello", "features": ["v2"]}),
    "features as a number": packed({"t": "hello", "features": 5}),
    "a field that hello has not": hello(password="x"),
    "an app of another type": hello(app=7),
    "no map": packed(["hello"]),
    "a number": packed(7),
    "nil": packed(None),
    "keys that are no strings": packed({1: 2}),
    "no tag": packed({"features": ["v1"]}),
    "a tag that is no string": packed({"t": 1, "features": ["v1"]}),
    "an unknown tag": packed({"t": "helo", "features": ["v1"]}),
    "bytes that are no msgpack": frame(b"\xc1\xc1\xc1\xc1"),
    "a map that is cut short": frame(b"\x82\xa1t\xa5hello"),
    "a map of four thousand million": frame(b"\xdf\xff\xff\xff\xff"),
    "a string of four thousand million": frame(b"\x81\xdb\xff\xff\xff\xffx"),
    "a length of nothing": struct.pack(">I", 0),
    "a length of 2 GiB": struct.pack(">I", 2**31),
    "a length of 4 GiB": struct.pack(">I", 2**32 - 1),
    "a byte more than is taken": struct.pack(">I", 8 * 1024 * 1024 + 1),
    "HTTP": b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + b"\x00" * 190,
    "text": b"hello there, daemon\n",
    "nesting": packed({"t": "hello", "features": ["v1"], "x": 1})[:4]
    + b"\x81\xa1t"
    + b"\x91" * (len(packed({"t": "hello", "features": ["v1"], "x": 1})) - 7),
}


@pytest.mark.parametrize("name", BEFORE_HELLO)
def test_what_is_no_hello_gets_one_answer_and_the_end(gate: Observed, name: str) -> None:
    with gate.connect() as raw:
        raw.write(BEFORE_HELLO[name])
        answers = raw.until_closed()
    assert len(answers) == 1
    assert refused(answers)["phase"] == "handshake"


AFTER_HELLO = {
    "hello twice": hello(),
    "an unknown tag": packed({"t": "generat", "id": 2}),
    "an unknown field": generate(2, "Hi", temperature=1.0),
    "no id": packed({"t": "generate", "prompt": "Hi"}),
    "a negative id": packed({"t": "generate", "id": -1, "prompt": "Hi"}),
    "an id beyond u32": packed({"t": "generate", "id": 2**32, "prompt": "Hi"}),
    "an id of text": packed({"t": "generate", "id": "2", "prompt": "Hi"}),
    "an id of true": packed({"t": "generate", "id": True, "prompt": "Hi"}),
    "an id of a float": packed({"t": "generate", "id": 2.0, "prompt": "Hi"}),
    "a cancel without id": packed({"t": "cancel"}),
    "garbage": frame(b"\xc1" * 20),
    "a length of 2 GiB": struct.pack(">I", 2**31),
    "a length of nothing": struct.pack(">I", 0),
    "deep nesting": frame(
        b"\x84\xa1t\xa8generate\xa2id\x02\xa6prompt\xa2Hi\xa6params" + b"\x81\xa1a" * 5000 + b"\xc0"
    ),
    "an answer of the daemon's": packed({"t": "done", "id": 1}),
    "fields without end": frame(
        b"\xde\xff\xff\xa1t\xa8generate\xa2id\x02" + b"\xa1a\xc0" * (2**16 - 3)
    ),
}


@pytest.mark.parametrize("name", AFTER_HELLO)
def test_an_offence_ends_the_connection_and_all_that_ran_on_it(gate: Observed, name: str) -> None:
    with gate.greeted() as raw:
        raw.ask(1, LONG)
        raw.expect("started", 1)
        raw.write(AFTER_HELLO[name])
        answers = raw.until_closed()
    refused(answers)
    assert [a["t"] for a in answers if a["t"] in ENDS] == ["failed"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"class": "royal"}, "invalid"),
        ({"model": ""}, "protocol"),
        ({"on_behalf": {"source": "unknown", "uid": 0}}, "permission"),
        ({"app": "a\x1b[2Jb"}, "protocol"),
        ({"app": "x" * 257}, "protocol"),
        ({"features": ["v1"] + ["f"] * 64}, "protocol"),
    ],
)
def test_a_hello_that_asks_for_what_it_cannot_have(
    gate: Observed, fields: dict[str, object], reason: str
) -> None:
    with gate.connect() as raw:
        raw.write(hello(**fields))
        answers = raw.until_closed()
    refused(answers, reason)


# --- bytes that come as they like -----------------------------------------------------------------


def test_bytes_one_at_a_time_are_as_good_as_any(gate: Observed) -> None:
    with gate.connect() as raw:
        for byte in hello() + generate(1, ONE_TOKEN) + generate(2, ONE_TOKEN):
            raw.write(bytes([byte]))
        raw.expect("welcome")
        assert raw.end(1)["t"] == "done"
        assert raw.end(2)["t"] == "done"


def test_everything_in_one_piece_is_as_good(gate: Observed) -> None:
    with gate.connect() as raw:
        raw.write(hello() + b"".join(generate(id, ONE_TOKEN, params=SMALL) for id in range(100)))
        assert all(raw.end(id)["t"] == "done" for id in range(100))


def test_a_hello_that_is_never_finished_or_never_begun_is_ended(gate: Observed) -> None:
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(gate.connect()) for _ in range(5)]
        for link, cut in zip(links, (0, 1, 3, 4, 20), strict=True):
            link.write(hello()[:cut])
        for link in links:
            assert refused(link.until_closed())["phase"] == "handshake"


def test_a_frame_that_is_never_finished_ends_the_connection(gate: Observed) -> None:
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(gate.greeted()) for _ in range(3)]
        for link, cut in zip(links, (1, 4, 30), strict=True):
            link.ask(1, LONG)
            link.write(generate(2, "x" * 100)[:cut])
        for link in links:
            answers = link.until_closed()
            refused(answers)
            assert [a["t"] for a in answers if a["t"] in ENDS] == ["failed"]


def test_dripping_does_not_stretch_the_time_of_a_frame(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.sock.settimeout(0.05)
        drip = generate(1, "x" * 60_000)
        for place in range(int(gate.timeout_s / 0.05)):  # each byte is progress, and no excuse
            try:
                raw.write(drip[place : place + 1])
                if not raw.read():
                    break
            except TimeoutError:
                continue
            except BrokenPipeError:
                break
        raw.sock.settimeout(gate.timeout_s)
        refused(raw.until_closed())


def test_slow_frames_one_after_the_other_are_each_in_time(gate: Observed) -> None:
    """The time is of one frame, not of all the bytes since the first one."""
    half = len(generate(1, ONE_TOKEN)) // 2
    with gate.greeted() as raw:
        rest = b""
        for id in range(4):
            data = generate(id, ONE_TOKEN)
            # Never at rest between two frames: each write ends one and begins the next.
            raw.write(rest + data[:half])
            rest = data[half:]
            time.sleep(0.9)
        raw.write(rest)
        assert all(raw.end(id)["t"] == "done" for id in range(4))


def test_garbage_of_every_kind_never_upsets_the_daemon(gate: Observed) -> None:
    """Frames that are nearly right: each byte of a good one is changed in turn."""
    good = generate(1, ONE_TOKEN, params={"max_tokens": 2}, stream=False)[4:]
    for place in range(len(good)):
        for change in (0x01, 0x80, 0xFF):
            broken = bytearray(good)
            broken[place] ^= change
            with gate.connect() as raw:
                raw.write(hello() + frame(bytes(broken)))
                raw.sock.shutdown(socket.SHUT_WR)
                answers = raw.until_closed()
            assert all(a["t"] in {"welcome", "started", "chunk"} | ENDS for a in answers)


# --- clients that do not behave -------------------------------------------------------------------


def test_ten_thousand_requests_in_one_burst_each_get_one_end(gate: Observed) -> None:
    count = 10_000
    ends: dict[int, dict[str, Any]] = {}
    with gate.greeted() as raw, gate.greeted() as other:
        data = b"".join(generate(id, ONE_TOKEN, params=SMALL) for id in range(count))
        writer = threading.Thread(target=raw.write, args=(data,))
        writer.start()
        other.ask(1, ONE_TOKEN)
        while len(ends) < count:
            assert raw.read()
            for answer in raw.inbox:
                if answer["t"] in ENDS:
                    assert "id" in answer, answer
                    assert answer["id"] not in ends
                    ends[answer["id"]] = answer
            raw.inbox.clear()
        writer.join()
        # More than fit: refused for now, with the number that was in the way.
        no = [end for end in ends.values() if end["t"] == "failed"]
        assert {end["reason"] for end in no} <= {"peer_quota"}
        assert all(end["retryable"] and end["limit"] for end in no)
        assert sum(end["t"] == "done" for end in ends.values()) >= 256
        end = other.end(1)
        assert end["t"] == "done" or end["reason"] == "peer_quota"
        assert other.status()["gate"]["inbound_bytes"] == 0


def test_a_client_that_half_closes_is_gone(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.ask(1, LONG)
        raw.ask(2, LONG, stream=False)
        raw.expect("started", 1)
        raw.sock.shutdown(socket.SHUT_WR)
        assert not [a for a in raw.until_closed() if a["t"] == "done"]
        gate.wait_idle()


def test_fifty_megabytes_of_images_are_refused_before_they_queue(gate: Observed) -> None:
    image = {"type": "image", "data": b"\x89PNG" * 1_750_000, "media_type": "image/png"}
    asked = {"prompt": None, "messages": [{"role": "user", "content": [image]}]}
    rss_mib = gate.figures().rss_mib
    with gate.greeted() as raw, gate.greeted() as other:
        for id in range(8):
            raw.say("generate", id=id, **asked)
        other.ask(1, ONE_TOKEN)
        assert other.end(1)["t"] == "done"
        for id in range(8):
            failed = raw.end(id)
            assert (failed["reason"], failed["path"]) == ("unsupported", "messages[0].content[0]")
            assert failed["phase"] == "arrival"
        assert raw.status()["gate"]["inbound_bytes"] == 0
    assert gate.figures().rss_mib < rss_mib + 100


def test_many_who_leave_in_every_manner_at_once(gate: Observed) -> None:
    """Closing at once, after half a frame, with answers unread, with an offence: all together."""
    before = gate.figures()
    endings = [
        b"",
        hello()[:7],
        hello(),
        hello() + generate(1, LONG),
        hello() + generate(1, "gone", stream=False)[:20],
        hello() + generate(1, LONG) + frame(b"\xc1"),
    ]
    for data in endings * 40:
        with gate.connect() as raw:
            raw.write(data)
    gate.wait_idle()
    gate.wait(lambda: gate.figures().fds <= before.fds)
    assert gate.figures().threads == before.threads


def test_settling_nothing_is_not_taken_for_the_request_behind_it(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.write(packed({"t": "settle", "id": 1}) + packed({"t": "whoami", "id": 1}))
        ack = raw.find(lambda a: a["t"] in ENDS)
        assert ack == {"t": "ack", "id": 1, "verb": "settle", "applied": False}
        assert raw.end(1)["t"] == "whoami_report"


def test_two_clients_do_not_see_each_others_ids(gate: Observed) -> None:
    with gate.greeted() as one, gate.greeted() as two:
        one.ask(1, LONG)
        one.expect("started", 1)
        two.say("cancel", id=1)
        assert not applied(two.find(lambda a: a["t"] == "ack"))
        two.ask(1, ONE_TOKEN)
        assert two.end(1)["t"] == "done"
        one.say("cancel", id=1)
        assert one.end(1)["reason"] == "cancelled"


def test_cancelling_in_the_same_write_as_asking(gate: Observed) -> None:
    with gate.greeted() as raw:
        raw.write(
            b"".join(
                generate(id, LONG, params={"max_tokens": 50}) + packed({"t": "cancel", "id": id})
                for id in range(200)
            )
        )
        ends = [raw.end(id) for id in range(200)]
        assert {(end["t"], end["reason"]) for end in ends} == {("failed", "cancelled")}


def test_a_peer_that_reads_only_now_and_then_gets_everything(gate: Observed) -> None:
    """Below the bound nothing is lost and nothing is out of order."""
    with gate.greeted() as raw:
        raw.ask(1, "[[tokens:2000]]", params={"max_tokens": 2000})
        time.sleep(0.5)
        assert raw.end(1)["usage"]["output_tok"] == 2000
        assert sum(a["n_tok"] for a in raw.inbox if a["t"] == "chunk") == 2000


def test_threads_of_clients_that_come_and_go(gate: Observed) -> None:
    """Connecting, asking and leaving from several sides at once."""
    failures: list[BaseException] = []

    def come_and_go() -> None:
        try:
            for _ in range(20):
                with gate.greeted() as raw:
                    raw.ask(1, ONE_TOKEN)
                    assert raw.end(1)["t"] == "done"
        except BaseException as error:  # judged below, in the thread of the test
            failures.append(error)

    threads = [threading.Thread(target=come_and_go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(gate.timeout_s)
    assert not failures, failures


def test_random_messages_that_are_well_formed(gate: Observed) -> None:
    """Verbs in any order over few ids, so that they collide: an answer, or the end; never a bug."""
    verbs: list[dict[str, object]] = [
        {"t": "generate", "prompt": "a [[tokens:3]]"},
        {"t": "generate", "prompt": "b", "params": {"max_tokens": 0}},
        {"t": "generate", "prompt": "c [[tokens:500]]", "stream": False, "progress": True},
        {"t": "cancel"},
        {"t": "settle"},
        {"t": "count", "prompt": "how long"},
        {"t": "status", "detail": True},
        {"t": "whoami"},
        {"t": "metrics"},
        {"t": "capacity", "prompt_tok": 10},
        {"t": "capacity", "prompt_tok": 2**32 - 1, "max_tok": 2**32 - 1},
        {"t": "embed", "input": ["a"]},
        {"t": "unpause", "class": "batch"},
        {"t": "pause", "class": "nobody", "until_ms": 0},
        {"t": "cancel_any", "rid": "nothing"},
        {"t": "load", "model": "scripted"},
    ]
    state = 7
    for _ in range(20):
        with gate.greeted() as raw:
            data = b""
            for _ in range(150):
                state = state * 48271 % (2**31 - 1)  # the same every time
                data += packed({**verbs[state % len(verbs)], "id": state // 97 % 4})
            raw.write(data)
            raw.sock.shutdown(socket.SHUT_WR)
            answers = raw.until_closed()
        assert all("id" in a for a in answers if a["t"] == "failed"), answers[-1]
