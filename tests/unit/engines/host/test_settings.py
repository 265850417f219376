import msgspec
import pytest

from onegate.engines.host.settings import OpenVinoSettings, ScriptedSettings, read_settings

OPENVINO = {
    "kind": "openvino",
    "model": "m",
    "path": "/m.gguf",
    "device": "CPU",
    "threads": None,
    "context_tok": 1,
    "kv_tok": 1,
    "max_seqs": 1,
    "max_step_tok": 1,
    "prefix_cache": False,
}


def test_the_kind_decides():
    assert isinstance(read_settings(OPENVINO), OpenVinoSettings)
    scripted = read_settings({"kind": "scripted", "pools": [], "loadable": 1})
    assert isinstance(scripted, ScriptedSettings)


@pytest.mark.parametrize(
    "table",
    [
        None,
        {},
        {**OPENVINO, "kind": "other"},
        {**OPENVINO, "unknown": 1},
        {**OPENVINO, "max_seqs": "1"},
        {key: value for key, value in OPENVINO.items() if key != "threads"},
    ],
)
def test_nothing_is_guessed(table):
    with pytest.raises(msgspec.ValidationError):
        read_settings(table)
