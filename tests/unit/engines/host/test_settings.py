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
    "step_target_ms": None,
    "prefix_cache": False,
}

POOL = {
    **{"model": "m", "max_seqs": 1, "kv_tok": 1, "context_tok": 1, "max_step_tok": None},
    **{"reservation": "grow", "switch_cost_ms": 0.0, "a_ms": 0.0, "b_ms_per_prefill_tok": 0.0},
    "c_ms_per_seq": 0.0,
}


def test_the_kind_decides():
    assert read_settings({"kind": "scripted", "pools": [POOL], "loadable": 1}).pools
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
        {**OPENVINO, "max_seqs": 0},
        {**OPENVINO, "kv_tok": 2**40},
        {**OPENVINO, "threads": -1},
        {**OPENVINO, "path": "m.gguf"},
        {**OPENVINO, "path": "/m\0.gguf"},
        *[
            {"kind": "scripted", "pools": [{**POOL, key: value}], "loadable": 1}
            for key in ("a_ms", "switch_cost_ms", "b_ms_per_prefill_tok", "c_ms_per_seq")
            for value in (float("nan"), float("inf"), -1.0)
        ],
        {key: value for key, value in OPENVINO.items() if key != "threads"},
    ],
)
def test_nothing_is_guessed(table):
    with pytest.raises(msgspec.ValidationError):
        read_settings(table)
