import pytest

from onegate.engines.base import Reservation
from onegate.engines.host.directives import read_script
from onegate.engines.host.scripted_batch import ScriptedBatch
from onegate.engines.host.scripted_faults import Faults
from onegate.engines.host.scripted_sequence import ScriptedSequence
from onegate.engines.host.settings import ScriptedPool

MS = 1_000_000


class Time:
    """A clock that only sleeping moves."""

    def __init__(self):
        self.ns = 0
        self.slept_ms = []

    def now_ns(self):
        return self.ns

    def sleep(self, seconds):
        self.slept_ms.append(round(seconds * 1000, 6))
        self.ns += int(seconds * 1e9)


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def make(clock, make_request):
    def make(**given):
        pool = ScriptedPool(
            **{
                "model": "m",
                "max_seqs": 4,
                "kv_tok": 1000,
                "context_tok": 1000,
                "max_step_tok": 10,
                "reservation": Reservation.GROW,
                "switch_cost_ms": 0.0,
                "a_ms": 100.0,
                "b_ms_per_prefill_tok": 1.0,
                "c_ms_per_seq": 10.0,
                **given,
            }
        )
        batch = ScriptedBatch(pool, Faults(lambda: None), clock.now_ns, clock.sleep)

        def enter(id, prompt="[[tokens:50]]", prompt_tok=4, **request):
            sequence = ScriptedSequence(
                make_request(prompt, id=id, **request),
                read_script(prompt),
                prompt.encode(),
                prompt_tok=prompt_tok,
                room_tok=1000,
            )
            batch.add(sequence)
            return sequence

        batch.enter = enter
        return batch

    return make


def moved(report):
    return [(p.id, p.prefilled_tok) for p in report.prefilled]


def ids(report):
    return [output.id for output in report.outputs]


def test_a_step_costs_what_the_model_says(make, clock):
    batch = make()
    batch.enter(1)
    batch.step()  # 4 prompt tokens, nobody decodes yet
    batch.step()  # one decodes
    assert clock.slept_ms == [104.0, 110.0]


def test_prompts_are_computed_in_chunks_in_order(make):
    batch = make()
    batch.enter(1, prompt_tok=15)
    batch.enter(2, prompt_tok=8)
    first, second, third = batch.step(), batch.step(), batch.step()
    assert moved(first) == [(1, 10)]
    assert (ids(second), moved(second)) == ([1], [(2, 5)])
    # A decoder takes one of the ten.
    assert (ids(third), moved(third)) == ([1, 2], [])


def test_without_a_batch_limit_a_prompt_is_one_step(make):
    batch = make(max_step_tok=None)
    batch.enter(1, prompt_tok=900)
    assert ids(batch.step()) == [1]


def test_a_step_full_of_decoders_still_computes_a_token(make):
    batch = make(max_step_tok=2)
    for id in (1, 2):
        batch.enter(id, prompt_tok=1)
    batch.step()
    batch.enter(3, prompt_tok=3)
    assert [moved(batch.step()) for _ in range(2)] == [[(3, 1)], [(3, 2)]]


def test_an_abort_frees_with_the_next_step(make):
    batch = make()
    batch.enter(1)
    batch.step()
    batch.abort(1)
    batch.abort(1)
    batch.abort(9)
    report = batch.step()
    assert (report.freed, ids(report), report.ended) == ([1], [], [])
    assert batch.ids() == []


def test_a_seat_can_be_held(make, clock):
    batch = make()
    batch.enter(1, "[[hold-seat:250]]")
    batch.step()
    batch.abort(1)
    assert [batch.step().freed for _ in range(3)] == [[], [], [1]]
    assert clock.ns >= 250 * MS


def test_costs_and_stalls_by_directive(make, clock):
    batch = make()
    batch.enter(1, "[[step-ms:7]][[stall:1000]]")
    for _ in range(3):
        batch.step()
    assert clock.slept_ms == [104.0, 1007.0, 7.0]


def test_an_end_frees_in_the_same_step(make):
    batch = make()
    batch.enter(1, "[[tokens:1]]")
    report = batch.step()
    assert report.ended[0].id == 1
    assert report.freed == [1]


def test_a_growing_cache_evicts_the_youngest(make):
    batch = make(kv_tok=12, max_step_tok=100)
    old, young = batch.enter(1), batch.enter(2)
    for _ in range(2):
        batch.step()
    assert (old.kv_tok, young.kv_tok) == (6, 6)
    batch.step()
    assert old.kv_tok == 7
    assert not young.admitted
    snapshots = [batch.step().snapshot for _ in range(4)]
    assert next(s for s in snapshots if s is not None).waiting == 1


def test_a_full_reservation_is_taken_at_the_start(make):
    batch = make(kv_tok=60, reservation=Reservation.FULL, max_step_tok=100)
    one = batch.enter(1, max_tokens=50)
    two = batch.enter(2, max_tokens=50)
    batch.step()
    assert one.kv_tok == 54
    assert not two.admitted
    batch.abort(1)
    batch.step()
    batch.step()
    assert two.admitted


def test_slots_know_no_pooled_cache(make):
    batch = make(kv_tok=5, reservation=Reservation.PER_SLOT, max_step_tok=100)
    for id in (1, 2, 3):
        batch.enter(id, prompt_tok=5)
    assert ids(batch.step()) == [1, 2, 3]


def test_nobody_is_overtaken(make):
    batch = make(kv_tok=20, max_step_tok=100)
    batch.enter(1, prompt_tok=10)
    big, small = batch.enter(2, prompt_tok=15), batch.enter(3, prompt_tok=1)
    batch.step()
    assert not big.admitted
    assert not small.admitted


def test_one_larger_than_the_cache_runs_alone(make):
    batch = make(kv_tok=5, max_step_tok=100)
    batch.enter(1, prompt_tok=50)
    assert ids(batch.step()) == [1]


def test_figures_of_the_pool(make):
    batch = make()
    batch.enter(1, "[[tokens:1]]")
    snapshot = batch.step().snapshot
    assert (snapshot.model, snapshot.seats_used, snapshot.steps) == ("m", 0, 1)
    assert snapshot.step_ms_p50 == pytest.approx(104.0)
