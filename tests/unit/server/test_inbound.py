"""Bytes in memory are bounded for each principal and in all."""

import pytest

from onegate.protocol.errors import Reason
from onegate.server.inbound import InboundBytes
from onegate.server.outcome import Outcome


@pytest.fixture
def inbound() -> InboundBytes:
    return InboundBytes(100, 60)


def test_what_was_charged_is_given_back(inbound: InboundBytes) -> None:
    assert inbound.charge("a", 40) is None
    assert inbound.charge("b", 60) is None
    assert inbound.total_bytes == 100
    inbound.refund("a", 40)
    inbound.refund("b", 60)
    assert inbound.total_bytes == 0


def test_one_principal_is_bounded(inbound: InboundBytes) -> None:
    inbound.charge("a", 50)
    full = inbound.charge("a", 11)
    assert full is not None
    assert (full.outcome, full.reason) == (Outcome.REJECTED, Reason.BYTES_FULL)
    assert (full.limit, full.used) == (60, 50)
    assert full.message.startswith("you have")
    assert inbound.total_bytes == 50
    assert inbound.charge("a", 10) is None


def test_all_together_are_bounded(inbound: InboundBytes) -> None:
    inbound.charge("a", 60)
    full = inbound.charge("b", 41)
    assert full is not None
    assert (full.reason, full.limit, full.used) == (Reason.BYTES_FULL, 100, 60)
    assert full.message.startswith("all clients")


def test_what_no_waiting_helps_is_too_large(inbound: InboundBytes) -> None:
    full = inbound.charge("a", 61)
    assert full is not None
    assert (full.reason, full.limit, full.used) == (Reason.TOO_LARGE, 60, 61)
    assert full.can_retry is False


def test_new_bounds_leave_what_is_held(inbound: InboundBytes) -> None:
    inbound.charge("a", 50)
    inbound.change_limits(40, 20)
    assert inbound.total_bytes == 50
    assert inbound.charge("b", 1) is not None
    inbound.refund("a", 50)
    assert inbound.charge("b", 20) is None
