"""Names of targets."""

import sys
from pathlib import Path

import pytest

from onegate.bench.targets.base import TargetError
from onegate.bench.targets.gate import GateTarget
from onegate.bench.targets.host import HostTarget
from onegate.bench.targets.spec import Spec, build, engine_text, read_spec, server_of
from onegate.config import check


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("gate", Spec("gate")),
        ("gate:/run/s#tiny", Spec("gate", "/run/s", "tiny")),
        ("host:/etc/a.toml", Spec("host", "/etc/a.toml")),
        ("private#tiny", Spec("private", "", "tiny")),
        ("embedded", Spec("embedded")),
        ("openai:http://h:8000/v1#a/b", Spec("openai", "http://h:8000/v1", "a/b")),
        ("ollama:unix:/run/o.sock", Spec("ollama", "unix:/run/o.sock")),
    ],
)
def test_a_name_is_read_and_written_back(text: str, spec: Spec) -> None:
    assert read_spec(text) == spec
    assert str(spec) == text


def test_what_is_no_target_says_what_is() -> None:
    with pytest.raises(TargetError, match=r"'steam:x' is no target: it is gate"):
        read_spec("steam:x")
    with pytest.raises(TargetError, match="lacks its URL: ollama:http"):
        read_spec("ollama:localhost")
    with pytest.raises(TargetError, match=r"has no configuration of its own: private:a\.toml"):
        read_spec("embedded:a.toml")


def test_a_private_daemon_keeps_its_name() -> None:
    running = Spec("private", "a.toml").at("/tmp/s")
    assert (running.kind, running.where, str(running)) == ("gate", "/tmp/s", "private:a.toml")


def test_a_setting_is_part_of_the_name_and_of_the_configuration() -> None:
    spec = Spec("private", setting="interactive.preempt=never")
    assert str(spec) == "private, interactive.preempt=never"
    assert str(spec.at("/tmp/s")) == str(spec)
    config = check(engine_text(spec))
    assert config.engine.kind == "scripted"
    (cls,) = (cls for cls in config.classes if cls.name == "interactive")
    assert (cls.preempt, cls.behaviour_live) == ("never", None)


def test_the_embedded_engine_has_people_who_are_one_program() -> None:
    config = check(engine_text(Spec("embedded")))
    assert config.engine.kind == "openvino"
    assert {cls.behaviour_live for cls in config.classes} == {None}


def test_two_targets_may_be_one_server() -> None:
    one = [
        Spec("openai", "http://localhost:8000/v1", "a"),
        Spec("openai", "http://127.0.0.1:8000", "b"),
        Spec("ollama", "http://[::1]:8000/"),
    ]
    assert {server_of(spec) for spec in one} == {"127.0.0.1:8000"}
    assert server_of(Spec("openai", "http://h")) == "h:80"
    assert server_of(Spec("gate", "/run/../run/s")) == server_of(Spec("ollama", "unix:/run/s"))
    assert server_of(Spec("openai", "http://h:99999999")) == "http://h:99999999"
    assert server_of(Spec("host")) is None


def test_what_a_target_is_built_from(tmp_path: Path) -> None:
    assert isinstance(build(Spec("gate", "/s"), ready_s=1.0, log=print), GateTarget)
    assert isinstance(build(Spec("host"), ready_s=1.0, log=print), HostTarget)
    with pytest.raises(TargetError, match="has to be started"):
        build(Spec("private"), ready_s=1.0, log=print)
    with pytest.raises(TargetError, match="has to be started"):
        build(Spec("embedded"), ready_s=1.0, log=print)
    bad = tmp_path / "bad.toml"
    bad.write_text("[engine]\nkind = 'openai'\n")
    with pytest.raises(TargetError, match="Bare it is openai:URL"):
        build(Spec("host", str(bad)), ready_s=1.0, log=print)
    bad.write_text("[engine]\nkind = 'steam'\n")
    with pytest.raises(TargetError, match=r"engine\.kind"):
        build(Spec("host", str(bad)), ready_s=1.0, log=print)


def test_the_engine_of_a_private_daemon(tmp_path: Path) -> None:
    assert 'kind = "scripted"' in engine_text(Spec("private"))
    (tmp_path / "a.toml").write_text("[engine]\n")
    assert engine_text(Spec("private", str(tmp_path / "a.toml"))) == "[engine]\n"
    with pytest.raises(TargetError, match=r"private:/none cannot be read: No such file"):
        engine_text(Spec("private", "/none"))
    assert read_spec("host").one_process
    assert not read_spec("gate").one_process


def test_http_servers_need_a_package_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "ollama", "openai"):
        monkeypatch.delitem(sys.modules, f"onegate.bench.targets.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(TargetError, match=r"pip install 'onegate\[http\]'"):
        build(Spec("openai", "http://h"), ready_s=1.0, log=print)


def test_http_servers_by_their_dialect() -> None:
    pytest.importorskip("aiohttp", reason="absent aiohttp: pip install 'onegate[http]'")
    for kind in ("openai", "ollama"):
        target = build(Spec(kind, "http://h"), ready_s=1.0, log=print)
        assert type(target).__name__.lower() == f"{kind}target"


@pytest.mark.parametrize(("kind", "least_s"), [("tensorrt-llm", 600.0), ("scripted", 1.0)])
def test_an_engine_that_loads_for_minutes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, least_s: float
) -> None:
    waits = []
    monkeypatch.setattr(HostTarget, "of", lambda *_, ready_s, log: waits.append(ready_s))
    config = tmp_path / "a.toml"
    own = 'model = "/m"\npython = "/p"\ntensorrt_llm.load_timeout_s = 600\n'
    config.write_text(f'[engine]\nkind = "{kind}"\n' + (own if kind != "scripted" else ""))
    build(Spec("host", str(config)), ready_s=1.0, log=print)
    assert waits == [least_s]
