import pytest

from onegate.engines.http.capacity import Width

S = 1_000_000_000
MS = 1_000_000


class Sim:
    """A server that runs `width` requests at once, each `service_s` long, the first token `ttft_s`
    after its turn."""

    def __init__(self, ceiling, width, service_s=2.0, ttft_s=0.1):
        self.width = Width(ceiling)
        self.real = width
        self.service_ns, self.ttft_ns = int(service_s * S), int(ttft_s * S)
        self.now_ns = 0
        self.ids = iter(range(10**6))

    def alone(self):
        self.batch(1)

    def batch(self, n):
        """`n` at once, first come first served."""
        free = [self.now_ns] * self.real
        events = []
        for _ in range(n):
            id = next(self.ids)
            self.width.sent(id, 100, self.now_ns)
            begin = min(free)
            free[free.index(begin)] = begin + self.service_ns
            events.append((begin + self.ttft_ns, 1, id))
            events.append((begin + self.service_ns, 0, id))
        for at, first, id in sorted(events):
            self.now_ns = at
            if first:
                self.width.first(id, at)
            else:
                self.width.ended(id, at)


@pytest.mark.parametrize("real", [1, 2, 4, 7])
def test_a_ceiling_that_is_too_high_is_found_within_a_minute(real):
    sim = Sim(16, real, service_s=1.0)
    sim.alone()
    began_ns = sim.now_ns
    while sim.width.limit > real and sim.now_ns - began_ns < 60 * S:
        sim.batch(sim.width.limit)
    assert sim.width.limit == real
    assert f"max_seqs = {real}" in sim.width.finding
    assert sim.width.waited >= 3


def test_a_ceiling_that_is_right_is_left_alone():
    sim = Sim(4, 4)
    sim.alone()
    for _ in range(50):
        sim.batch(4)
    assert sim.width.limit == 4
    assert sim.width.finding is None


def test_long_prompts_are_no_queue():
    width = Width(4)
    width.sent(1, 100, 0)
    width.first(1, 100 * MS)
    width.ended(1, 200 * MS)
    for i in range(10, 50, 2):
        now_ns = i * 20 * S
        width.sent(i, 100, now_ns)
        width.sent(i + 1, 10_000, now_ns)
        width.first(i, now_ns + 100 * MS)
        width.ended(i, now_ns + 200 * MS)
        width.first(i + 1, now_ns + 10 * S)
        width.ended(i + 1, now_ns + 11 * S)
    assert width.limit == 4


def test_one_more_is_tried_after_a_quiet_time_and_ever_later():
    width = Width(3)
    for _ in range(2):
        width.sent(1, 1, 0)
        width.sent(2, 1, 0)
    assert width.refused(S)
    assert width.limit == 1
    assert not width.tick(50 * S)
    assert width.tick(70 * S)
    assert width.limit == 2
    assert width.refused(71 * S)
    assert not width.tick(140 * S)
    assert width.tick(200 * S)


def test_the_servers_own_word_is_taken_when_it_is_said_twice():
    width = Width(8)
    for id in range(6):
        width.sent(id, 1, 0)
    assert not width.observed(4, 2, S)
    assert width.observed(4, 2, 2 * S)
    assert width.limit == 4


def test_what_others_do_is_not_ours():
    width = Width(8)
    width.sent(1, 1, 0)
    width.sent(2, 1, 0)
    for i in range(5):
        assert not width.observed(4, 3, i * S)
    assert width.foreign == 5
    assert width.foreign_seen
    width.observed(2, 0, 9 * S)
    assert not width.foreign_seen


def test_what_is_not_said_is_not_known():
    width = Width(8)
    width.observed(None, None, 0)
    assert width.foreign is None
    assert not width.first(99, 0)
    width.ended(99, 0)


def test_a_server_that_turns_away_the_only_one_says_nothing_of_its_width():
    width = Width(8)
    width.sent(1, 1, 0)
    assert not width.refused(S)
    assert width.limit == 8


def test_no_fewer_than_were_seen_to_run_together_of_late():
    width = Width(8)
    for id in range(4):
        width.sent(id, 1, 0)
        width.first(id, S)
    for id in range(3):
        width.ended(id, 2 * S)
    width.sent(9, 1, 3 * S)
    assert width.refused(3 * S)
    assert width.limit == 4
    assert width.refused(62 * S)
    assert width.limit == 1


def test_one_whose_connection_is_closed_runs_beside_nobody():
    width = Width(4)
    width.sent(1, 1, 0)
    width.first(1, S)
    width.left(1)
    width.left(99)
    width.sent(2, 1, S)
    width.first(2, S)
    assert width.refused(S)
    assert width.limit == 1


def test_the_servers_word_counts_for_more_than_what_times_look_like():
    for says, expected in ((True, 16), (False, 3)):
        sim = Sim(16, 3)
        sim.alone()
        sim.width.observed(1, 0 if says else None, sim.now_ns)
        for _ in range(3):
            sim.batch(sim.width.limit)
        assert sim.width.limit == expected


def test_prompts_that_are_read_side_by_side_wait_for_nobody():
    """Four seats and four prompts of a second at once: each takes four seconds, and now and then
    somebody's short answer ends meanwhile."""
    width = Width(4)
    width.sent(0, 100, 0)
    width.first(0, S)
    width.ended(0, 2 * S)
    now_ns = 10 * S
    for i in range(10, 130, 4):
        ids = range(i, i + 4)
        for id in ids:
            width.sent(id, 100, now_ns)
        for k, id in enumerate(ids):
            width.first(id, now_ns + 4 * S + k * MS)
            width.ended(id, now_ns + 4 * S + k * MS)
        now_ns += 5 * S
    assert width.limit == 4


def test_a_long_prompt_that_began_long_ago_has_a_seat():
    """Two of three seats read long prompts; what passes through the third is not slowed by them."""
    sim = Width(9)
    sim.sent(0, 100, 0)
    sim.first(0, 100 * MS)
    sim.ended(0, 200 * MS)
    sim.sent(1, 10**6, S)
    sim.sent(2, 10**6, S)
    now_ns = S
    for id in range(10, 40):
        sim.sent(id, 100, now_ns)
    for id in range(10, 40):
        sim.first(id, now_ns + 100 * MS)
        now_ns += S
        sim.ended(id, now_ns)
    assert sim.limit == 3


def test_of_one_that_says_nothing_others_may_be_the_reason():
    width = Width(3)
    width.sent(1, 1, 0)
    width.sent(2, 1, 0)
    width.refused(S)
    assert "unless somebody else" in width.finding
    width.observed(1, 0, S)
    assert width.finding.endswith("max_seqs = 1")
