"""The driver in virtual time, against a target whose every figure is known in closed form."""

from typing import Any

import pytest

from onegate.bench.drive import Driver
from onegate.bench.figures import ClassFigures, figures
from onegate.bench.record import END_OF_RUN, Outcome, Record
from onegate.bench.scenario import Arrivals, Leave, Lengths, Limits, Retry
from onegate.bench.schedule import schedule
from onegate.bench.targets.base import Ask, Broke, Expired, Refused, Usage

S = 1_000_000_000
CONTEXT_TOK = 4096


def drive(virtual: Any, scenario: Any, target: Any, rate_per_s: float = 2.0) -> list[Record]:
    virtual.clock_of("onegate.bench.drive")
    rates = {cls.name: rate_per_s for cls in scenario.classes}
    arrivals = schedule(scenario, repeat=0, load=1.0, rates=rates, context_tok=CONTEXT_TOK)

    def crashed(name: str, error: BaseException) -> None:
        raise error

    async def go() -> list[Record]:
        driver = Driver(target, scenario.classes, on_crash=crashed)
        records = await driver.run(
            arrivals,
            ["one two"] * len(arrivals),
            start_ns=round(scenario.warmup_s * S),
            window_ns=round(scenario.duration_s * S),
            end_ns=round((scenario.duration_s + scenario.drain_s) * S),
        )
        assert driver.done == len(records)
        return records

    found: list[Record] = virtual.run(go())
    return found


def summary(scenario: Any, records: list[Record]) -> ClassFigures:
    (cls,) = scenario.classes
    return figures(cls.name, records, cls.limits, scenario.duration_s)


def within(value: float | None, expected: float) -> bool:
    return value == pytest.approx(expected, rel=0.03)


def test_answers_that_do_not_meet_agree_with_the_cost_model(
    virtual: Any, made: Any, model_target: Any
) -> None:
    # 150 ms to the first token and 110 ms for each of the 4 others, one request every 700 ms.
    scenario = made.scenario(made.cls(output=Lengths(tok=5)), duration_s=70.0, warmup_s=7.0)
    records = drive(virtual, scenario, model_target(), rate_per_s=1 / 0.7)
    found = summary(scenario, records)
    assert found.outcomes["finished"] == found.scheduled == 100
    for share in ("p50", "p95", "p99"):
        assert within(getattr(found.ttft_ms, share), 150)
        assert within(getattr(found.itl_ms, share), 110)
        assert within(getattr(found.tpot_ms, share), 110)
        assert within(getattr(found.e2e_ms, share), 590)
    assert within(found.goodput_per_s, 1 / 0.7)
    assert within(found.tok_per_s, 5 / 0.7)


def test_a_queue_that_grows_agrees_with_the_closed_form(
    virtual: Any, made: Any, model_target: Any
) -> None:
    # One seat of 590 ms, one arrival every 295 ms: number k waits k * 295 ms, and the limit of
    # 1000 ms holds for k = 0, 1, 2. A generator that waited for answers would see no queue.
    cls = made.cls(output=Lengths(tok=5), limits=Limits(ttft_ms=1000))
    scenario = made.scenario(cls, duration_s=0.295 * 40, drain_s=1000.0)
    records = drive(virtual, scenario, model_target(seats=1), rate_per_s=1 / 0.295)
    waits = [r.queue_ms for r in records]
    assert len(waits) == 40
    for k, wait_ms in enumerate(waits):
        assert wait_ms == pytest.approx(k * 295, rel=0.03, abs=0.01)
    found = summary(scenario, records)
    assert within(found.goodput_per_s, 3 / scenario.duration_s)
    assert within(found.ttft_ms.max, 150 + 39 * 295)


def test_a_stall_of_two_seconds_shows_in_p99(virtual: Any, made: Any, model_target: Any) -> None:
    scenario = made.scenario(made.cls(output=Lengths(tok=1)), duration_s=60.0)
    target = model_target(first_ms=10.0, stall_s=(30.0, 32.0))
    found = summary(scenario, drive(virtual, scenario, target, rate_per_s=20.0))
    # 40 of 1,200 were due within it; a generator that waits would have noticed one.
    assert found.ttft_ms.p50 == pytest.approx(10)
    assert found.ttft_ms.p99 is not None
    assert found.ttft_ms.p99 > 1000
    assert within(found.ttft_ms.max, 2000)


def test_what_is_not_over_at_the_end_is_left(virtual: Any, made: Any, model_target: Any) -> None:
    scenario = made.scenario(made.cls(output=Lengths(tok=1000)), duration_s=2.0, drain_s=1.0)
    target = model_target()
    records = drive(virtual, scenario, target)
    assert {(r.outcome, r.reason) for r in records} == {(Outcome.LEFT, END_OF_RUN)}
    assert target.given_up == len(records)
    assert all(r.ended_ns == 3 * S for r in records)


def test_a_class_that_is_cut_ends_with_the_window(
    virtual: Any, made: Any, model_target: Any
) -> None:
    long = made.cls("batch", output=Lengths(tok=1000), cut=True)
    chat = made.cls(output=Lengths(tok=12))
    scenario = made.scenario(chat, long, duration_s=2.0, drain_s=100.0)
    records = drive(virtual, scenario, model_target())
    assert {r.outcome for r in records if r.cls == 0} == {Outcome.FINISHED}
    cut = [r for r in records if r.cls == 1]
    assert {(r.outcome, r.reason, r.ended_ns) for r in cut} == {(Outcome.LEFT, END_OF_RUN, 2 * S)}


@pytest.mark.parametrize(
    ("phase", "tokens", "end_ms"),
    [("arrival", 0, 5), ("queued", 0, 50), ("prefill", 0, 0), ("decode", 3, 150 + 2 * 110)],
)
def test_callers_leave_in_their_phase(
    virtual: Any, made: Any, model_target: Any, phase: Any, tokens: int, end_ms: int
) -> None:
    cls = made.cls(output=Lengths(tok=50), leave=Leave(phases=[phase], after_ms=50, after_tok=3))
    scenario = made.scenario(cls, duration_s=0.5)
    seats = 0 if phase in ("arrival", "queued") else 1
    (record,) = drive(virtual, scenario, model_target(seats=seats))
    assert (record.outcome, record.reason) == (Outcome.LEFT, phase)
    assert sum(record.pieces_tok) == tokens
    assert record.ended_ns == pytest.approx(end_ms * 1e6, abs=1e3)


@pytest.mark.parametrize(
    ("phase", "after_ms", "reason"),
    [
        ("arrival", 50, "prefill"),
        ("queued", 50, "prefill"),
        ("queued", 200, "decode"),
        ("queued", 5000, ""),
    ],
)
def test_who_leaves_by_the_clock_leaves_in_the_phase_that_it_is_in(
    virtual: Any, made: Any, model_target: Any, phase: Any, after_ms: int, reason: str
) -> None:
    cls = made.cls(output=Lengths(tok=5), leave=Leave(phases=[phase], after_ms=after_ms))
    (record,) = drive(virtual, made.scenario(cls, duration_s=0.5), model_target())
    outcome = Outcome.LEFT if reason else Outcome.FINISHED
    assert (record.outcome, record.reason) == (outcome, reason)


def test_a_target_is_followed_only_where_somebody_leaves_before_text(
    virtual: Any, made: Any, model_target: Any
) -> None:
    target = model_target()
    leave = Leave(phases=["prefill", "decode", "queued", "arrival"])
    drive(virtual, made.scenario(made.cls(leave=leave), duration_s=2.0), target)
    assert [ask.follow for ask in target.asked] == [True, False, True, True]


def test_a_wait_that_is_told_at_the_end_is_placed_where_it_was(
    virtual: Any, made: Any, model_target: Any
) -> None:
    target = model_target(tells=False)
    (record,) = drive(virtual, made.scenario(made.cls(), duration_s=0.5), target)
    assert (record.started_ns, record.queue_ms) == (7_000_000, 7.0)


@pytest.mark.parametrize(("by", "own"), [("close", True), ("cancel", False)])
def test_a_caller_that_closes_has_a_connection_to_close(
    virtual: Any, made: Any, model_target: Any, by: Any, own: bool
) -> None:
    target = model_target()
    drive(virtual, made.scenario(made.cls(leave=Leave(by=by)), duration_s=0.5), target)
    assert target.asked[0].own_connection is own


def test_a_refused_caller_returns_with_its_ticket(
    virtual: Any, made: Any, model_target: Any
) -> None:
    def once(ask: Ask, attempt: int) -> None:
        if attempt == 1:
            raise Refused("class_full", retry_after_ms=400.0, ticket="t")

    target = model_target(before=once)
    scenario = made.scenario(made.cls(retry=Retry(kind="honour")), duration_s=0.5)
    (record,) = drive(virtual, scenario, target)
    assert record.outcome is Outcome.FINISHED
    assert [ask.ticket for ask in target.asked] == [None, "t"]
    assert record.attempts == 2
    assert record.hint_error_ms == pytest.approx(0, abs=0.01)
    assert record.ttft_ms == pytest.approx(550)
    assert (record.sent_ns, record.last_sent_ns) == (0, pytest.approx(400e6))


def test_who_came_back_and_was_let_in_is_no_longer_refused(
    virtual: Any, made: Any, model_target: Any
) -> None:
    def once(ask: Ask, attempt: int) -> None:
        if attempt == 1:
            raise Refused("class_full", retry_after_ms=400.0)

    cls = made.cls(output=Lengths(tok=1000), retry=Retry(kind="honour"))
    scenario = made.scenario(cls, duration_s=0.5, drain_s=1.0)
    (record,) = drive(virtual, scenario, model_target(before=once))
    assert (record.outcome, record.reason) == (Outcome.LEFT, END_OF_RUN)
    assert record.taken
    assert record.hint_error_ms == pytest.approx(0, abs=0.01)


def test_who_waits_to_come_back_at_the_end_is_refused(
    virtual: Any, made: Any, model_target: Any
) -> None:
    def never(ask: Ask, attempt: int) -> None:
        raise Refused("class_full", retry_after_ms=400.0)

    cls = made.cls(retry=Retry(kind="honour"))
    scenario = made.scenario(cls, duration_s=0.5, drain_s=0.1)
    (record,) = drive(virtual, scenario, model_target(before=never))
    assert (record.outcome, record.reason) == (Outcome.REFUSED, "class_full")


@pytest.mark.parametrize(
    "usage",
    [
        Usage(-1, 4),
        Usage(10**9, 4),
        Usage(2, -4),
        Usage(2, 0),
        Usage(2, 65),
        Usage(2, 4, -1.0),
        Usage(2, 4, 1e9),
        Usage(2, 4, float("nan")),
    ],
)
def test_a_target_that_cannot_have_counted_so_has_failed(
    virtual: Any, made: Any, model_target: Any, usage: Usage
) -> None:
    scenario = made.scenario(made.cls(), duration_s=0.5)
    (record,) = drive(virtual, scenario, model_target(says=usage))
    assert (record.outcome, record.reason) == (Outcome.FAILED, "malformed")
    assert record.output_tok is None
    assert summary(scenario, [record]).goodput_tok_per_s == 0


@pytest.mark.parametrize("usage", [Usage(), Usage(0, 1), Usage(2, 64, 0.0)])
def test_a_target_may_count_in_its_own_way(
    virtual: Any, made: Any, model_target: Any, usage: Usage
) -> None:
    scenario = made.scenario(made.cls(), duration_s=0.5)
    (record,) = drive(virtual, scenario, model_target(says=usage))
    assert record.outcome is Outcome.FINISHED


def test_a_connection_that_timed_out_is_not_a_caller_that_left(
    virtual: Any, made: Any, model_target: Any
) -> None:
    def gone(ask: Ask, attempt: int) -> None:
        raise TimeoutError

    scenario = made.scenario(made.cls(leave=Leave(phases=["queued"])), duration_s=0.5)
    (record,) = drive(virtual, scenario, model_target(before=gone))
    assert (record.outcome, record.reason) == (Outcome.FAILED, "timed_out")


def test_how_attempts_end(virtual: Any, made: Any, model_target: Any) -> None:
    ends: list[Exception] = [Refused("paused"), Expired("deadline_exceeded"), Broke("gone")]

    def end(ask: Ask, attempt: int) -> None:
        raise ends[attempt - 1]

    scenario = made.scenario(made.cls(), duration_s=1.5)
    records = drive(virtual, scenario, model_target(before=end))
    assert [(r.outcome, r.reason) for r in records] == [
        (Outcome.REFUSED, "paused"),
        (Outcome.EXPIRED, "deadline_exceeded"),
        (Outcome.FAILED, "gone"),
    ]


def test_clients_of_all_classes_are_numbered_in_one_row(
    virtual: Any, made: Any, model_target: Any
) -> None:
    target = model_target()
    classes = [made.cls("a", clients=2, asks="batch"), made.cls("b", clients=2)]
    drive(virtual, made.scenario(*classes, duration_s=1.0), target)
    assert {(ask.client, ask.class_) for ask in target.asked} == {
        (0, "batch"),
        (1, "batch"),
        (2, None),
        (3, None),
    }


def test_arrivals_of_the_warm_up_are_sent_first(virtual: Any, made: Any, model_target: Any) -> None:
    cls = made.cls(arrivals=Arrivals(kind="deterministic", rate_per_s=2.0))
    records = drive(virtual, made.scenario(cls, warmup_s=1.0, duration_s=1.0), model_target())
    assert [r.scheduled_ns for r in records] == [-S, -S // 2, 0, S // 2]
    assert [r.lateness_ms for r in records] == pytest.approx([0] * 4, abs=0.01)


@pytest.mark.parametrize(("prompt_tok", "shortened"), [(CONTEXT_TOK, True), (16, False)])
def test_what_was_cut_to_the_context_is_known_of_its_record(
    virtual: Any, made: Any, model_target: Any, prompt_tok: int, shortened: bool
) -> None:
    scenario = made.scenario(made.cls(prompt=Lengths(tok=prompt_tok)), duration_s=0.5)
    (record,) = drive(virtual, scenario, model_target())
    assert record.shortened is shortened
