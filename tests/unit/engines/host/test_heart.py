import threading

from onegate.engines.host.heart import Heart
from onegate.engines.host.outbox import DaemonGone

PATIENCE_S = 60.0


def test_it_beats_while_the_context_lasts():
    twice, beats = threading.Event(), []

    def beat():
        beats.append(threading.current_thread())
        if len(beats) == 2:
            twice.set()

    with Heart(beat, gone=beats.clear, every_s=0.001):
        assert twice.wait(PATIENCE_S)
    count = len(beats)
    assert beats[0] is not threading.current_thread()
    assert not beats[0].is_alive()
    assert len(beats) == count >= 2


def test_it_says_once_that_the_daemon_is_gone():
    gone, beats, told = threading.Event(), [], []

    def beat():
        beats.append(1)
        raise DaemonGone("x")

    def tell():
        told.append(1)
        gone.set()

    with Heart(beat, gone=tell, every_s=0.001):
        assert gone.wait(PATIENCE_S)
    assert (beats, told) == ([1], [1])


def test_leaving_does_not_wait_for_the_next_beat():
    def beat():
        raise AssertionError

    with Heart(beat, gone=beat, every_s=PATIENCE_S * 1000):
        pass
