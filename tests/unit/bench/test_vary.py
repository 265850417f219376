"""The same configuration, but for one setting."""

import pytest

from onegate.bench.targets.base import TargetError
from onegate.bench.vary import read_vary, varied
from onegate.config import check

OWN = """
[engine]
kind = "scripted"
[[engine.scripted.pools]]
model = "a\\"b"
a_ms = 2.5
[[class]]
name = "interactive"
rank = 0
run_window = ["08:00-18:00"]
[[grant]]
uid = 1001
ceiling = "batch"
admin = false
"""


def test_a_setting_for_each_value() -> None:
    assert read_vary("interactive.preempt=lower_rank, never") == [
        "interactive.preempt=lower_rank",
        "interactive.preempt=never",
    ]


@pytest.mark.parametrize("text", ["", "preempt=a", "a.b", "a.b=", "a.b=1,", ".b=1", "a.b c=1"])
def test_what_varies_nothing_says_how(text: str) -> None:
    with pytest.raises(TargetError, match=r"varies nothing: it is CLASS\.KEY=VALUE"):
        read_vary(text)


def test_the_same_twice_is_noise() -> None:
    with pytest.raises(TargetError, match="A against itself is --aa"):
        read_vary("a.b=1,1")


def test_everything_else_stays_as_it_was() -> None:
    before = check(OWN)
    after = check(varied(OWN, "interactive.itl_target_ms=60"))
    assert (after.engine, after.grants, after.gate) == (before.engine, before.grants, before.gate)
    old, new = ({cls.name: cls for cls in config.classes} for config in (before, after))
    assert old["interactive"].itl_target_ms is None
    assert new["interactive"].itl_target_ms == 60
    assert new["interactive"].run_window == old["interactive"].run_window != ()
    assert (new["batch"], new["loop"]) == (old["batch"], old["loop"])


def test_values_are_numbers_words_and_truths() -> None:
    found = check(varied(OWN, "batch.preemptible=false"))
    assert next(cls for cls in found.classes if cls.name == "batch").preemptible is False
    found = check(varied(OWN, "interactive.preempt=never"))
    assert next(cls for cls in found.classes if cls.name == "interactive").preempt == "never"
    found = check(varied("", "interactive.behaviour_live=none"))
    assert next(cls for cls in found.classes if cls.name == "interactive").behaviour_live is None


def test_more_may_follow() -> None:
    text = varied(OWN, "interactive.itl_target_ms=60") + '[[grant]]\nuid = 7\nceiling = "batch"\n'
    assert len(check(text).grants) == 2


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("person.preempt=never", "there is no class person; there are interactive, loop, batch"),
        ("interactive.color=red", r"interactive\.color=red: .*color"),
        ("interactive.itl_target_ms=soon", "itl_target_ms"),
    ],
)
def test_what_cannot_be_is_told(setting: str, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        varied(OWN, setting)
    with pytest.raises(TargetError, match="kind"):
        varied("[engine]\nkind = 'steam'", "interactive.preempt=never")
