from tests.sim.decisions import WAITING, Crowded


def test_what_is_measured_happens():
    """Each of these says itself what has to come of it."""
    crowd = Crowded()
    for _ in range(20):
        crowd.turn()
        crowd.token()
    assert crowd._core.view(crowd._now_ns).queued >= WAITING
    crowd.fill()
    for _ in range(20):
        crowd.refuse()
    crowd._core.validate()
