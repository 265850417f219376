"""The event log's keys."""

import pytest

from onegate.config import ConfigError, LogConfig, check, needs_restart


def test_nothing_is_recorded_unless_somebody_says_so() -> None:
    assert check("").log == LogConfig()
    assert check("").log.events_path is None


@pytest.mark.parametrize("line", ['events_path = "events"', "events_max_bytes = 1000"])
def test_what_makes_no_sense(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(f"[log]\n{line}\n")
    assert caught.value.errors[0].path == f"log.{line.split()[0]}"


def test_both_need_a_restart() -> None:
    text = '[log]\nevents_path = "/var/log/e.jsonl"\nevents_max_bytes = 9000000\n'
    assert needs_restart(check(""), check(text)) == ["log.events_path", "log.events_max_bytes"]
