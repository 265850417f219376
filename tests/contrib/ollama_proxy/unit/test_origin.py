"""Which pages may ask, and under which names."""

import pytest

from onegate_ollama_proxy.origin import Origins, page_headers, preflight_headers


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:8443",
        "http://0.0.0.0:1",
        "http://[::1]:3000",
        "HTTP://LOCALHOST:3000",
        "app://anything",
        "tauri://localhost",
        "vscode-webview://0abc",
        "chrome-extension://abcdef",
    ],
)
def test_pages_of_this_machine(origin: str | None) -> None:
    assert Origins().allows_page(origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "http://localhost.evil.example",
        "http://127x0x0x1",  # a dot is a dot
        "http://:",  # brackets are no set of characters
        "null",
        "",
        "http://evil.example/?http://localhost",
    ],
)
def test_pages_of_others(origin: str) -> None:
    assert not Origins().allows_page(origin)


def test_a_long_name_is_not_taken_for_its_beginning() -> None:
    origins = Origins(["https://*.home.example"], ["*.home.example"])
    within = "a" * 235 + ".home.example"  # as long as a name can be
    assert origins.allows_page(f"https://{within}")
    assert origins.allows_host(f"{within}:65535")
    for n in range(200, 400):
        name = "a" * n + ".home.example"
        for stranger in (f"{name}.x.io", f"{name}.evil.example"):
            assert not origins.allows_page(f"https://{stranger}")
            assert not origins.allows_host(stranger)


def test_pages_that_the_configuration_lets_in() -> None:
    origins = Origins(["https://*.home.example"])
    assert origins.allows_page("https://chat.home.example")
    assert not origins.allows_page("https://home.example.evil")


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "localhost:11434",
        "LOCALHOST",
        "127.0.0.1:11434",
        "[::1]:11434",
        "[::1]",
        "0.0.0.0:1",
        "172.17.0.1:11434",
        "192.168.1.7",
        "host.docker.internal:11434",
        "printer.local",
        "a.localhost",
    ],
)
def test_names_of_this_machine(host: str | None) -> None:
    assert Origins().allows_host(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:11434", "8.8.8.8", "localhost.evil.example", "[2001:db8"]
)
def test_names_of_others(host: str) -> None:
    assert not Origins().allows_host(host)


def test_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Box")
    assert Origins().allows_host("box:11434")
    assert not Origins().allows_host("boxes")


def test_names_that_the_configuration_lets_in() -> None:
    origins = Origins(hosts=["*.lan.example"])
    assert origins.allows_host("gpu.lan.example:11434")
    assert not origins.allows_host("lan.example")


def test_what_a_browser_is_told() -> None:
    assert page_headers(None) == {}
    assert page_headers("app://x") == {"Access-Control-Allow-Origin": "app://x", "Vary": "Origin"}
    told = preflight_headers("app://x")
    assert "X-Onegate-Class" in told["Access-Control-Allow-Headers"]
    assert told["Access-Control-Allow-Origin"] == "app://x"
