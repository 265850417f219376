from types import MappingProxyType

import pytest

from onegate.engines.host.engine import LoadFailed
from onegate.engines.host.trtllm.surface import KNOWN, Surface, names_of, release_of, unproven


@pytest.mark.parametrize(
    ("version", "release"),
    [("1.2.1", (1, 2)), ("1.0.0rc4", (1, 0)), ("1.10.0", (1, 10)), ("2.0", (2, 0))],
)
def test_a_release(version, release):
    assert release_of(version) == release


@pytest.mark.parametrize("version", ["0.21.0", "", "main", "x1.2", "9" * 5000])
def test_a_version_that_is_too_old_or_none(version):
    with pytest.raises(LoadFailed):
        release_of(version)


def test_a_name_is_known_from_its_release_on():
    older, newer = Surface("1.0.0", {}), Surface("1.1.0", {})
    assert not older.takes("generate_async", "cache_salt")
    assert newer.takes("generate_async", "cache_salt")
    assert Surface("7.0.0", {}).takes("generate_async", "cache_salt")


def test_what_the_table_does_not_have_is_never_passed():
    surface = Surface("1.2.1", {"SchedulerConfig": None})
    assert not surface.takes("SchedulerConfig", "waiting_queue_policy")
    said = Surface("1.3.0", {"SchedulerConfig": frozenset({"waiting_queue_policy"})})
    assert not said.takes("SchedulerConfig", "waiting_queue_policy")


def test_a_signature_has_the_last_word():
    surface = Surface("1.2.1", {"LLM": frozenset({"model"})})
    assert surface.only("LLM", {"model": 1, "max_seq_len": 2}) == {"model": 1}


def test_priority_is_passed_exactly_where_the_signature_has_it():
    for said, takes in ((None, False), (frozenset(), False), (frozenset({"priority"}), True)):
        assert (
            Surface("1.3.0", {"generate_async": said}).takes("generate_async", "priority") is takes
        )
    assert "priority" not in KNOWN["generate_async"]


def test_names_are_read_off_a_call():
    class Settings:
        model_fields = MappingProxyType({"a": 1})

        def __init__(self, **given): ...

    assert names_of(Settings) == {"a"}
    assert names_of(lambda a, *, b=1: None) == {"a", "b"}
    assert names_of(lambda **given: None) is None
    assert names_of(type) is None


@pytest.mark.parametrize("version", ["1.0.0", "1.1.0", "1.3.0rc24", "2.0.1"])
def test_another_release_than_the_one_it_was_written_for_is_said(version):
    assert version in unproven(version)
    assert unproven("1.2.0") is unproven("1.2.9") is None
