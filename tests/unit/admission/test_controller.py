"""Each event by itself: what it answers, what it changes, and when it is a bug of the shell.

What comes of several events together is in `core/`.
"""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from onegate.admission import events as ev
from onegate.admission.controller import Controller
from onegate.admission.effects import Abort, Grant, LoadPool, Preempt, Queue, Refuse
from onegate.admission.lifecycle import IllegalMove
from onegate.admission.model import PoolState, Refused, Resume
from onegate.admission.protect import BURST_TOK

S = 10**9


@pytest.fixture
def core(
    limits: Callable[..., Any], class_spec: Callable[..., Any], pool_spec: Callable[..., Any]
) -> Callable[..., Controller]:
    """Two classes, one pool with one seat."""

    def build(
        *pools: Any, floor_share: float = 0.0, preempting: bool = False, **fields: Any
    ) -> Controller:
        classes = (
            class_spec(name="chat", rank=0, preempts=preempting),
            class_spec(name="batch", rank=1, floor_share=floor_share, preemptible=preempting),
        )
        return Controller(limits(**fields), classes, pools or (pool_spec("a", max_seqs=1),))

    return build


def tell(core: Controller, *events: ev.Event, now_ns: int = 0) -> list[Any]:
    """The answer to the last; every invariant holds after each."""
    effects: list[Any] = []
    for event in events:
        effects = core.handle(event, now_ns)
        core.validate()
    return effects


@pytest.fixture
def arrive(request_spec: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A request comes."""

    def build(core: Controller, *args: Any, now_ns: int = 0, **fields: Any) -> list[Any]:
        return tell(core, ev.Arrived(request_spec(*args, **fields)), now_ns=now_ns)

    return build


def pool_of(core: Controller) -> Any:
    return core.view(0).pools[0]


# --- bugs of the shell ----------------------------------------------------------------------------


def test_every_event_has_an_answer(
    core: Any, pool_spec: Any, limits: Any, request_spec: Any, class_spec: Any
) -> None:
    classes = (class_spec(name="chat", rank=0), class_spec(name="batch", rank=1))
    story = [
        ev.Arrived(request_spec(1)),
        ev.Counted(1, 12),
        ev.Prefilled(1, 5),
        ev.Produced(1, 1),
        ev.Requeued(1),
        ev.Settled(1, 1, True),
        ev.SeatFreed(1),
        ev.Withdrawn(1),
        ev.PoolChanged(pool_spec("a")),
        ev.ClassClosed("chat", None),
        ev.ClassOpened("chat"),
        ev.LimitsChanged(limits(), classes),
        ev.Tick(),
        ev.DrainStarted(),
    ]
    assert {type(event) for event in story} == set(get_args(ev.Event))
    one = core()
    assert [tell(one, event) for event in story] == [
        [Grant(1)],
        [],
        [],
        [],
        [Grant(1)],
        *([[]] * 9),
    ]
    assert one.view(0).draining


@pytest.mark.parametrize(
    "event",
    [
        ev.Counted(9, 1),
        ev.Prefilled(9, 1),
        ev.Produced(9, 1),
        ev.Settled(9, 1, True),
        ev.SeatFreed(9),
        ev.Requeued(9),
        ev.ClassClosed("nothing", None),
        ev.ClassOpened("nothing"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_nobody_knows_is_a_bug_and_changes_nothing(core: Any, event: ev.Event) -> None:
    one = core()
    before = one.view(0)
    with pytest.raises(KeyError):
        tell(one, event)
    assert one.view(0) == before


@pytest.mark.parametrize(
    "event",
    [ev.Prefilled(2, 1), ev.Produced(2, 1), ev.Settled(2, 1, True), ev.Requeued(2)],
    ids=lambda event: type(event).__name__,
)
def test_what_waits_is_not_in_the_engine(core: Any, arrive: Any, event: ev.Event) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2)
    before = one.view(0)
    with pytest.raises(IllegalMove):
        tell(one, event)
    assert one.view(0) == before


@pytest.mark.parametrize("fields", [{"class_": "nothing"}, {"pool": "nothing"}])
def test_a_newcomer_names_what_exists(core: Any, arrive: Any, fields: dict[str, str]) -> None:
    one = core()
    with pytest.raises(KeyError):
        arrive(one, 1, **fields)
    assert one.view(0).queued == 0


def test_nobody_arrives_twice(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    with pytest.raises(IllegalMove, match="request 1 has arrived before"):
        arrive(one, 1)


# --- arrival --------------------------------------------------------------------------------------


def test_a_newcomer_is_granted_queued_or_refused(core: Any, arrive: Any) -> None:
    one = core(max_queued_requests=1)
    assert arrive(one, 1) == [Grant(1)]
    assert arrive(one, 2) == [Queue(2)]
    (refuse,) = arrive(one, 3, principal="bob")
    assert (refuse.rid, refuse.queued) == (3, False)
    assert refuse.refusal.reason is Refused.CLASS_FULL
    assert one.view(0).queued == 1


def test_a_newcomer_that_is_late_is_refused(core: Any, arrive: Any) -> None:
    (refuse,) = arrive(core(), 1, deadline_ns=S, now_ns=S)
    assert (refuse.refusal.reason, refuse.queued) == (Refused.DEADLINE_EXCEEDED, False)


def test_a_newcomer_is_refused_at_the_door(core: Any, arrive: Any) -> None:
    (refuse,) = arrive(core(), 1, prompt_tok=10**6)
    assert (refuse.refusal.reason, refuse.queued) == (Refused.TOO_LARGE, False)


def test_what_starts_at_once_needs_no_room(core: Any, arrive: Any) -> None:
    one = core()
    assert arrive(one, 1, prompt_tok=600) == [Grant(1)]
    (refuse,) = arrive(one, 2, prompt_tok=600)
    assert refuse.refusal.reason is Refused.TOO_LARGE
    assert one.view(0).queued == 0
    assert arrive(one, 3) == [Queue(3)]
    (refuse,) = arrive(one, 4, prompt_tok=600)
    assert refuse.refusal.limit == 500


def test_timers_that_went_off_are_seen_before_the_newcomer(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2, deadline_ns=S)
    expired, answer = arrive(one, 3, now_ns=S)
    assert (expired.rid, expired.queued, answer) == (2, True, Queue(3))


# --- in the queue ---------------------------------------------------------------------------------


def test_who_waits_may_leave(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2)
    assert tell(one, ev.Withdrawn(2)) == []
    assert one.view(0).queued == 0
    assert tell(one, ev.Withdrawn(1)) == []
    assert one.view(0).in_flight == 1


def test_what_waits_may_be_counted(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2)
    tell(one, ev.Counted(2, 90))
    assert one.view(0).queued_tok == 100


def test_the_best_starts_when_a_seat_is_free(core: Any, arrive: Any) -> None:
    one = core()
    for rid, class_ in ((1, "batch"), (2, "batch"), (3, "chat")):
        arrive(one, rid, class_)
    assert tell(one, ev.Settled(1, 1, True)) == []
    assert pool_of(one).seats_quarantined == 1
    assert tell(one, ev.SeatFreed(1)) == [Grant(3)]
    assert tell(one, ev.Settled(3, 1, True), ev.SeatFreed(3)) == [Grant(2)]


# --- in the engine --------------------------------------------------------------------------------


def test_prefill_is_credited_and_counted_anew(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1, prompt_tok=50)
    left = [pool_of(one).unprefilled_tok]
    for event in (
        ev.Prefilled(1, 20),
        ev.Prefilled(1, 10),
        ev.Counted(1, 60),
        ev.Counted(1, 15),
        ev.Counted(1, 40),
        ev.Prefilled(1, 25),
    ):
        tell(one, event)
        left.append(pool_of(one).unprefilled_tok)
    assert left == [50, 30, 30, 40, 0, 0, 0]
    assert pool_of(one).kv_tok_used == 50


def test_the_first_token_ends_the_prefill(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1, prompt_tok=50)
    tell(one, ev.Produced(1, 1))
    assert pool_of(one).unprefilled_tok == 0


def test_a_lease_has_no_prefill(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1, prompt_tok=50, lease=True)
    assert pool_of(one).unprefilled_tok == 0


def test_what_is_settled_keeps_what_was_computed_until_the_seat_is_free(
    core: Any, arrive: Any
) -> None:
    one = core()
    arrive(one, 1, prompt_tok=50)
    tell(one, ev.Settled(1, 3, False))
    assert (one.view(0).in_flight, one.view(0).classes[0].running) == (0, 0)
    assert (pool_of(one).kv_tok_used, pool_of(one).unprefilled_tok) == (53, 0)
    tell(one, ev.Counted(1, 40))
    assert pool_of(one).kv_tok_used == 43
    tell(one, ev.SeatFreed(1))
    assert (pool_of(one).kv_tok_used, pool_of(one).seats_used) == (0, 0)


def test_a_settle_does_not_forget_output_that_was_told(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    tell(one, ev.Produced(1, 7), ev.Settled(1, 0, False))
    assert pool_of(one).kv_tok_used == 17


def test_a_seat_may_be_free_before_the_permit(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    tell(one, ev.SeatFreed(1))
    assert (pool_of(one).seats_used, one.view(0).in_flight) == (0, 1)
    tell(one, ev.Counted(1, 20), ev.Produced(1, 1), ev.Settled(1, 1, True))
    assert one.view(0).in_flight == 0
    with pytest.raises(KeyError):
        tell(one, ev.SeatFreed(1))


@pytest.mark.parametrize("freed", [True, False], ids=["seat free before", "seat free with it"])
def test_what_the_engine_lost_finds_its_place(core: Any, arrive: Any, freed: bool) -> None:
    one = core(max_in_flight=1)
    for rid in (1, 2):
        arrive(one, rid, ttft_deadline_ns=S)
    tell(one, ev.Prefilled(1, 5))
    if freed:
        tell(one, ev.SeatFreed(1))
    assert tell(one, ev.Requeued(1)) == [Grant(1)]
    assert (pool_of(one).seats_used, pool_of(one).unprefilled_tok) == (1, 10)
    assert one.view(0).in_flight == 1


def test_output_that_is_begun_again_is_computed_again(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    arrive(one, 1, max_tok=900)
    tell(one, ev.Produced(1, 8), ev.Requeued(1))
    arrive(one, 2, "batch")
    arrive(one, 3)
    tell(one, ev.Produced(1, 2))  # 12 tokens, of which batch earns 6
    tell(one, ev.Produced(1, 20))  # and 9 of these 18
    tell(one, ev.Settled(1, 20, True))
    assert tell(one, ev.SeatFreed(1)) == [Grant(2)]


def test_what_waits_again_has_no_safety_timeout(core: Any, arrive: Any, request_spec: Any) -> None:
    one = core()
    arrive(one, 1, "batch")
    tell(one, ev.ClassClosed("batch", None), ev.Requeued(1))
    assert one.next_wake_ns() is None
    assert tell(one, ev.Tick(), now_ns=1000 * S) == []
    assert one.standing(1, 0) is not None


def test_what_was_aborted_hears_of_that_also_in_a_shutdown(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1, deadline_ns=S)
    (abort,) = tell(one, ev.Tick(), now_ns=S)
    tell(one, ev.DrainStarted(), now_ns=S)
    assert tell(one, ev.Requeued(1), now_ns=S) == [Refuse(1, abort.refusal, queued=True)]


def test_what_was_aborted_does_not_come_back(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1, deadline_ns=S)
    (abort,) = tell(one, ev.Tick(), now_ns=S)
    assert isinstance(abort, Abort)
    assert tell(one, ev.Requeued(1), now_ns=S) == [Refuse(1, abort.refusal, queued=True)]
    assert pool_of(one).seats_used == 0


def stopped(core: Any, arrive: Any, **fields: Any) -> tuple[Controller, Any]:
    """1 has 10 of prompt and 8 of output when a chat has it stopped."""
    one = core(preempting=True)
    one._book.pools["a"]._weight = 1.0
    arrive(one, 1, "batch", max_tok=90, **fields)
    tell(one, ev.Produced(1, 8))
    assert arrive(one, 2)[1:] == [Preempt(1)]
    return one, one._book.records[1]


def test_a_stop_costs_the_class_what_was_computed(core: Any, arrive: Any) -> None:
    one, record = stopped(core, arrive, resume=Resume.EXACT)
    allowance = one._book.allowances["batch"]
    assert allowance.left_tok == BURST_TOK - 18, "as it looks when it is asked to stop"
    tell(one, ev.Produced(1, 9))  # until the engine has stopped it
    assert tell(one, ev.Requeued(1, 9)) == [Grant(2)]
    assert (record.again_tok, record.lost_tok) == (19, 19)
    assert allowance.left_tok == BURST_TOK - 19
    assert (record.output_tok, record.kept_tok, record.prefill_tok) == (9, 9, 19)
    assert record.exempt


def test_what_the_engine_lost_costs_the_class_nothing(core: Any, arrive: Any) -> None:
    one = core(preempting=True)
    arrive(one, 1, "batch", resume=Resume.EXACT)
    tell(one, ev.Produced(1, 8), ev.ClassClosed("batch", None), ev.Requeued(1))
    record = one._book.records[1]
    assert (record.again_tok, record.lost_tok) == (0, 0)
    assert one._book.allowances["batch"].left_tok == BURST_TOK
    assert (record.output_tok, record.kept_tok, record.computed_tok) == (0, 0, 0)


def test_a_settle_ends_a_stop(core: Any, arrive: Any) -> None:
    one, _ = stopped(core, arrive, resume=Resume.EXACT)
    assert one._book.pools["a"].stopping == 1
    tell(one, ev.Settled(1, 8, True))
    assert one._book.pools["a"].stopping == 0
    assert one._book.allowances["batch"].left_tok == BURST_TOK, "nothing was lost"
    assert tell(one, ev.SeatFreed(1)) == [Grant(2)]


def test_tokens_alone_do_not_have_anybody_looked_at(core: Any, arrive: Any) -> None:
    """Whom to stop is looked at when something else happens, or by its time: 1 could be stopped
    from its first token on, and is at the next event."""
    one = core(preempting=True)
    arrive(one, 1, "batch", resume=Resume.EXACT)
    one._book.records[1].prepaid_tok = 5
    assert arrive(one, 2)[1:] == []
    one._book.records[1].prepaid_tok = 0
    assert tell(one, ev.Prefilled(1, 3), ev.Produced(1, 1)) == []
    assert tell(one, ev.Tick()) == [Preempt(1)]


def test_the_next_look_is_kept_and_given_up(core: Any, arrive: Any) -> None:
    one = core(preempting=True, look_ahead=1)
    for rid in (1, 2):
        arrive(one, rid, "batch", resume=Resume.EXACT)
    tell(one, ev.Settled(1, 1, False))
    arrive(one, 3)
    assert one.next_wake_ns() == S // 4
    tell(one, ev.Withdrawn(3))
    assert one.next_wake_ns() == 900 * S


def test_what_ends_teaches_how_long_answers_are_and_a_lease_does_not(
    core: Any, arrive: Any, request_spec: Any
) -> None:
    one = core()
    for lease in (True, False):
        for rid in range(40):
            arrive(one, rid, lease=lease)
            tell(one, ev.Settled(rid, 5, True), ev.SeatFreed(rid))
        known = one._book.pools["a"].curve(request_spec(1)) is not None
        assert known is not lease


def test_who_expires_where_it_waits_says_how_the_prediction_came_out(
    core: Any, arrive: Any
) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2, deadline_ns=3 * S)
    foresight = one._book.queues["chat"].foresight
    one._book.records[2].predicted_ns = S
    tell(one, ev.Tick(), now_ns=3 * S)
    assert list(foresight._recent) == [3.0]


def test_what_is_said_of_the_wait_is_remembered(core: Any, arrive: Any) -> None:
    one = core()
    for rid in range(4):
        arrive(one, rid)
    tell(one, ev.Settled(0, 1, True), ev.SeatFreed(0), now_ns=2 * S)
    (queue,) = arrive(one, 9, now_ns=2 * S, arrived_ns=2 * S)
    assert queue.predicted_ns == one._book.records[9].predicted_ns == 6 * S


# --- the floor ------------------------------------------------------------------------------------


def test_a_floor_is_earned_paid_and_given_back(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    arrive(one, 1, max_tok=900)
    arrive(one, 2, "batch")
    arrive(one, 3)
    arrive(one, 4, "batch")
    tell(one, ev.Produced(1, 20), ev.Settled(1, 20, True))  # 30 tokens, of which it earned 15
    assert tell(one, ev.SeatFreed(1)) == [Grant(2)]
    tell(one, ev.Settled(2, 0, False))  # nothing used: the quantum comes back, and is enough
    assert tell(one, ev.SeatFreed(2)) == [Grant(4)]
    tell(one, ev.Produced(4, 10), ev.Settled(4, 10, True))
    assert tell(one, ev.SeatFreed(4)) == [Grant(3)]


def test_what_a_class_with_a_floor_is_given_anyway_is_counted(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    arrive(one, 1, "batch", max_tok=900)
    arrive(one, 2, "batch")
    tell(one, ev.Produced(1, 20))  # earned 15 while 2 waited, and was given 30
    arrive(one, 3)
    tell(one, ev.Settled(1, 20, True))
    assert tell(one, ev.SeatFreed(1)) == [Grant(3)]


def credit_tok(core: Controller) -> float:
    return core._book.floors["batch"].credit_tok


def begin_by_floor(core: Controller, arrive: Any, **fields: Any) -> None:
    """2 runs by the floor of batch; 3 of chat and 4 of batch wait; nothing is owed."""
    arrive(core, 1, max_tok=900)
    arrive(core, 2, "batch", **fields)
    arrive(core, 3)
    arrive(core, 4, "batch")
    tell(core, ev.Produced(1, 20), ev.Settled(1, 20, True))
    assert credit_tok(core) == 15
    assert tell(core, ev.SeatFreed(1)) == [Grant(2)]


def test_a_quantum_is_taken_with_the_grant(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    begin_by_floor(one, arrive)
    assert credit_tok(one) == 0


def test_no_more_is_taken_than_the_request_needs(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=100)
    begin_by_floor(one, arrive, prompt_tok=5, max_tok=5)
    assert credit_tok(one) == 5


def test_what_goes_beyond_the_quantum_is_paid_for(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    begin_by_floor(one, arrive)
    tell(one, ev.Produced(2, 2))  # 12 of the 15, and batch earns 6 of them for 4
    assert credit_tok(one) == 6
    tell(one, ev.Produced(2, 8))  # 6 more: 3 are earned, 3 prepaid, 3 not
    assert credit_tok(one) == 6
    tell(one, ev.Settled(2, 8, True))
    assert credit_tok(one) == 6


def test_who_runs_by_rank_makes_no_debt_when_somebody_better_comes(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    arrive(one, 1, "batch", max_tok=900)
    arrive(one, 2, "batch")
    arrive(one, 3)
    tell(one, ev.Produced(1, 20))
    assert credit_tok(one) == 0


def test_who_was_put_back_runs_by_rank_the_next_time(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    begin_by_floor(one, arrive)
    tell(one, ev.ClassClosed("batch", None))
    assert tell(one, ev.Requeued(2)) == [Grant(3)]
    tell(one, ev.ClassOpened("batch"), ev.Settled(3, 0, True))
    assert tell(one, ev.SeatFreed(3)) == [Grant(2)]
    arrive(one, 5)
    tell(one, ev.Produced(2, 40))  # earned for 4, and used up by 2
    assert credit_tok(one) == 0


def test_every_token_is_earned_from_once(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5)
    arrive(one, 1, max_tok=900)
    arrive(one, 2, "batch")
    earned = []
    for event in (
        ev.Prefilled(1, 4),
        ev.Prefilled(1, 4),
        ev.Prefilled(1, 8),
        ev.Produced(1, 4),
        ev.Produced(1, 4),
        ev.Produced(1, 10),
    ):
        tell(one, event)
        earned.append(credit_tok(one))
    assert earned == [2, 2, 4, 7, 7, 10]


def test_tokens_of_another_pool_are_not_earned_from(core: Any, arrive: Any, pool_spec: Any) -> None:
    one = core(pool_spec("a"), pool_spec("b", max_seqs=1), floor_share=0.5)
    arrive(one, 1, pool="b")
    arrive(one, 2, "batch", pool="b")
    arrive(one, 3)
    tell(one, ev.Produced(3, 10))
    assert credit_tok(one) == 0
    tell(one, ev.Produced(1, 10))
    assert credit_tok(one) == 10


def test_credit_is_gone_with_the_last_who_waited(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5)
    arrive(one, 1, max_tok=900)
    arrive(one, 2, "batch")
    tell(one, ev.Produced(1, 10))
    assert credit_tok(one) == 10
    tell(one, ev.Withdrawn(2))
    assert credit_tok(one) == 0


def test_an_unused_quantum_is_gone_when_nobody_waits(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    begin_by_floor(one, arrive)
    tell(one, ev.Withdrawn(4), ev.Settled(2, 0, False))
    assert credit_tok(one) == 0


# --- classes, limits, pools -----------------------------------------------------------------------


def test_a_closed_class_starts_nothing_until_it_is_opened(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2)
    tell(one, ev.ClassClosed("chat", None), ev.Settled(1, 1, True))
    assert tell(one, ev.SeatFreed(1)) == []
    assert one.next_wake_ns() is None
    assert tell(one, ev.ClassOpened("chat")) == [Grant(2)]


def test_a_closed_class_opens_by_itself(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5)
    arrive(one, 1)
    arrive(one, 2, "batch")
    tell(one, ev.ClassClosed("batch", 5 * S), ev.Settled(1, 1, True), ev.SeatFreed(1))
    assert one.next_wake_ns() == 5 * S
    assert tell(one, ev.Tick(), now_ns=5 * S - 1) == []
    assert tell(one, ev.Tick(), now_ns=5 * S) == [Grant(2)]


def test_closing_takes_the_credit_of_a_floor(core: Any, arrive: Any) -> None:
    one = core(floor_share=0.5, floor_quantum_tok=15)
    arrive(one, 1, max_tok=900)
    arrive(one, 2, "batch")
    arrive(one, 3)
    tell(one, ev.Produced(1, 20), ev.ClassClosed("batch", None), ev.ClassOpened("batch"))
    tell(one, ev.Settled(1, 20, True))
    assert tell(one, ev.SeatFreed(1)) == [Grant(3)]


def test_new_limits_hold_at_once(core: Any, arrive: Any, limits: Any, class_spec: Any) -> None:
    one = core(max_in_flight=1, look_ahead=1)
    arrive(one, 1)
    arrive(one, 2)
    classes = (class_spec(name="chat", rank=0), class_spec(name="batch", rank=1))
    assert tell(one, ev.LimitsChanged(limits(look_ahead=1), classes)) == [Grant(2)]
    with pytest.raises(AssertionError):
        tell(one, ev.LimitsChanged(limits(max_in_flight=7), classes[:1]))


def test_a_pool_may_come_and_go(core: Any, arrive: Any, pool_spec: Any) -> None:
    one = core()
    assert tell(one, ev.PoolChanged(pool_spec("b", PoolState.COLD))) == []
    assert arrive(one, 1, pool="b") == [LoadPool("b"), Queue(1)]
    assert tell(one, ev.PoolChanged(pool_spec("b", PoolState.LOADING))) == []
    assert tell(one, ev.PoolChanged(pool_spec("b"))) == [Grant(1)]


def test_a_load_waits_for_the_seats_of_other_pools(core: Any, arrive: Any, pool_spec: Any) -> None:
    one = core(pool_spec("a"), pool_spec("b", PoolState.COLD))
    arrive(one, 1)
    assert arrive(one, 2, pool="b") == [Queue(2)]
    tell(one, ev.Settled(1, 1, True))
    assert tell(one, ev.SeatFreed(1)) == [LoadPool("b")]
    assert tell(one, ev.Tick()) == []


def test_a_default_ttft_runs_again_once_the_pool_is_ready(
    core: Any, arrive: Any, pool_spec: Any
) -> None:
    one = core(pool_spec("a", PoolState.LOADING, max_seqs=1), pool_spec("b"))
    for rid in (1, 2):
        arrive(one, rid, ttft_deadline_ns=3 * S)
    for rid in (3, 4, 5):
        arrive(one, rid, pool="b")
    tell(one, ev.PoolChanged(pool_spec("a", PoolState.LOADING, max_seqs=1)), now_ns=9 * S)
    assert tell(one, ev.PoolChanged(pool_spec("a", max_seqs=1)), now_ns=10 * S) == [Grant(1)]
    assert one.next_wake_ns() == 13 * S
    (refuse,) = tell(one, ev.Tick(), now_ns=13 * S)
    assert (refuse.rid, refuse.refusal.reason) == (2, Refused.TTFT_DEADLINE_EXCEEDED)


def test_a_pool_waits_for_its_turn_and_a_timer_wakes_it(
    core: Any, arrive: Any, pool_spec: Any
) -> None:
    one = core(pool_spec("a", max_seqs=1), pool_spec("b", PoolState.COLD))
    arrive(one, 1)
    arrive(one, 2)
    arrive(one, 3, pool="b")
    assert one.next_wake_ns() == 30 * S
    assert tell(one, ev.Tick(), now_ns=30 * S) == []
    tell(one, ev.Settled(1, 1, True), now_ns=30 * S)
    assert tell(one, ev.SeatFreed(1), now_ns=30 * S) == [LoadPool("b")]


def test_a_switch_that_nobody_waits_for_any_more_is_over(
    core: Any, arrive: Any, pool_spec: Any
) -> None:
    one = core(pool_spec("a"), pool_spec("b", PoolState.COLD))
    arrive(one, 1)
    arrive(one, 2, pool="b")
    assert one.view(0).classes[0].expected_wait_ns is None
    tell(one, ev.Withdrawn(2))
    assert one.view(0).classes[0].expected_wait_ns == 0


def test_nobody_is_woken_for_a_turn_that_nobody_waits_for(
    core: Any, arrive: Any, pool_spec: Any
) -> None:
    one = core(pool_spec("a", max_seqs=1), pool_spec("b", PoolState.COLD))
    for rid, pool in ((1, "a"), (2, "a"), (3, "b")):
        arrive(one, rid, pool=pool)
    tell(one, ev.Withdrawn(3), ev.Withdrawn(2))
    assert one.next_wake_ns() == 900 * S


# --- time and the end -----------------------------------------------------------------------------


def test_a_permit_has_a_safety_timeout(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1, now_ns=S)
    assert one.next_wake_ns() == 901 * S
    (abort,) = tell(one, ev.Tick(), now_ns=901 * S)
    assert (abort.rid, abort.refusal.reason) == (1, Refused.ENGINE_TIMEOUT)
    assert tell(one, ev.Tick(), now_ns=902 * S) == []
    assert one.next_wake_ns() is None


def test_a_shutdown_refuses_what_waits_and_what_comes(core: Any, arrive: Any) -> None:
    one = core()
    for rid, class_ in ((1, "chat"), (2, "batch"), (3, "chat")):
        arrive(one, rid, class_)
    refused = [*tell(one, ev.DrainStarted()), *arrive(one, 4)]
    assert [(no.rid, no.queued, no.refusal.reason) for no in refused] == [
        (2, True, Refused.SHUTTING_DOWN),
        (3, True, Refused.SHUTTING_DOWN),
        (4, False, Refused.SHUTTING_DOWN),
    ]
    assert refused[0].refusal.retry_after_ns < refused[1].refusal.retry_after_ns
    assert tell(one, ev.Requeued(1)) == [Grant(1)]


# --- questions ------------------------------------------------------------------------------------


def test_questions_are_answered(core: Any, arrive: Any) -> None:
    one = core()
    arrive(one, 1)
    arrive(one, 2)
    standing = one.standing(2, 0)
    assert standing is not None
    assert standing.position == 1
    assert one.standing(1, 0) is None
    verdict = one.ask(pool="a", class_="batch", principal="bob", prompt_tok=1, max_tok=1, now_ns=0)
    assert verdict.position == 2
    assert [view.name for view in one.view(0).classes] == ["chat", "batch"]


def test_what_is_wrong_is_seen(core: Any) -> None:
    one = core()
    one._book.queued += 1
    with pytest.raises(AssertionError):
        one.validate()
