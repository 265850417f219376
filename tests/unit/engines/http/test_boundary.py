import ssl

import pytest

from onegate.engines.http.boundary import (
    AddressRefused,
    check_local,
    is_local,
    parse_address,
    tls_context,
)


@pytest.mark.parametrize(
    ("url", "text", "origin"),
    [
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("https://[::1]:8/x", "https://[::1]:8/x", "https://[::1]:8"),
        ("http://localhost", "http://localhost:80", "http://localhost:80"),
        ("https://box", "https://box:443", "https://box:443"),
        ("unix:/run/x.sock", "unix:/run/x.sock", "http://localhost:80"),
    ],
)
def test_addresses(url, text, origin):
    address = parse_address(url)
    assert str(address) == text
    assert address.origin == origin


def test_a_path_behind_a_unix_socket():
    address = parse_address("unix:/run/x.sock:/v1")
    assert (address.socket, address.prefix) == ("/run/x.sock", "/v1")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://x",
        "http://",
        "unix:x",
        "http://a:b@x",
        "http://x:y",
        "http://x/?q",
    ],
)
def test_what_is_no_address(url):
    with pytest.raises(ValueError, match=r".+"):
        parse_address(url)


@pytest.mark.parametrize("ip", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "::1%lo"])
def test_this_machine(ip):
    assert is_local(ip)


@pytest.mark.parametrize(
    "ip", ["0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1%lo", "localhost", "", "127.1"]
)
def test_not_this_machine(ip):
    assert not is_local(ip)


def test_every_address_of_a_name_has_to_be_here():
    check_local("box", ["127.0.0.1", "::1"])
    for ips in ([], ["127.0.0.1", "192.0.2.1"]):
        with pytest.raises(AddressRefused, match="allow_remote"):
            check_local("box", ips)


def test_certificates_are_verified():
    context = tls_context(None)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
