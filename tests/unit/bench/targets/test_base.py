"""What targets raise."""

from onegate.bench.targets.base import Ask, Refused


def test_a_refusal_carries_its_hint() -> None:
    refusal = Refused("class_full", retry_after_ms=5.0, ticket="t")
    assert (str(refusal), refusal.retry_after_ms, refusal.ticket) == ("class_full", 5.0, "t")
    assert Refused("class_full").retry_after_ms is None


def test_a_caller_shares_its_clients_connection_unless_it_says_otherwise() -> None:
    assert not Ask(text="a", output_tok=1, client=0).own_connection
