"""What is counted at the end of a request, and what is made of it."""

from typing import Any

import pytest

from onegate.protocol.errors import Phase, Reason
from onegate.protocol.status import Quantiles
from onegate.server.account import RECENT, Accounts, Histogram, quantiles
from onegate.server.live import LiveRequest, Mute
from onegate.server.outcome import Outcome

S = 1_000_000_000


def live(**fields: Any) -> LiveRequest:
    client = Mute(principal="uid:1", uid=1)
    made = LiveRequest(client=client, id=1, serial=1, rid="b-1", verb="generate", arrived_ns=0)
    made.class_ = "loop"
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def counts(histogram: Histogram) -> dict[str, float]:
    return dict(histogram.buckets())


def test_a_finished_request() -> None:
    accounts = Accounts()
    request = live(
        granted_ns=1 * S, first_text_ns=3 * S, phase=Phase.DECODE, prompt_tok=9, output_tok=4
    )
    accounts.request_ended(request, Outcome.FINISHED, None, 8 * S)
    account = accounts.of("loop")
    assert account.outcomes == {Outcome.FINISHED: 1}
    assert not account.reasons
    assert not account.rejected
    assert (account.admitted, account.prompt_tok, account.output_tok) == (1, 9, 4)
    assert (account.queue.sum_s, account.ttft.sum_s, account.e2e.sum_s) == (1, 3, 8)
    assert list(account.recent_ttft_ms) == [3000]


def test_a_request_that_never_ran() -> None:
    accounts = Accounts()
    accounts.request_ended(live(prompt_tok=9), Outcome.REJECTED, Reason.TOKENS_FULL, S)
    account = accounts.of("loop")
    assert account.outcomes == {Outcome.REJECTED: 1}
    assert account.rejected == {Reason.TOKENS_FULL: 1}
    assert account.reasons == {(Outcome.REJECTED, Reason.TOKENS_FULL): 1}
    assert (account.admitted, account.prompt_tok, account.queue.sum_s) == (0, 0, 0)
    assert account.ttft.sum_s == 0


def test_how_wrong_the_prediction_was() -> None:
    accounts = Accounts()
    for predicted_ns in (None, 1 * S, 4 * S):
        request = live(granted_ns=S, first_text_ns=3 * S, phase=Phase.DECODE)
        request.predicted_ns = predicted_ns
        accounts.request_ended(request, Outcome.FINISHED, None, 8 * S)
    found = counts(accounts.of("loop").ttft_error)
    # One a second too early, one two seconds too late, and one that was not predicted.
    assert (found["-2.5"], found["-1.0"], found["1.0"], found["2.5"], found["+Inf"]) == (
        *(0, 1, 1, 2, 2),
    )


def test_no_first_token_no_error() -> None:
    accounts = Accounts()
    request = live(granted_ns=S, predicted_ns=S)
    accounts.request_ended(request, Outcome.CANCELLED, Reason.CANCELLED, 8 * S)
    assert counts(accounts.of("loop").ttft_error)["+Inf"] == 0


def test_what_was_stopped_to_make_room() -> None:
    accounts = Accounts()
    for outcome in (Outcome.FINISHED, Outcome.FAILED):
        request = live(granted_ns=S, prompt_tok=9)
        request.work.recomputed_tok, request.work.discarded_tok = 5, 7
        accounts.request_ended(request, outcome, None, 8 * S)
    account = accounts.of("loop")
    assert (account.recomputed_tok, account.discarded_tok) == (10, 14)


def test_what_the_engine_had_of_the_prompts() -> None:
    accounts = Accounts()
    for cached_tok in (None, 0, 4):
        request = live(granted_ns=S, prompt_tok=9)
        request.work.cached_tok = cached_tok
        accounts.request_ended(request, Outcome.FINISHED, None, 8 * S)
    account = accounts.of("loop")
    assert (account.prompt_tok, account.told_tok, account.cached_tok) == (27, 18, 4)


def test_a_failure_is_no_rejection() -> None:
    accounts = Accounts()
    accounts.request_ended(live(granted_ns=S), Outcome.FAILED, Reason.ENGINE_FAILED, S)
    account = accounts.of("loop")
    assert not account.rejected
    assert account.reasons == {(Outcome.FAILED, Reason.ENGINE_FAILED): 1}


def test_a_request_whose_text_was_withdrawn_has_no_ttft() -> None:
    accounts = Accounts()
    request = live(granted_ns=S, first_text_ns=2 * S, phase=Phase.QUEUED)
    accounts.request_ended(request, Outcome.CANCELLED, Reason.CANCELLED, 3 * S)
    assert accounts.of("loop").ttft.sum_s == 0


def test_whoever_never_came_to_live_is_counted_too() -> None:
    accounts = Accounts()
    accounts.refused_on_arrival("loop", Reason.PEER_QUOTA)
    account = accounts.of("loop")
    assert account.outcomes == {Outcome.REJECTED: 1}
    assert account.rejected == {Reason.PEER_QUOTA: 1}
    assert account.reasons == {(Outcome.REJECTED, Reason.PEER_QUOTA): 1}


def test_quantiles_are_over_the_recent() -> None:
    accounts = Accounts()
    for i in range(RECENT + 5):
        request = live(granted_ns=0, first_text_ns=i * 1_000_000, phase=Phase.DECODE)
        accounts.request_ended(request, Outcome.FINISHED, None, S)
    recent = accounts.of("loop").recent_ttft_ms
    assert len(recent) == RECENT
    assert min(recent) == 5


def test_buckets_add_up() -> None:
    histogram = Histogram()
    for seconds in (0.0, 0.01, 0.011, 600.0, 601.0):
        histogram.add(seconds)
    found = counts(histogram)
    assert (found["0.01"], found["0.025"], found["120.0"]) == (2, 3, 3)
    assert (found["600.0"], found["+Inf"]) == (4, 5)
    assert histogram.sum_s == pytest.approx(1201.021)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], None),
        ([7], Quantiles(p50=7, p95=7)),
        (range(100, -1, -1), Quantiles(p50=50, p95=95)),
    ],
)
def test_quantiles(values: Any, expected: Quantiles | None) -> None:
    assert quantiles(values) == expected
