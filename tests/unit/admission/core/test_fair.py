"""Principals and flows of a class take turns by what they were served."""

from typing import Any

from onegate.admission import events as ev
from onegate.admission.effects import Grant

S = 10**9


def order(c: Any, running: int, tok: int = 0) -> list[int]:
    """End one after the other; who starts."""
    started = []
    while True:
        effects = c.end(running, output_tok=tok)
        if not effects:
            return started
        (grant,) = effects
        assert isinstance(grant, Grant)
        started.append(grant.rid)
        running = grant.rid


def served(c: Any, principal: str) -> int:
    """The counter of a principal of batch."""
    (account,) = (
        a for a in c.controller._book.queues["batch"].accounts._root if a.name == principal
    )
    return account.served_tok


def test_ten_times_the_requests_are_not_ten_times_the_tokens(core: Any) -> None:
    c = core()
    rid = 1
    c.arrive(0, principal="a", prompt_tok=3_000, max_tok=100)
    waiting = {"a": 0, "b": 0}
    tok = {"a": 0, "b": 0}
    of: dict[int, str] = {0: "a"}
    running = 0
    for _ in range(400):
        for principal, most in (("a", 10), ("b", 1)):
            while waiting[principal] < most:
                c.arrive(rid, principal=principal, prompt_tok=300, max_tok=100)
                of[rid] = principal
                waiting[principal] += 1
                rid += 1
        tok[of[running]] += 400
        (grant,) = c.end(running, output_tok=100)
        running = grant.rid
        waiting[of[running]] -= 1
    assert 0.9 <= tok["a"] / tok["b"] <= 1.1


def test_a_long_answer_counts_as_it_comes(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2))
    c.arrive(1, principal="a", max_tok=60_000)
    c.arrive(2, principal="b")
    c.arrive(3, principal="a")
    c.arrive(4, principal="b")
    c.tell(ev.Produced(1, 50_000))
    assert c.end(2) == [Grant(4)]
    assert served(c, "a") == 50_010


def test_the_prompt_is_charged_at_the_start_and_once(core: Any) -> None:
    c = core()
    c.arrive(1, prompt_tok=700)
    assert served(c, "p") == 700
    c.tell(ev.Requeued(1))
    assert served(c, "p") == 700
    c.tell(ev.Produced(1, 30))
    assert served(c, "p") == 730
    c.tell(ev.Settled(1, 40, finished=True))
    assert served(c, "p") == 740, "what only the settle tells of is charged too"


def test_what_waits_is_charged_nothing(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2, principal="q", prompt_tok=500)
    assert served(c, "q") == 0


def test_each_class_has_counters_of_its_own(core: Any, make: Any) -> None:
    c = core(make.pool(seats=2))
    c.arrive(1, "loop", principal="a", max_tok=60_000)
    c.arrive(2, principal="b")
    c.arrive(3, principal="a")
    c.arrive(4, principal="b")
    c.tell(ev.Produced(1, 50_000))
    assert c.end(2) == [Grant(3)]


def test_within_a_flow_the_earliest_deadline_goes_first(core: Any) -> None:
    c = core()
    c.arrive(1)
    c.arrive(2)
    c.arrive(3, deadline_ns=900 * S)
    c.arrive(4, ttft_deadline_ns=500 * S, deadline_ns=950 * S)
    assert order(c, 1) == [4, 3, 2]


def test_what_was_in_the_engine_goes_first(core: Any) -> None:
    c = core()
    c.arrive(1, principal="a")
    c.arrive(2, principal="b", deadline_ns=5 * S)
    assert c.tell(ev.Requeued(1)) == [Grant(1)]


def test_whoever_has_gone_is_forgotten_or_few(core: Any) -> None:
    c = core()
    for rid in range(300):
        c.arrive(rid, principal=f"p{rid}", flow=f"f{rid}", prompt_tok=rid)
        c.end(rid)
    accounts = c.controller._book.queues["batch"].accounts
    assert accounts.live == 0
    assert len(accounts) <= 65
