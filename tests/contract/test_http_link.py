"""The link of the HTTP engines against servers that mean it badly, over real sockets."""

import asyncio
import contextlib
import socket
import ssl
import subprocess
import tracemalloc

import pytest
import pytest_asyncio

from onegate.engines.base import EngineBroke, EngineError, EngineMalformed, EngineUnavailable
from onegate.engines.http.boundary import AddressRefused, parse_address
from onegate.engines.http.link import HttpLink, HttpStatus, NobodyThere

MIB = 1 << 20
OK = b"HTTP/1.1 200 OK\r\n"
HI = OK + b"Content-Length: 2\r\n\r\nhi"


@pytest_asyncio.fixture
async def serve():
    """`serve(answer)`: a server that reads a head, unless it does not ask for one, and does
    `answer(writer)`; gives its port."""
    servers, tasks, heads = [], set(), []

    async def start(answer, asks=True, **given):
        async def connected(reader, writer):
            tasks.add(asyncio.current_task())
            try:
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                    heads.append(await (reader.readuntil(b"\r\n\r\n") if asks else reader.read(1)))
                    await answer(writer)
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError, ssl.SSLError):
                    await writer.wait_closed()

        given = {"host": "127.0.0.1", "port": 0} | given
        server = await asyncio.start_server(connected, **given)
        servers.append(server)
        return server.sockets[0].getsockname()[1]

    start.heads = heads
    yield start
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest_asyncio.fixture
async def link_to():
    """`link_to(url)`; all are closed with the test."""
    links = []

    def make(url, **given):
        links.append(HttpLink(parse_address(url), **{"connect_s": 10.0} | given))
        return links[-1]

    yield make
    for link in links:
        await link.aclose()


def saying(*pieces):
    async def answer(writer):
        for piece in pieces:
            writer.write(piece)
        await writer.drain()

    return answer


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Of `localhost` and nobody else, by its own authority."""
    home = tmp_path_factory.mktemp("tls")
    key, cert = home / "key.pem", home / "cert.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", key, "-out", cert),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, cert


async def test_a_certificate_of_ones_own_is_trusted_when_the_owner_says_so(
    serve, link_to, certificate
):
    context, cert = certificate
    url = f"https://localhost:{await serve(saying(HI), ssl=context)}"
    with pytest.raises(EngineUnavailable, match=r"is not trusted.*set ca_file"):
        await link_to(url).get("/")
    assert await link_to(url, ca_file=str(cert)).get("/") == b"hi"


async def test_a_certificate_for_another_name_is_not_trusted(serve, link_to, certificate):
    context, cert = certificate
    port = await serve(saying(HI), ssl=context)
    with pytest.raises(EngineUnavailable, match=r"not trusted.*127\.0\.0\.1"):
        await link_to(f"https://127.0.0.1:{port}", ca_file=str(cert)).get("/")


async def test_a_server_that_speaks_no_tls_is_no_reason_to_lose_what_runs(serve, link_to):
    port = await serve(saying(b"HTTP/1.1 400 plain\r\n\r\n"), asks=False)
    with pytest.raises(EngineUnavailable, match="does not speak TLS") as error:
        await link_to(f"https://localhost:{port}").get("/")
    assert not isinstance(error.value, NobodyThere)


async def test_a_file_that_holds_no_authority_is_named(link_to, tmp_path):
    file = tmp_path / "ca.pem"
    file.write_text("no certificate")
    with pytest.raises(EngineUnavailable, match=r"ca\.pem holds no certificate"):
        await link_to("https://localhost:1", ca_file=str(file)).get("/")


# --- connecting ---------------------------------------------------------------------------------


async def test_a_connection_that_does_not_come_about_has_an_end(link_to):
    """A listener whose queue is full answers no handshake."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listener.getsockname())
        link = link_to(f"http://127.0.0.1:{listener.getsockname()[1]}", connect_s=0.2)
        async with asyncio.timeout(10):
            with pytest.raises(EngineUnavailable, match=r"within 0\.2 s") as error:
                await link.get("/")
    # It may be busy as well: what runs in there is not given up for it.
    assert not isinstance(error.value, NobodyThere)


async def test_a_handshake_that_nobody_answers_has_an_end(link_to):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        link = link_to(f"https://localhost:{listener.getsockname()[1]}", connect_s=0.2)
        async with asyncio.timeout(10):
            with pytest.raises(EngineUnavailable, match=r"within 0\.2 s"):
                await link.get("/")


async def test_where_nobody_listens_nobody_is_there(link_to, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", f"unix:{tmp_path}/none.sock"):
        with pytest.raises(NobodyThere, match="nobody answers"):
            await link_to(url).get("/")


@pytest.mark.parametrize(
    ("host", "listens"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.9.8.7", "127.9.8.7"),
        ("localhost", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
    ],
)
async def test_ways_to_name_this_machine(serve, link_to, host, listens):
    port = await serve(saying(HI), host=listens)
    assert await link_to(f"http://{host}:{port}").get("/") == b"hi"


@pytest.mark.parametrize(
    "host",
    [
        "0.0.0.0",
        "[::]",
        "[::ffff:192.0.2.1]",
        "[::ffff:0.0.0.0]",
        "[fe80::1]",
        "192.0.2.1",
        "0xc0.0.2.1",
        "169.254.169.254",
    ],
)
async def test_ways_to_name_another_one(link_to, host):
    with pytest.raises(EngineUnavailable, match="not this machine"):
        await link_to(f"http://{host}:9").get("/")


@pytest.mark.parametrize("host", ["3221225985", "2130706433", "127.1"])
async def test_numbers_that_are_an_address_to_some_are_none(link_to, host):
    with pytest.raises(AddressRefused, match="is no address"):
        await link_to(f"http://{host}:9").get("/")


# --- answers ------------------------------------------------------------------------------------


async def test_headers_without_end_are_not_kept(serve, link_to):
    async def answer(writer):
        writer.write(OK)
        for i in range(200_000):
            writer.write(b"x-%d: " % i + b"y" * 4000 + b"\r\n")
            await writer.drain()

    link = link_to(f"http://127.0.0.1:{await serve(answer)}")
    tracemalloc.start()
    try:
        with pytest.raises(EngineError):
            await link.get("/")
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "head",
    [
        OK + b"x: " + b"y" * 100_000,
        b"HTTP/1.1 200 " + b"y" * 100_000,
        b"y" * 100_000,
        OK + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        OK + b"Content-Length: -5\r\n\r\n",
        OK + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nhi",
        b"HTTP/9.9 banana\r\n\r\n",
        b"\x16\x03\x01\x00\xa5",
        b"\x00" * 1000,
    ],
)
async def test_what_is_no_answer_is_a_typed_error(serve, link_to, head):
    link = link_to(f"http://127.0.0.1:{await serve(saying(head))}")
    async with asyncio.timeout(20):
        with pytest.raises(EngineBroke):
            await link.get("/")


async def test_provisional_answers_without_end_have_one(serve, link_to):
    async def answer(writer):
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)
            await writer.drain()

    link = link_to(f"http://127.0.0.1:{await serve(answer)}")
    async with asyncio.timeout(20):
        with pytest.raises(EngineMalformed, match="before the answer"):
            await link.get("/", timeout_s=60.0)


async def test_a_thousand_provisional_answers_are_waited_for(serve, link_to):
    hints = b"HTTP/1.1 102 Processing\r\n\r\n" * 1000
    link = link_to(f"http://127.0.0.1:{await serve(saying(hints, HI))}")
    assert await link.get("/") == b"hi"


async def test_a_document_without_end_is_not_kept(serve, link_to):
    async def answer(writer):
        writer.write(OK + b"\r\n")
        while True:
            writer.write(b"x" * MIB)
            await writer.drain()

    link = link_to(f"http://127.0.0.1:{await serve(answer)}")
    with pytest.raises(EngineMalformed, match="longer than"):
        await link.get("/", timeout_s=60.0)


async def test_a_document_is_as_long_as_its_question_allows(serve, link_to):
    link = link_to(f"http://127.0.0.1:{await serve(saying(HI))}")
    assert await link.post("/", b"{}", max_bytes=2) == b"hi"
    with pytest.raises(EngineMalformed, match="longer than 1 bytes"):
        await link.post("/", b"{}", max_bytes=1)


async def test_of_an_error_the_beginning_is_read_and_its_end_is_not_waited_for(
    serve, link_to, monkeypatch
):
    monkeypatch.setattr("onegate.engines.http.link._QUESTION_S", 0.2)

    async def answer(writer):
        writer.write(b"HTTP/1.1 500 no\r\nRetry-After: 7\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    link = link_to(f"http://127.0.0.1:{await serve(answer)}")
    async with asyncio.timeout(20):
        with pytest.raises(HttpStatus) as error:
            await link.get("/", timeout_s=60.0)
    assert (error.value.status, error.value.retry_after_ms) == (500, 7000)


async def test_a_redirect_is_named_and_not_followed(serve, link_to):
    seen = []

    async def elsewhere(writer):
        seen.append(writer)

    there = await serve(elsewhere)
    for status in (301, 302, 303, 307, 308):
        said = b"HTTP/1.1 %d x\r\nLocation: http://127.0.0.1:%d/\r\n\r\n" % (status, there)
        link = link_to(f"http://127.0.0.1:{await serve(saying(said))}")
        with pytest.raises(EngineMalformed, match=f"redirects to http://127.0.0.1:{there}/"):
            await link.post("/", b"{}")
    assert seen == []


async def test_a_name_that_means_something_else_all_of_a_sudden(serve, link_to, monkeypatch):
    port = await serve(saying(HI))
    link = link_to(f"http://box.example:{port}")
    means = ["127.0.0.1"]

    async def getaddrinfo(host, port, **given):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (means[0], port))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await link.get("/") == b"hi"
    means[0] = "192.0.2.7"
    with pytest.raises(EngineUnavailable, match=r"box\.example is 192\.0\.2\.7"):
        await link.get("/")


async def test_a_server_is_told_nothing_that_it_has_said(serve, link_to):
    cookie = OK + b"Set-Cookie: a=b; Path=/\r\nContent-Length: 2\r\n\r\nhi"
    link = link_to(f"http://127.0.0.1:{await serve(saying(cookie))}")
    for _ in range(2):
        assert await link.get("/") == b"hi"
    assert len(serve.heads) == 2
    assert not any(b"cookie" in head.lower() for head in serve.heads)


async def test_nobody_waits_in_here_for_a_connection(serve, link_to):
    many, there, all_there = 150, [], asyncio.Event()

    async def answer(writer):
        there.append(writer)
        if len(there) == many:
            all_there.set()
        await all_there.wait()
        writer.write(HI)

    link = link_to(f"http://127.0.0.1:{await serve(answer, backlog=many)}")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(many):
            group.create_task(link.get("/", timeout_s=25.0))
    assert len(there) == many
