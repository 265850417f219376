"""From text, file and environment to a checked configuration."""

from pathlib import Path

import pytest

from onegate.config import Config, ConfigError, Grant, check, load, needs_restart, socket_path
from onegate.config.document import MAX_CLASSES, MAX_CONFIG_BYTES, MAX_RULES


def problems(text: str) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        check(text)
    return {problem.path: problem.message for problem in caught.value.errors}


def test_an_empty_file_is_the_defaults() -> None:
    config = check("")
    assert config == Config()
    assert [(c.name, c.rank) for c in config.classes] == [
        ("interactive", 0),
        ("loop", 1),
        ("batch", 2),
    ]


def test_shipped_classes_are_as_documented() -> None:
    interactive, loop, batch = check("").classes
    assert [c.max_queued_tok for c in (interactive, loop, batch)] == [32768, 65536, 262144]
    assert [c.per_principal_share for c in (interactive, loop, batch)] == [0.5, 0.5, 0.9]
    assert [(c.max_tokens_default, c.max_tokens_max) for c in (interactive, loop, batch)] == [
        (1024, 8192),
        (2048, 16384),
        (1024, 16384),
    ]
    assert [(c.ttft_timeout_ms, c.ttft_timeout_ms_max) for c in (interactive, loop, batch)] == [
        (10000, 120000),
        (60000, 600000),
        (None, None),
    ]
    assert [c.timeout_ms for c in (interactive, loop, batch)] == [600000, 1800000, None]
    assert [c.safety_timeout_s for c in (interactive, loop, batch)] == [900, 2700, 7200]
    assert [c.floor_share for c in (interactive, loop, batch)] == [0, 0.05, 0.05]


def test_an_entry_changes_only_its_keys_of_a_shipped_class() -> None:
    config = check('[[class]]\nname = "batch"\nmax_queued_tok = 99\ntimeout_ms = 5000\n')
    batch = config.classes[2]
    assert (batch.max_queued_tok, batch.timeout_ms, batch.safety_timeout_s) == (99, 5000, 7200)


def test_a_new_class_takes_its_place_by_rank() -> None:
    config = check(
        '[[class]]\nname = "batch"\nrank = 9\n[[class]]\nname = "night"\nrank = 5\n'
        '[[grant]]\nuid = 7\nceiling = "night"\n[[hint]]\napp = "x*"\nclass = "night"\n'
    )
    assert [c.name for c in config.classes] == ["interactive", "loop", "night", "batch"]
    assert config.grants == (Grant(uid=7, ceiling="night"),)
    assert config.hints[0].class_ == "night"


def test_a_class_entered_twice() -> None:
    text = '[[class]]\nname = "loop"\n[[class]]\nname = "loop"\nrank = 50\n'
    assert problems(text) == {"class[1].name": '"loop" has an entry already'}


@pytest.mark.parametrize("name", ["", "\nname = 3", '\nname = "Big One"'])
def test_a_class_without_a_usable_name(name: str) -> None:
    found = problems(f"[[class]]{name}\nrank = 7\n")
    assert set(found) == {"class[0].name"}


def test_everything_wrong_is_said_at_once() -> None:
    found = problems(
        """
        [engin]
        [engine]
        kind = "olama"
        threads = nan
        [gate]
        max_in_flight = 0
        sessions_per_uid = 2000
        [[class]]
        name = "night"
        rank = "x"
        [[class]]
        name = "loop"
        rank = 2
        [[grant]]
        uid = 3
        [[grant]]
        admin = true
        [[grant]]
        unit = "a/b"
        ceiling = "bach"
        [[grant]]
        group = "g"
        ceiling = "bach"
        [[hint]]
        tty = true
        [[hint]]
        class = "loop"
        [[hint]]
        app = "x"
        class = "bach"
        """
    )
    assert set(found) == {
        "engin",
        "engine.kind",
        "engine.threads",
        "gate.max_in_flight",
        "gate.sessions_per_uid",
        "class.night.rank",
        "class.batch.rank",
        "grant[0]",
        "grant[1]",
        "grant[2].unit",
        "grant[3].ceiling",
        "hint[0].class",
        "hint[1]",
        "hint[2].class",
    }
    assert '(did you mean "engine"?)' in found["engin"]
    assert '(did you mean "batch"?)' in found["grant[3].ceiling"]


def test_a_key_that_was_unreadable_is_not_blamed_twice() -> None:
    # Its default would contradict the other key; nobody wrote that.
    found = problems('[gate]\nsessions_total = "many"\nsessions_per_uid = 2000\n')
    assert set(found) == {"gate.sessions_total"}


def test_a_class_that_could_not_be_read_may_still_be_named() -> None:
    found = problems(
        '[[class]]\nname = "night"\nrank = -1\n[[grant]]\nuid = 1\nceiling = "night"\n'
    )
    assert set(found) == {"class.night.rank"}


@pytest.mark.parametrize(
    "text",
    ["a =", "a = " + "9" * 5000, "a = " + "[" * 100_000, 'a = "\ud800"'],
    ids=["syntax", "digits", "depth", "surrogate"],
)
def test_what_is_not_toml(text: str) -> None:
    assert set(problems(text)) <= {"file", "a"}


@pytest.mark.parametrize("text", ["class = 3", '[class]\nname = "x"', "[[gate]]", "gate = 1"])
def test_tables_and_arrays_confused(text: str) -> None:
    assert set(problems(text)) <= {"class", "gate"}


def test_rules_and_classes_are_bounded() -> None:
    many = "".join(f'[[class]]\nname = "c{i}"\nrank = {i + 10}\n' for i in range(MAX_CLASSES + 1))
    assert set(problems(many)) == {"class"}
    grants = "[[grant]]\nuid = 1\nadmin = true\n" * (MAX_RULES + 1)
    assert set(problems(grants)) == {"grant"}
    hints = '[[hint]]\ntty = true\nclass = "loop"\n' * (MAX_RULES + 1)
    assert set(problems(hints)) == {"hint"}


def test_own_uid_comes_after_every_other_grant() -> None:
    assert check("", own_uid=1000).shipped_grants[-1] == Grant(
        uid=1000, ceiling="interactive", admin=True
    )
    of_the_system = [grant for grant in check("").shipped_grants if not grant.delegate]
    assert tuple(of_the_system) == check("", own_uid=1000).shipped_grants[:-1]


def test_a_named_file_is_read_and_must_be_there(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[gate]\nmax_in_flight = 3\n", encoding="utf-8")
    assert load(str(file), environ={}).gate.max_in_flight == 3
    assert load(None, environ={"ONEGATE_CONFIG": str(file)}).gate.max_in_flight == 3
    for path, environ in ((str(tmp_path / "no"), {}), (None, {"ONEGATE_CONFIG": "/no/such"})):
        with pytest.raises(ConfigError, match="No such file"):
            load(path, environ=environ)


def test_the_command_line_wins_over_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[gate]\nmax_in_flight = 3\n", encoding="utf-8")
    assert load(str(file), environ={"ONEGATE_CONFIG": "/no/such"}).gate.max_in_flight == 3


def test_without_a_system_file_the_defaults_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onegate.config.document.CONFIG_PATH", str(tmp_path / "none.toml"))
    assert load(None, environ={}, own_uid=5) == check("", own_uid=5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"#" * (MAX_CONFIG_BYTES + 1), "longer than"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(str(file), environ={})


def test_a_directory_and_an_impossible_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        load(str(tmp_path), environ={})
    with pytest.raises(ConfigError, match="zero byte"):
        load("a\0b", environ={})


def test_where_to_listen() -> None:
    default = check("")
    given = check('[gate]\nsocket_path = "/srv/gate.sock"\n')
    xdg = {"XDG_RUNTIME_DIR": "/run/user/1000", "HOME": "/home/a"}
    assert socket_path(default, environ={}, uid=0) == "/run/onegate/onegate.sock"
    assert socket_path(default, environ=xdg, uid=1000) == "/run/user/1000/onegate.sock"
    assert socket_path(default, environ={"HOME": "/home/a"}, uid=1000) == (
        "/home/a/.cache/onegate/onegate.sock"
    )
    assert socket_path(given, environ=xdg, uid=1000) == "/srv/gate.sock"
    assert socket_path(given, environ={"ONEGATE_SOCKET": "/x/s"}, uid=0) == "/x/s"
    relative = {"XDG_RUNTIME_DIR": "run", "HOME": "/home/a"}
    assert socket_path(default, environ=relative, uid=1) == "/home/a/.cache/onegate/onegate.sock"


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"ONEGATE_SOCKET": "gate.sock"}, "absolute path"),
        ({"ONEGATE_SOCKET": "/" + "x" * 107}, "108 bytes long"),
        ({"ONEGATE_SOCKET": "/a\0b"}, "absolute path"),
        ({}, "neither XDG_RUNTIME_DIR nor HOME"),
    ],
)
def test_where_nobody_can_listen(environ: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        socket_path(check(""), environ=environ, uid=1000)


def test_the_longest_path_a_socket_can_have() -> None:
    longest = "/" + "x" * 106
    assert socket_path(check(""), environ={"ONEGATE_SOCKET": longest}, uid=0) == longest


def test_what_a_reload_cannot_change() -> None:
    old = check("")
    new = check(
        "[engine]\nmax_seqs = 3\n[engine.scripted]\nloadable = 2\n"
        "[gate]\nsocket_backlog = 5\nmax_in_flight = 9\n"
        '[[class]]\nname = "loop"\nmax_queued_tok = 9\n'
    )
    assert needs_restart(old, new) == ["engine.max_seqs", "engine.scripted", "gate.socket_backlog"]
    assert needs_restart(old, old) == []
