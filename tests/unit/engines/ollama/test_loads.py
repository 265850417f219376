"""Was it slow because of a load?"""

from onegate.config import OllamaModel
from onegate.engines.ollama.loads import was_cold
from onegate.engines.ollama.model import Known


def known():
    return Known(OllamaModel(model="m"))


def test_tens_of_milliseconds_are_warm():
    model = known()
    assert not was_cold(model, 30.0)
    assert not was_cold(model, 20.0)
    assert model.warm_load_ms == 20.0
    assert model.loads == 0


def test_a_load_is_counted_and_measured():
    model = known()
    assert was_cold(model, 570.0)
    assert (model.loads, model.load_ms) == (1, 570.0)


def test_on_a_slow_machine_warm_is_what_is_normal_there():
    model = known()
    was_cold(model, 200.0)
    assert not was_cold(model, 900.0)
    assert was_cold(model, 1001.0)
