from onegate.engines.host.trtllm.messages import Iteration


def test_a_step_without_figures_has_none():
    assert set(Iteration()) == {None}
