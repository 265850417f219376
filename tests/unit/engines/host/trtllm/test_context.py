import json

import pytest

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm.context import model_context_tok


def scaled(**scaling):
    return {"max_position_embeddings": 4096, "rope_scaling": scaling}


@pytest.mark.parametrize(
    ("config", "most_tok"),
    [
        ({"max_position_embeddings": 8192}, 8192),
        ({"text_config": {"max_position_embeddings": 4096}}, 4096),
        ({"max_position_embeddings": 1, "text_config": {"max_position_embeddings": 2}}, 1),
        ({}, 2048),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}},
            16384,
        ),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "dynamic"}}, 4096),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": 4}},
            4096,
        ),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "llama3", "factor": 8}}, 4096),
        # What nobody can count with.
        ({"max_position_embeddings": "many"}, 2048),
        ({"max_position_embeddings": True}, 2048),
        ({"max_position_embeddings": -1}, 2048),
        ({"max_position_embeddings": 1e300}, 2048),
        ({"max_position_embeddings": float("nan")}, 2048),
        ({"text_config": [], "rope_scaling": []}, 2048),
        ({"max_position_embeddings": 9, "rope_scaling": {"factor": "x"}}, 9),
        ({"max_position_embeddings": 9, "rope_scaling": {"factor": 1e-9}}, 1),
        ({"max_position_embeddings": 1 << 30, "rope_scaling": {"factor": 1e9}}, 1 << 30),
    ],
    ids=str,
)
def test_what_a_configuration_says(tmp_path, config, most_tok):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert model_context_tok(tmp_path) == most_tok


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"7", b"[" * 100_000, b"\xff", b" " * (5 << 20)]
)
def test_what_is_no_configuration(tmp_path, data):
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(LoadFailed, match=r"config\.json is no model's configuration"):
        model_context_tok(tmp_path)


def test_one_that_is_not_there(tmp_path):
    with pytest.raises(LoadFailed, match=r"config\.json cannot be read"):
        model_context_tok(tmp_path)
