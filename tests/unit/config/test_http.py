import pytest

from onegate.config import ConfigError, check


def config(**given):
    lines = "\n".join(f"{key} = {value!r}" for key, value in given.items())
    return f'[engine]\nkind = "openai"\n[engine.openai]\n{lines}\n'


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/v1", "https://box", "unix:/run/x.sock:/v1", "http://[::1]:1"]
)
def test_addresses(url):
    assert check(config(base_url=url)).engine.openai.base_url == url


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("box:8000", "expected http"),
        ("unix:x", "absolute"),
        ("http://me:secret@box", "api_key_file"),
        ("http://box:99999", "[Pp]ort"),
        ("http://box:0", "no port"),
        ("http://box?x=1", r"no \?"),
        ("http://192.0.2.1", "allow_remote"),
        ("http://0.0.0.0:1", "allow_remote"),
    ],
)
def test_what_is_no_address_is_said(url, text):
    with pytest.raises(ConfigError, match=text) as error:
        check(config(base_url=url))
    assert "secret" not in str(error.value)


def test_another_machine_is_allowed_by_its_owner_and_never_local():
    away = config(base_url="http://192.0.2.1")
    allowed = away.replace("[engine]", "[engine]\nallow_remote = true")
    assert check(allowed).engine.allow_remote
    with pytest.raises(ConfigError, match="boundary"):
        check(allowed + 'boundary = "local"\n')


def test_pools_have_names_of_their_own():
    text = '[[engine.openai.pools]]\nmodel = "a"\n'
    assert len(check(config() + text).engine.openai.pools) == 1
    with pytest.raises(ConfigError, match="already a pool"):
        check(config() + text + text)
