"""What the demonstration sets up."""

import pytest

from onegate.config import check
from onegate_ollama_proxy.demo import EMBEDDED, gate_config


@pytest.mark.parametrize(
    ("ollama", "kind"), [(None, "openvino"), ("http://127.0.0.1:11434", "ollama")]
)
def test_its_gate_has_one_seat_and_knows_the_proxy(ollama, kind):
    config = check(gate_config(ollama, EMBEDDED))
    assert config.engine.kind == kind
    assert any(grant.delegate for grant in config.grants)
