"""What the library holds for the forms that it has seen."""

import pytest

from onegate.engines.host import forms
from onegate.engines.host.engine import Refusal
from onegate.engines.host.forms import Forms


def test_a_form_counts_once():
    held = Forms()
    for _ in range(10_000):
        held.take("root ::= a", resumed=False)
    assert not held.worn


def test_many_forms_wear_a_model_out():
    held, n = Forms(), 0
    while not held.worn:
        held.take(f"root ::= {n}", resumed=False)
        n += 1
    assert 300 < n < 600
    long = Forms()
    long.take("x" * 1_000_000, resumed=False)
    assert long.worn


def test_past_the_bound_only_what_has_begun_goes_on(monkeypatch):
    monkeypatch.setattr(forms, "FULL_BYTES", 1_000_000)
    held = Forms()
    for n in range(4):
        held.take(f"root ::= {n}", resumed=False)
    with pytest.raises(Refusal, match="loaded anew") as refused:
        held.take("root ::= 4", resumed=False)
    assert refused.value.code == "unavailable"
    held.take("root ::= 0", resumed=False)  # it is there already
    held.take("the rest of one", resumed=True)
