from onegate.engines.host.step_times import StepTimes

MS = 1_000_000


def test_nothing_is_known_before_the_first_step():
    times = StepTimes()
    assert times.percentile_ms(0.5) is None
    assert times.tok_per_s() is None
    assert times.count == 0


def test_percentiles_and_rate():
    times = StepTimes()
    for ms in range(1, 101):
        times.add(ms * MS, 2)
    assert times.percentile_ms(0.5) == 51
    assert times.percentile_ms(0.95) == 96
    assert times.percentile_ms(1.0) == 100
    assert times.tok_per_s() == 200 / 5.05
    assert times.count == 100


def test_only_the_recent_steps_count():
    times = StepTimes(recent=2)
    for ms in (1000, 10, 10):
        times.add(ms * MS, 1)
    assert times.percentile_ms(0.95) == 10
    assert times.tok_per_s() == 100.0
    assert times.count == 3


def test_steps_without_duration_have_no_rate():
    times = StepTimes()
    times.add(0, 5)
    assert times.tok_per_s() is None
