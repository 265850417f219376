"""What is remembered of who used how much, and where it is kept."""

import pytest

from onegate.config import ConfigError, UsageConfig, check, needs_restart, usage_directory


def test_the_defaults_are_those_that_are_documented() -> None:
    usage = check("").usage
    assert usage == UsageConfig()
    assert (usage.directory, usage.days, usage.principals_per_day) == (None, 400, 64)


def test_one_day_fits_into_the_table() -> None:
    text = "[usage]\nprincipals_per_day = 9\nmax_rows = "
    assert check(f"{text}30\n").usage.max_rows == 30  # three classes, nine users and the others
    with pytest.raises(ConfigError) as caught:
        check(f"{text}29\n")
    assert [problem.path for problem in caught.value.errors] == ["usage.max_rows"]


@pytest.mark.parametrize(
    "line", ['directory = "state"', "days = 0", "max_rows = 200001", "write_every_s = 0"]
)
def test_what_makes_no_sense(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(f"[usage]\n{line}\n")
    assert caught.value.errors[0].path == f"usage.{line.split()[0]}"


def test_only_the_place_needs_a_restart() -> None:
    text = '[usage]\ndirectory = "/var/lib/other"\ndays = 3\nwrite_every_s = 1\n'
    assert needs_restart(check(""), check(text)) == ["usage.directory"]


HOME = {"HOME": "/home/a"}
SYSTEMD = HOME | {"STATE_DIRECTORY": "/var/lib/onegate:/var/lib/more"}


@pytest.mark.parametrize(
    ("environ", "private", "handed_over", "place"),
    [
        (HOME, False, False, "/home/a/.local/state/onegate"),
        (HOME | {"XDG_STATE_HOME": "/s"}, False, False, "/s/onegate"),
        (HOME | {"XDG_STATE_HOME": "s"}, False, False, "/home/a/.local/state/onegate"),
        ({}, False, False, None),
        (SYSTEMD, False, True, "/var/lib/onegate"),
        (SYSTEMD, False, False, "/var/lib/onegate"),
        (SYSTEMD, True, False, None),
        ({"STATE_DIRECTORY": "relative"}, False, True, None),
        (HOME, False, True, None),
        (HOME, True, False, None),
        (HOME | {"ONEGATE_SOCKET": "/run/mine"}, False, False, None),
    ],
)
def test_where_it_is_kept(
    environ: dict[str, str], private: bool, handed_over: bool, place: str | None
) -> None:
    found = usage_directory(
        UsageConfig(), environ=environ, private=private, handed_over=handed_over
    )
    assert found == place


@pytest.mark.parametrize("private", [True, False])
def test_what_the_file_says_goes_before_everything(private: bool) -> None:
    usage = check('[usage]\ndirectory = "/srv/usage"\n').usage
    found = usage_directory(usage, environ=SYSTEMD, private=private, handed_over=True)
    assert found == "/srv/usage"
