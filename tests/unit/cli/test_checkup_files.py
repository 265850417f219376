"""The configuration, and the model that it names."""

import os
from pathlib import Path
from typing import Any

import pytest

from onegate.cli.checkup import Machine, Ran, Verdict
from onegate.cli.checkup_files import configuration, loaded, model
from onegate.config import Config, check
from onegate.protocol.content import Identity


def at(root: Path, text: str | None = None, **more: Any) -> Machine:
    """A machine whose configuration says this."""
    if text is not None:
        (root / "etc/onegate").mkdir(parents=True)
        (root / "etc/onegate/onegate.toml").write_text(text)
    return Machine(**({"root": root, "environ": {}, "python": "/venv/bin/python"} | more))


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    (found,), config = configuration(at(tmp_path))
    assert (found.verdict, config) == (Verdict.OK, Config())


def test_a_good_file(tmp_path: Path) -> None:
    (found,), config = configuration(at(tmp_path, "[gate]\nmax_in_flight = 33\n"))
    assert found.verdict is Verdict.OK
    assert config is not None
    assert config.gate.max_in_flight == 33


def test_a_file_that_is_usable_and_probably_not_meant_so(tmp_path: Path) -> None:
    (found,), config = configuration(at(tmp_path, "[gate]\nmax_in_flight = 3\n"))
    assert found.verdict is Verdict.WARN
    assert "gate.max_in_flight" in found.sentence
    assert found.command == f"onegate check-config {tmp_path}/etc/onegate/onegate.toml"
    assert config is not None


def test_a_file_with_mistakes(tmp_path: Path) -> None:
    text = "[gate]\nmax_in_flight = 0\na = 1\nb = 1\nc = 1\n"
    (found,), config = configuration(at(tmp_path, text))
    assert (found.verdict, config) == (Verdict.FAIL, None)
    assert "gate.a" in found.sentence
    assert "and 1 more" in found.sentence
    assert found.command is not None


def test_the_file_that_the_environment_names(tmp_path: Path) -> None:
    named = tmp_path / "named.toml"
    named.write_text("nonsense = 1\n")
    environ = {"ONEGATE_CONFIG": str(named)}
    (found,), _ = configuration(at(tmp_path, "", environ=environ))
    assert found.verdict is Verdict.FAIL
    assert found.command == f"onegate check-config {named}"
    named.unlink()
    (found,), _ = configuration(at(tmp_path, environ=environ))
    assert found.verdict is Verdict.FAIL


def test_a_file_that_is_not_for_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (found,), config = configuration(at(tmp_path, ""))
    assert (found.verdict, found.command, config) == (Verdict.SKIP, "sudo onegate doctor", None)


# --- the model ------------------------------------------------------------------------------------


def looked(tmp_path: Path, config: Config | None, *answers: Ran | None) -> Any:
    waiting = list(answers)

    def run(*command: str) -> Ran | None:
        assert command[:4] == ("/venv/bin/python", "-P", "-m", "onegate.engines.models")
        return waiting.pop(0)

    (found,) = model(at(tmp_path, run=run), config)
    assert waiting == []
    return found


def test_the_model_that_comes_along(tmp_path: Path) -> None:
    answer = Ran(0, "smollm2-135m-instruct /venv/lib/model.gguf\n", "")
    assert looked(tmp_path, Config(), answer).verdict is Verdict.OK


def test_a_model_of_another_checksum(tmp_path: Path) -> None:
    said = "warning\nmodel.gguf has SHA-256 x instead of y: pip install mends it\n"
    found = looked(tmp_path, Config(), Ran(69, "", said), Ran(0, "llm-x==1\nllm-y==2\n", ""))
    assert found.verdict is Verdict.FAIL
    assert found.sentence.startswith("model.gguf has SHA-256")
    assert found.command == (
        "/venv/bin/python -m pip install --no-deps --force-reinstall llm-x==1 llm-y==2"
    )


def test_a_check_that_ends_without_a_word(tmp_path: Path) -> None:
    found = looked(tmp_path, Config(), Ran(1, "", ""), None)
    assert found.verdict is Verdict.FAIL
    assert "exit code 1" in found.sentence


def test_a_check_that_does_not_end(tmp_path: Path) -> None:
    assert looked(tmp_path, Config(), None).verdict is Verdict.SKIP


def test_a_name_that_no_model_has(tmp_path: Path) -> None:
    config = check('[engine]\nmodel = "gpt-7"\n')
    found = looked(tmp_path, config, Ran(0, "smollm2 /m.gguf\n", ""))
    assert found.verdict is Verdict.FAIL
    assert "smollm2" in found.sentence


def test_a_model_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    config = check(f'[engine]\nmodel = "{path}"\n')
    found = looked(tmp_path, config)
    assert (found.verdict, found.command) == (Verdict.FAIL, f"ls -lL {path}")
    path.write_text("")
    assert looked(tmp_path, config).verdict is Verdict.OK


@pytest.mark.parametrize("config", [None, check('[engine]\nkind = "scripted"\n')])
def test_where_there_is_no_model_to_look_at(tmp_path: Path, config: Config | None) -> None:
    assert looked(tmp_path, config).verdict is Verdict.SKIP


# --- what is loaded -------------------------------------------------------------------------------

HAS = "sha256:" + "a" * 64
OTHER = "sha256:" + "b" * 64


@pytest.mark.parametrize(
    ("said", "pool", "warns"),
    [
        (Ran(0, f"my m {HAS}\n", ""), {"model": "my m", "digest": HAS}, False),
        (Ran(0, f"my m {OTHER}\n", ""), {"model": "my m", "digest": HAS}, True),
        *(
            (Ran(0, f"my m {OTHER}\n", ""), {"model": "my m", "digest": HAS, "state": state}, False)
            for state in ("released", "cold", "loading", "failed")
        ),
        (Ran(0, f"my m {OTHER}\n", ""), {"model": "another", "digest": HAS}, False),
        (Ran(0, f"my m {OTHER}\n", ""), {"model": "my m", "digest": None}, False),
        (Ran(69, "", "it is not there\n"), {"model": "my m", "digest": HAS}, False),
        (None, {"model": "my m", "digest": HAS}, False),
    ],
)
def test_what_is_loaded_is_what_is_on_the_disk(
    tmp_path: Path, given: Any, said: Ran | None, pool: dict[str, Any], warns: bool
) -> None:
    asked = []

    def run(*command: str) -> Ran | None:
        asked.append(command[-2:])
        return said

    identity = Identity(engine="openvino", model=pool["model"], digest=pool["digest"])
    state = pool.get("state", "ready")
    pools = [given.pool(model=pool["model"], identity=identity, state=state)]
    config = check('[engine]\nmodel = "/m/my m.gguf"\n')
    found = loaded(at(tmp_path, run=run), config, pools, "start it anew")
    assert asked == [("digest", "/m/my m.gguf")]
    assert [(c.verdict, c.command) for c in found] == [(Verdict.WARN, "start it anew")] * warns
    assert all("aaaaaaaaaaaa is what is loaded" in c.sentence for c in found)


def test_an_engine_without_files_has_none_to_compare(tmp_path: Path, given: Any) -> None:
    for config in (None, check('[engine]\nkind = "scripted"\n')):
        assert loaded(at(tmp_path), config, [given.pool()], "") == []
    config = check('[engine]\nmodel = "/m.gguf"\n')
    ran = at(tmp_path, run=lambda *_: Ran(0, f"m {HAS}\n", ""))
    assert loaded(ran, config, [given.pool(model="m")], "") == []
