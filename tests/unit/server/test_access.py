"""Who may use which verb, and that no verb is without a rule."""

from dataclasses import replace
from typing import get_args

import pytest

from onegate.protocol import messages as m
from onegate.server import access
from onegate.server.access import RULES, Access, allowed, check_complete
from onegate.server.classify import Decision

VERBS = set(get_args(m.ClientMessage)) - {m.Hello}
NOBODY = Decision(
    class_="loop",
    ceiling="loop",
    delegate=False,
    admin=False,
    principal="uid:1",
    flow="f",
    why=(),
    allowed=("loop",),
)


def test_every_verb_has_a_rule() -> None:
    check_complete(VERBS)
    assert set(RULES) == VERBS


def test_a_verb_without_a_rule_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "RULES", {k: v for k, v in RULES.items() if k is not m.Pause})
    with pytest.raises(RuntimeError, match="without access rule: Pause"):
        check_complete(VERBS)


def test_a_verb_without_a_handler_does_not_start() -> None:
    with pytest.raises(RuntimeError, match="without handler: Generate"):
        check_complete(VERBS - {m.Generate})


def test_a_handler_for_nothing_does_not_start() -> None:
    with pytest.raises(RuntimeError, match="no verb: Hello"):
        check_complete(VERBS | {m.Hello})


ADMINISTRATORS = {m.Pause, m.Unpause, m.CancelAny, m.ReleaseEngine}
DELEGATES = {m.Lease, m.Load, m.Unload}


@pytest.mark.parametrize("verb", sorted(VERBS, key=lambda verb: verb.__name__))
def test_who_may(verb: type) -> None:
    everybody = verb not in ADMINISTRATORS | DELEGATES
    assert allowed(NOBODY, verb) is everybody
    assert allowed(replace(NOBODY, delegate=True), verb) is (everybody or verb in DELEGATES)
    assert allowed(replace(NOBODY, admin=True), verb) is (everybody or verb in ADMINISTRATORS)


def test_each_access_has_a_word_for_people() -> None:
    assert {rule.value for rule in Access} == {"everybody", "delegates", "administrators"}
