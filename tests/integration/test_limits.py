"""Every bound of the daemon, reached on purpose: a typed answer, bounded memory, others served."""

import contextlib
import os
import resource
import selectors
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.daemon import MIB, Observed, observed, scripted
from tests.integration.raw import Raw, generate, hello, packed, strangers

from onegate import Client

as_root = pytest.mark.skipif(os.getuid() != 0, reason="not root: cannot be another user")

HOSTILE = 1000
# Sessions of one user turned up, and nobody is cut for being slow, so that all of them stay.
CROWDED = "sessions_per_uid = 2000\nsessions_total = 2100\n"
PATIENT = "hello_timeout_s = 600\nframe_timeout_s = 600\n"
ONE_TOKEN = "[[tokens:1]]"
SMALL = {"max_tokens": 1}


@pytest.fixture(scope="module", autouse=True)
def _descriptors() -> Iterator[None]:
    """A thousand connections have this process's end too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def crowd(gate: Observed, count: int) -> Iterator[list[Raw]]:
    """So many connections that have said hello."""
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(gate.connect()) for _ in range(count)]
        for link in links:
            link.write(hello())
        for link in links:
            link.expect("welcome")
        yield links


def stuff(link: Raw, data: bytes) -> int:
    """Write until nothing more goes in, or the other side has had enough."""
    link.sock.setblocking(False)
    try:
        return link.sock.send(data)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        return 0


# --- memory ---------------------------------------------------------------------------------------


def _half_frames(links: list[Raw]) -> None:
    """Together just below what one user may have unfinished."""
    data = generate(1, "x" * 100_000)[:64_000]
    for link in links:
        link.write(data)


def _lies(links: list[Raw]) -> None:
    """Eight megabytes announced, nothing sent."""
    for link in links:
        link.write((8 * MIB).to_bytes(4, "big"))


def _large_halves(links: list[Raw]) -> None:
    """Far more than one user may have unfinished: most of them are ended."""
    data = generate(1, "x" * 1_000_000)[:900_000]
    for link in links:
        stuff(link, data)


def _bursts(links: list[Raw]) -> None:
    """A quarter of a million requests, in one moment."""
    data = b"".join(generate(id, "x", params=SMALL) for id in range(256))
    for link in links:
        link.write(data)


def _counts(links: list[Raw]) -> None:
    """The one verb that waits and is not queued."""
    data = b"".join(packed({"t": "count", "id": id, "prompt": "x"}) for id in range(256))
    for link in links:
        link.write(data)


def _small_ones(links: list[Raw]) -> None:
    """As many messages as the kernel holds for each connection."""
    data = packed({"t": "cancel", "id": 1}) * 16_000
    for link in links:
        stuff(link, data)


def _unread(links: list[Raw]) -> None:
    """Long answers to short questions, and none of them is read."""
    data = b"".join(packed({"t": "status", "id": id}) for id in range(4000))
    for link in links:
        stuff(link, data)


# How many, what they do, and what the daemon may take meanwhile. Where few are enough to show that
# the bound holds it is a tighter one than that for a thousand.
ATTACKS: dict[str, tuple[int, Callable[[list[Raw]], None], int]] = {
    "half a frame each": (HOSTILE, _half_frames, 300),
    "a header each": (HOSTILE, _lies, 100),
    "half a large frame each": (HOSTILE, _large_halves, 300),
    "bursts": (20, _bursts, 80),
    "counts": (200, _counts, 100),
    "small messages without end": (20, _small_ones, 90),
    "answers that nobody reads": (16, _unread, 90),
}


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_memory_is_bounded_and_others_are_served(
    attack: str, tmp_path: Path, timeout_factor: float
) -> None:
    count, begin, most_mib = ATTACKS[attack]
    config = scripted(gate=CROWDED + PATIENT, max_seqs=4, a_ms=1.0)
    with (
        observed(tmp_path / "d", config, 120 * timeout_factor) as gate,
        gate.greeted(**{"class": "interactive"}) as other,
    ):
        alone = gate.figures()
        with crowd(gate, count) as links:
            begin(links)
            rss_mib = 0.0
            # Another client goes on through it all, in a class where the attackers do not wait.
            for id in range(20):
                other.ask(id, ONE_TOKEN, params=SMALL)
                end = other.end(id)
                # It is of the same user, whose share may be used up.
                assert end["t"] == "done" or end["reason"] in ("peer_quota", "bytes_full"), end
                rss_mib = max(rss_mib, gate.figures().rss_mib)
            # Until all has been looked at that has come.
            held_bytes = -1
            while held_bytes != (held_bytes := other.status()["gate"]["inbound_bytes"]):
                rss_mib = max(rss_mib, gate.figures().rss_mib)
                time.sleep(0.5)
            rss_mib = max(rss_mib, gate.figures().rss_mib)
        print(f"{attack}: {count} connections, {alone.rss_mib:.0f} -> {rss_mib:.0f} MiB")  # noqa: T201
        assert rss_mib < most_mib
        gate.wait(lambda: other.status()["gate"]["sessions"] == 1)
        gate.wait(lambda: gate.figures().fds <= alone.fds)
        gate.wait_idle()
        gate.check_unharmed()


@contextlib.contextmanager
def public(directory: Path, config: str, timeout_s: float) -> Iterator[Observed]:
    """A daemon that other users can reach: neither its folder nor its socket keeps them out."""
    config = config.replace("[gate]\n", "[gate]\nsocket_mode = 0o666\n")
    with observed(directory, config, timeout_s) as gate:
        directory.chmod(0o711)
        yield gate


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder below which other users reach what they may."""
    with tempfile.TemporaryDirectory(prefix="onegate-test-") as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "d"


@as_root
@pytest.mark.root
@pytest.mark.slow
def test_memory_is_bounded_whoever_they_are(open_path: Path, timeout_factor: float) -> None:
    """Five users, each with all it may have unfinished, and the limits as they are shipped."""
    data = generate(1, "x" * 2_000_000)[:1_080_000]
    timeout_s = 120 * timeout_factor
    with (
        public(open_path, scripted(gate=PATIENT), timeout_s) as gate,
        gate.greeted() as other,
        contextlib.ExitStack() as stack,
    ):
        for uid in range(3001, 3006):
            for link in stack.enter_context(strangers(gate.socket, uid, timeout_s, 62)):
                link.write(hello())
                with contextlib.suppress(BrokenPipeError):  # ended: all together have too much
                    link.write(data)
        other.ask(1, ONE_TOKEN)
        end = other.end(1)
        assert end["t"] == "done" or end["reason"] == "bytes_full"
        rss_mib = gate.figures().rss_mib
        held_mib = other.status()["gate"]["inbound_bytes"] / MIB
        print(f"five users: {held_mib:.0f} MiB held, {rss_mib:.0f} MiB resident")  # noqa: T201
        assert held_mib > 150
        assert rss_mib < 300


# --- time -----------------------------------------------------------------------------------------


def _read_until(links: list[Raw], last: Raw, wanted_bytes: int) -> int:
    """What all others have got by the time that `last` has got so much; nobody is cut."""
    got = dict.fromkeys((link.sock for link in links), 0)
    with selectors.DefaultSelector() as ready:
        for sock in got:
            sock.setblocking(False)
            ready.register(sock, selectors.EVENT_READ)
        while got[last.sock] < wanted_bytes:
            for key, _ in ready.select():
                data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                assert data, "closed"
                got[key.fileobj] += len(data)  # type: ignore[index]
    return sum(got.values()) - got[last.sock]


@as_root
@pytest.mark.root
def test_forty_connections_of_one_user_are_not_forty_times_as_fast(
    open_path: Path, timeout_factor: float
) -> None:
    """Two users ask for the same, as fast as they can; one over as many connections as it may."""
    timeout_s = 60 * timeout_factor
    data = b"".join(packed({"t": "status", "id": id}) for id in range(2000))
    with (
        public(open_path, scripted(), timeout_s) as gate,
        gate.greeted() as one,
        strangers(gate.socket, 3001, timeout_s, 40) as many,
    ):
        for link in many:
            link.greet()
        one.say("status", id=1)
        answer_bytes = len(packed(one.end(1)))
        for link in (*many, one):
            stuff(link, data)
        others_bytes = _read_until([*many, one], one, 1500 * answer_bytes)
        print(f"{others_bytes / answer_bytes:.0f} answers against 1500")  # noqa: T201
        assert others_bytes < 5 * 1500 * answer_bytes


# --- bytes ----------------------------------------------------------------------------------------

FEW_BYTES = "inbound_bytes = 3000000\ninbound_bytes_per_principal = 2000000\n"
FEW_BYTES += "max_frame_bytes = 1500000\n"


def test_unfinished_frames_are_bounded_together(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(
        gate=FEW_BYTES + PATIENT,
        b_ms_per_prefill_tok=0.0,
        max_step_tok="none",
        context_tok=1_000_000,
        kv_tok=1_000_000,
    )
    whole = generate(1, "x" * 900_000 + ONE_TOKEN, params=SMALL)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        crowd(gate, 3) as links,
        gate.greeted() as other,
    ):
        for link in links[:2]:
            link.write(whole[:800_000])
        gate.wait(lambda: other.status()["gate"]["inbound_bytes"] >= 1_600_000)
        with contextlib.suppress(BrokenPipeError):
            links[2].write(whole[:800_000])
        (failed,) = links[2].until_closed()
        assert "id" not in failed
        assert failed["reason"] == "bytes_full"
        assert failed["retryable"] is True
        assert failed["limit"] == 2_000_000
        # There was room for the two that came first, and there is again once they are done.
        links[0].write(whole[800_000:])
        assert links[0].end(1)["t"] in ("done", "failed")


def test_what_waits_is_bounded_in_bytes(tmp_path: Path, timeout_factor: float) -> None:
    """Fifty megabytes of prompts are held while they wait; one too many is told, and no other."""
    config = scripted(
        gate="max_queued_tok = 100000000",
        max_seqs=1,
        b_ms_per_prefill_tok=0.0,
        max_step_tok="none",
        context_tok=100_000_000,
        kv_tok=100_000_000,
        rest='[[class]]\nname = "batch"\nmax_queued_tok = 100000000\n',
    )
    whole = hello(**{"class": "batch"}) + generate(1, "x" * 7_000_000, params=SMALL)
    with (
        observed(tmp_path / "d", config, 120 * timeout_factor) as gate,
        gate.greeted() as holder,
        contextlib.ExitStack() as stack,
    ):
        holder.ask(0, "[[tokens:8000]]", params={"max_tokens": 8000})
        holder.expect("chunk", 0)
        links = [stack.enter_context(gate.connect()) for _ in range(10)]
        for link in links[:9]:
            link.write(whole)
        gate.wait(lambda: holder.status()["gate"]["queued"] == 9)
        with contextlib.suppress(BrokenPipeError):
            links[9].write(whole)
        failed = links[9].until_closed()[-1]
        assert (failed["reason"], failed["limit"]) == ("bytes_full", 64 * MIB)
        assert failed["retryable"] is True
        status = holder.status()
        assert status["gate"]["queued"] == 9
        assert 9 * 7_000_000 <= status["gate"]["inbound_bytes"] <= 64 * MIB
        figures = gate.figures()
        print(f"63 MB queued: {figures}")  # noqa: T201
        assert figures.rss_mib < 300
        holder.say("cancel", id=0)
        assert [link.end(1)["t"] for link in links[:9]] == ["done"] * 9


def test_a_request_that_can_never_be_held_is_too_large(
    tmp_path: Path, timeout_factor: float
) -> None:
    """Its numbers cost more memory than they were bytes."""
    config = scripted(gate=FEW_BYTES, context_tok=1_000_000, kv_tok=1_000_000)
    config += '[[class]]\nname = "loop"\nmax_queued_tok = 10000000\n'
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        raw.say("generate", id=1, prompt_token_ids=[70_000] * 200_000, params=SMALL)
        failed = raw.end(1)
        assert failed["reason"] == "too_large"
        assert failed["used"] > failed["limit"] == 2_000_000
        raw.ask(1, ONE_TOKEN)
        assert raw.end(1)["t"] == "done"


# --- connections ----------------------------------------------------------------------------------


def test_one_connection_too_many_is_told(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(gate="sessions_per_uid = 5\nsessions_total = 8")
    with observed(tmp_path / "d", config, 60 * timeout_factor) as gate:
        gate.wait(lambda: gate.status()["gate"]["sessions"] == 1)
        with crowd(gate, 5) as links:
            with gate.connect() as raw:
                (failed,) = raw.until_closed()
            assert (failed["reason"], failed["limit"], failed["used"]) == ("peer_quota", 5, 5)
            assert failed["phase"] == "handshake"
            links[0].close()

            def admitted() -> bool:
                with gate.connect() as again:
                    with contextlib.suppress(BrokenPipeError):
                        again.write(hello())
                    again.read()
                    return again.inbox[0]["t"] == "welcome"

            gate.wait(admitted)
        gate.wait(lambda: gate.status()["gate"]["sessions"] == 1)


def test_one_request_too_many_on_a_connection_is_told(
    tmp_path: Path, timeout_factor: float
) -> None:
    config = scripted(gate="in_flight_per_session = 3", max_seqs=8, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        for id in range(4):
            raw.ask(id, "[[tokens:4000]]")
        failed = raw.end(3)
        assert (failed["reason"], failed["limit"], failed["used"]) == ("peer_quota", 3, 3)
        raw.say("cancel", id=0)
        assert raw.end(0)["reason"] == "cancelled"
        raw.ask(3, ONE_TOKEN)
        assert raw.end(3)["t"] == "done"


def test_a_full_backlog_keeps_nobody_out_for_long(tmp_path: Path, timeout_factor: float) -> None:
    """The kernel refuses while the daemon does not accept; clients come back, and all get in."""
    config = scripted(gate="socket_backlog = 4")
    with observed(tmp_path / "d", config, 60 * timeout_factor) as gate:
        os.kill(gate.pid, signal.SIGSTOP)
        waiting: list[socket.socket] = []
        try:
            with contextlib.suppress(BlockingIOError):
                while len(waiting) < 100:
                    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                    waiting.append(sock)
                    sock.setblocking(False)
                    sock.connect(gate.socket)
            waiting.pop().close()
            assert len(waiting) == 5  # one more than the backlog, as Linux counts
            found: list[str] = []

            def ask() -> None:
                with Client(gate.socket, connect_timeout=gate.timeout_s) as client:
                    found.append(client.generate(ONE_TOKEN).finish_reason)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
        finally:
            os.kill(gate.pid, signal.SIGCONT)
        for thread in threads:
            thread.join(gate.timeout_s)
        assert found == ["stop"] * 4
        for sock in waiting:
            with Raw(sock, gate.timeout_s) as raw:
                raw.greet()
                raw.ask(1, ONE_TOKEN)
                assert raw.end(1)["t"] == "done"


def test_the_backlog_is_the_configured_one(tmp_path: Path, timeout_factor: float) -> None:
    """Also once the event loop has taken the socket over, which listens again."""
    with observed(tmp_path / "d", scripted(gate="socket_backlog = 300"), 60) as gate:
        os.kill(gate.pid, signal.SIGSTOP)
        try:
            with contextlib.ExitStack() as stack, contextlib.suppress(BlockingIOError):
                count = 0
                while count < 400:
                    sock = stack.enter_context(socket.socket(socket.AF_UNIX))
                    sock.setblocking(False)
                    sock.connect(gate.socket)
                    count += 1
            assert count == 301
        finally:
            os.kill(gate.pid, signal.SIGCONT)
        gate.check_unharmed()


def test_out_of_descriptors_is_survived(tmp_path: Path, timeout_factor: float) -> None:
    """Who is in goes on, who comes is turned away, and when there is room all is as before."""
    config = scripted(gate=CROWDED, engine="restart_backoff_ms = 10", max_seqs=4, a_ms=2.0)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):
        before = gate.figures_with(raw)
        raw.ask(1, "[[tokens:600]]")
        raw.expect("chunk", 1)
        gate.limit_fds(before.fds + 10)
        with contextlib.ExitStack() as stack:
            links = [stack.enter_context(gate.connect()) for _ in range(60)]
            answered = 0
            for link in links:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    link.write(hello())
            for link in links[:3]:
                link.expect("welcome")
                answered += 1
            assert raw.end(1)["usage"]["output_tok"] == 600
            raw.ask(2, ONE_TOKEN)
            assert raw.end(2)["t"] == "done"
            # An engine that dies now cannot be started before there are descriptors again.
            os.kill(gate.host_pid(), signal.SIGKILL)
            gate.wait(lambda: raw.status()["pools"][0]["restarts"] == 1)
        gate.wait(lambda: raw.status()["gate"]["sessions"] == 1)
        gate.wait(lambda: raw.status()["pools"][0]["state"] == "ready")
        gate.check_unharmed()
        gate.limit_fds(1024)
        with crowd(gate, 60) as links:
            links[-1].ask(1, ONE_TOKEN)
            assert links[-1].end(1)["t"] == "done"
        assert gate.figures_with(raw).fds == before.fds


# --- queues ---------------------------------------------------------------------------------------


def test_a_full_queue_says_how_full_and_when_to_come_back(
    tmp_path: Path, timeout_factor: float
) -> None:
    config = scripted(
        gate="max_queued_tok = 8192", max_seqs=1, context_tok=8192, kv_tok=8192, a_ms=2.0
    )
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted(**{"class": "batch"}) as raw,
    ):
        for id in range(12):
            raw.ask(id, "[[tokens:1000]]", params={"max_tokens": 1000})
        failed = raw.find(lambda a: a["t"] == "failed")
        assert failed["reason"] == "tokens_full"
        assert failed["limit"] == 8192
        assert failed["limit"] - 1100 < failed["used"] <= failed["limit"]
        assert failed["limited_by"] == "seats"
        # Once a rate is known the refusal tells when there is room.
        raw.find(lambda a: a["t"] == "started" and a["id"] > 0)
        for id in range(20, 30):
            raw.ask(id, "[[tokens:1000]]", params={"max_tokens": 1000})
        hints = [raw.find(lambda a: a["t"] == "failed" and a["id"] > 19) for _ in range(3)]
        assert all(hint["retry_after_ms"] > 0 for hint in hints)
        # And not the same time to all, or all would come at once.
        assert len({hint["retry_after_ms"] for hint in hints}) == 3


def test_capacity_is_advice_that_holds(tmp_path: Path, timeout_factor: float) -> None:
    config = scripted(max_seqs=1, context_tok=8192)
    with (
        observed(tmp_path / "d", config, 60 * timeout_factor) as gate,
        gate.greeted() as raw,
    ):

        def ask(**fields: object) -> dict[str, object]:
            raw.say("capacity", id=9, **({"prompt_tok": 100, "max_tok": 100} | fields))
            return raw.end(9)

        assert ask()["verdict"] == "start"
        assert ask(prompt_tok=9000)["reason"] == "too_large"
        raw.ask(1, "[[tokens:4000]]")
        raw.expect("chunk", 1)
        report = ask()
        assert (report["verdict"], report["limited_by"]) == ("queue", "seats")


# --- other users ----------------------------------------------------------------------------------


@as_root
@pytest.mark.root
def test_users_are_bounded_each_and_see_nothing_of_each_other(
    open_path: Path, timeout_factor: float
) -> None:
    timeout_s = 60 * timeout_factor
    config = scripted(gate="sessions_per_uid = 4", max_seqs=2, context_tok=8192)
    with (
        public(open_path, config, timeout_s) as gate,
        gate.greeted() as admin,
        strangers(gate.socket, 3001, timeout_s, 6) as ones,
        strangers(gate.socket, 3002, timeout_s, 2) as twos,
    ):
        # Connections are counted for each user.
        for link in ones[4:]:
            (failed,) = link.until_closed()
            assert (failed["reason"], failed["limit"]) == ("peer_quota", 4)
        one, two = ones[0], twos[0]
        assert one.greet()["peer"]["uid"] == 3001
        assert two.greet()["peer"]["uid"] == 3002
        # Who fills its own share of the queue leaves the other's alone.
        for id in range(20):
            one.ask(id, "[[tokens:4000]]", params={"max_tokens": 4000})
        one.expect("started", 1)
        full = one.find(lambda a: a["t"] == "failed")
        assert full["reason"] == "peer_quota"
        two.ask(1, ONE_TOKEN, progress=True, params=SMALL)
        queued = two.expect("queued", 1)
        assert queued["position"] > 1
        # Counts are seen, people are not.
        rows = two.requests()
        assert sum(row["mine"] for row in rows) == 1
        assert all("principal" in row for row in rows if row["mine"])
        assert not any(row.get("principal") for row in rows if not row["mine"])
        assert {row["principal"] for row in admin.requests()} == {
            row["principal"] for link in (one, two) for row in link.requests() if row["mine"]
        }
        # Nobody but an administrator reaches what is another's.
        rid = next(row["rid"] for row in rows if not row["mine"])
        denied = {
            "cancel_any": {"rid": rid},
            "pause": {"class": "loop"},
            "unpause": {"class": "loop"},
        }
        for verb, fields in denied.items():
            two.say(verb, id=50, **fields)
            assert two.end(50)["reason"] == "permission", verb
        two.say("cancel", id=0)
        assert two.find(lambda a: a["t"] == "ack")["applied"] is False
        admin.say("cancel_any", id=1, rid=rid)
        assert admin.end(1) == {"t": "ack", "id": 1, "verb": "cancel_any"}
        cancelled = one.find(lambda a: a["t"] == "failed" and a.get("rid") == rid)
        assert cancelled["reason"] == "cancelled"
        one.close()
        assert two.end(1)["t"] == "done"


@as_root
@pytest.mark.root
def test_a_socket_that_is_not_for_everybody(open_path: Path, timeout_factor: float) -> None:
    with observed(open_path, scripted(), 60 * timeout_factor) as gate:
        open_path.chmod(0o711)
        assert stat.S_IMODE(os.stat(gate.socket).st_mode) == 0o660
        with pytest.raises(AssertionError, match="could not connect"):
            with strangers(gate.socket, 3001, gate.timeout_s):
                pass
        gate.check_unharmed()
