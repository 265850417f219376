"""Which class a peer gets, by the shipped rules and by one's own."""

import pytest

from onegate.config import check
from onegate.server.classify import (
    ClassNotAllowed,
    Decision,
    Rules,
    UnknownClass,
    classify,
    compile_rules,
)
from onegate.server.peercred import Peer

GROUPS = {"onegate-admin": 500, "staff": 50}


def rules(text: str = "", own_uid: int | None = None) -> Rules:
    return compile_rules(check(text, own_uid=own_uid), GROUPS.get)


def peer(
    unit: str | None = None,
    slice_: str | None = "system.slice",
    *,
    uid: int = 1000,
    groups: tuple[int, ...] = (),
    user_unit: str | None = None,
    owner: int | None = None,
    tty: bool = False,
    unreadable: str = "",
) -> Peer:
    return Peer(
        pid=7,
        uid=uid,
        gid=uid,
        groups=tuple(sorted({uid, *groups})),
        source="peer_pidfd",
        unreadable=unreadable,
        unit=unit,
        slice=slice_,
        user_unit=user_unit,
        owner_uid=owner,
        tty=tty,
    )


def in_session(
    user_unit: str | None = None,
    *,
    tty: bool = False,
    uid: int = 1000,
    groups: tuple[int, ...] = (),
) -> Peer:
    unit = "session-3.scope" if user_unit is None else "user@1000.service"
    return peer(
        unit, "user-1000.slice", uid=uid, groups=groups, user_unit=user_unit, owner=1000, tty=tty
    )


def decide(who: Peer, by: Rules | None = None, asked: str | None = None, app: str = "") -> Decision:
    decision = classify(who, by or rules(), asked, app)
    assert isinstance(decision, Decision), decision
    return decision


SHIPPED = {
    "cron": (peer("cron.service"), "batch", "batch"),
    "anacron": (peer("anacron.service"), "batch", "batch"),
    "batch timer": (peer("onegate-batch@nightly.service", "system-x.slice"), "batch", "batch"),
    "one's own batch timer": (peer("report-batch@1.service"), "batch", "batch"),
    "batch slice": (peer("anything.service", "onegate-batch.slice"), "batch", "batch"),
    "other service": (peer("web.service"), "loop", "loop"),
    "docker": (peer("docker-0123456789ab.scope"), "loop", "loop"),
    "podman": (peer("libpod-0123456789ab.scope", "machine.slice"), "loop", "loop"),
    "no systemd": (peer(None, None), "loop", "loop"),
    "shell": (in_session(tty=True), "interactive", "interactive"),
    "ssh without a terminal": (in_session(), "interactive", "loop"),
    "desktop": (in_session("app-gnome-firefox-1.scope"), "interactive", "interactive"),
    "desktop service": (in_session("app-org.x@1.service"), "interactive", "interactive"),
    "autostart": (in_session("app-sync@autostart.service"), "interactive", "loop"),
    "snap": (in_session("snap.chat.chat-1.scope"), "interactive", "interactive"),
    "user service": (in_session("agent.service"), "interactive", "loop"),
    "terminal of a cron job": (peer("cron.service", tty=True), "batch", "batch"),
}


@pytest.mark.parametrize("case", SHIPPED.values(), ids=SHIPPED.keys())
def test_shipped_rules(case: tuple[Peer, str, str]) -> None:
    who, ceiling, class_ = case
    decision = decide(who)
    assert (decision.ceiling, decision.class_) == (ceiling, class_)
    assert not decision.delegate


def test_a_peer_without_readable_facts_gets_the_lowest_class() -> None:
    who = peer("session-3.scope", "user-1000.slice", uid=0, tty=True, unreadable="it has exited")
    decision = decide(who, rules("[[grant]]\nuid = 0\nceiling = 'interactive'\ndelegate = true\n"))
    assert (decision.class_, decision.ceiling) == ("batch", "batch")
    assert (decision.admin, decision.delegate) == (False, False)
    assert "it has exited" in decision.why[0]
    refusal = classify(who, rules(), "loop", "")
    assert isinstance(refusal, ClassNotAllowed)


@pytest.mark.parametrize(
    ("asked", "got"), [("interactive", "interactive"), ("loop", "loop"), ("batch", "batch")]
)
def test_asking_at_or_below_the_ceiling_wins_over_hints(asked: str, got: str) -> None:
    assert decide(in_session(tty=True), asked=asked).class_ == got
    assert decide(in_session(), asked=asked).class_ == got


def test_asking_above_the_ceiling_is_refused() -> None:
    refusal = classify(peer("cron.service", tty=True), rules(), "interactive", "")
    assert isinstance(refusal, ClassNotAllowed)
    assert (refusal.asked, refusal.ceiling, refusal.allowed) == (
        "interactive",
        "batch",
        ("batch",),
    )
    assert refusal.message == (
        'class "interactive" is above your ceiling "batch"; allowed are batch'
    )
    assert any("cron.service" in line for line in refusal.why)


def test_asking_for_a_class_that_there_is_none() -> None:
    refusal = classify(peer("cron.service"), rules(), "x\n" * 5000, "")
    assert isinstance(refusal, UnknownClass)
    assert refusal.known == ("interactive", "loop", "batch")
    assert "\n" not in refusal.message
    assert len(refusal.message) < 200


def test_what_is_allowed_is_the_ceiling_and_below() -> None:
    assert decide(in_session()).allowed == ("interactive", "loop", "batch")
    assert decide(peer("web.service")).allowed == ("loop", "batch")
    assert decide(peer("cron.service")).allowed == ("batch",)


def test_a_hint_above_the_ceiling_is_lowered_and_said() -> None:
    decision = decide(peer("web.service", tty=True))
    assert decision.class_ == "loop"
    assert any(line.startswith("class interactive: shipped hint 0") for line in decision.why)
    assert decision.why[-1] == "class loop: lowered to the ceiling"


def test_the_first_matching_grant_decides() -> None:
    text = """
        [[grant]]
        uid = 1000
        unit = "web.service"
        ceiling = "interactive"
        [[grant]]
        uid = 1000
        ceiling = "batch"
        """
    assert decide(peer("web.service"), rules(text)).ceiling == "interactive"
    assert decide(peer("other.service"), rules(text)).ceiling == "batch"
    assert decide(in_session(), rules(text)).ceiling == "batch"
    assert decide(peer("web.service", uid=1001), rules(text)).ceiling == "loop"


def test_ones_own_hints_come_first() -> None:
    text = '[[hint]]\napp = "Agent/*"\nclass = "batch"\n'
    assert decide(in_session(tty=True), rules(text), app="Agent/2").class_ == "batch"
    assert decide(in_session(tty=True), rules(text), app="agent/2").class_ == "interactive"
    assert decide(in_session(tty=True), rules(text), app="x" * 1000).class_ == "interactive"


def test_only_the_beginning_of_a_long_name_counts() -> None:
    by = rules('[[hint]]\napp = "*z"\nclass = "batch"\n')
    assert decide(in_session(), by, app="a" * 254 + "z").class_ == "batch"
    assert decide(in_session(), by, app="a" * 255 + "z").class_ == "loop"


def test_a_hint_can_ask_for_no_terminal() -> None:
    text = '[[hint]]\ntty = false\nclass = "batch"\n'
    assert decide(in_session(), rules(text)).class_ == "batch"
    assert decide(in_session(tty=True), rules(text)).class_ == "interactive"


@pytest.mark.parametrize("key", ["delegate", "admin"])
@pytest.mark.parametrize("first", [True, False])
def test_each_right_comes_from_the_first_grant_that_states_it(key: str, first: bool) -> None:
    grants = [
        '[[grant]]\nuid = 1000\nceiling = "batch"\n',
        f"[[grant]]\nuid = 1000\n{key} = {str(first).lower()}\n",
        f"[[grant]]\nuid = 1000\n{key} = {str(not first).lower()}\n",
    ]
    decision = decide(in_session(), rules("".join(grants)))
    assert getattr(decision, key) is first
    assert decision.ceiling == "batch"


def test_all_conditions_of_a_grant_must_hold() -> None:
    text = """
        [[grant]]
        uid = 1000
        gid = 1000
        group = "staff"
        unit = "w*.service"
        slice = "system.slice"
        delegate = true
        """
    by = rules(text)
    assert decide(peer("web.service", groups=(50,)), by).delegate
    for other in (
        peer("web.service", groups=(50,), uid=1001),
        peer("web.service"),
        peer("x.service", groups=(50,)),
        peer(None, groups=(50,)),
        peer("web.service", "other.slice", groups=(50,)),
        peer("web.service", None, groups=(50,)),
    ):
        assert not decide(other, by).delegate


def test_a_primary_group_condition() -> None:
    by = rules("[[grant]]\ngid = 50\nceiling = 'batch'\n")
    assert decide(in_session(groups=(50,)), by).ceiling == "interactive"
    assert decide(in_session(uid=50), by).ceiling == "batch"


def test_a_group_that_does_not_exist_matches_nobody() -> None:
    by = rules('[[grant]]\ngroup = "nobody-here"\nceiling = "batch"\n')
    assert decide(in_session(), by).ceiling == "interactive"


def test_administrators() -> None:
    assert decide(in_session(uid=0)).admin
    assert decide(in_session(groups=(500,))).admin
    assert not decide(in_session()).admin
    # Root's own cron job stays batch, and stays root.
    job = decide(peer("cron.service", uid=0))
    assert (job.ceiling, job.admin) == ("batch", True)


@pytest.mark.parametrize("unit", ["docker-0123456789ab.scope", "libpod-0123456789ab.scope"])
def test_root_in_a_container_is_no_administrator(unit: str) -> None:
    assert not decide(peer(unit, uid=0)).admin


def test_who_started_the_daemon_by_hand_may_use_it_fully() -> None:
    by = rules(own_uid=1000)
    decision = decide(peer(None, None), by)
    assert (decision.ceiling, decision.class_, decision.admin) == ("interactive", "loop", True)
    assert decide(peer(None, None, tty=True), by).class_ == "interactive"
    assert decide(peer(None, None, uid=1001), by).ceiling == "loop"
    assert decide(peer("cron.service"), by).ceiling == "batch"


def test_the_principal_is_the_owner_of_the_session() -> None:
    assert decide(in_session(uid=0)).principal == "uid:1000"
    assert decide(peer("web.service", uid=33)).principal == "uid:33"


def test_the_flow_tells_the_units_of_one_principal_apart() -> None:
    assert decide(in_session("app-x-1.scope")).flow == "uid:1000/app-x-1.scope"
    assert decide(in_session()).flow == "uid:1000/session-3.scope"
    assert decide(peer(None, None)).flow == "uid:1000/-"


def test_why_names_facts_and_rules() -> None:
    by = rules(
        '[[grant]]\nunit = "web.*"\nceiling = "interactive"\ndelegate = true\nadmin = false\n'
    )
    assert decide(peer("web.service", tty=True), by).why == (
        "uid 1000, web.service in system.slice, a terminal",
        'ceiling interactive: grant[0] (unit = "web.*" -> ceiling = "interactive", '
        "delegate = true, admin = false)",
        'delegate: grant[0] (unit = "web.*" -> ceiling = "interactive", '
        "delegate = true, admin = false)",
        'no administrator: grant[0] (unit = "web.*" -> ceiling = "interactive", '
        "delegate = true, admin = false)",
        'class interactive: shipped hint 0 (tty = true -> class = "interactive")',
    )
    assert decide(peer(None, None)).why == (
        "uid 1000, no unit in no slice, no terminal",
        "ceiling loop: no grant matched",
        "class loop: no hint matched",
    )
    assert decide(in_session("x.service", uid=0), asked="loop").why[0] == (
        "uid 0, in the session of uid 1000, user@1000.service in user-1000.slice, "
        "user unit x.service, no terminal"
    )


def test_classes_of_ones_own() -> None:
    text = """
        [[class]]
        name = "batch"
        rank = 9
        [[class]]
        name = "idle"
        rank = 20
        """
    by = rules(text)
    assert decide(peer("cron.service"), by).allowed == ("batch", "idle")
    assert decide(peer("x.service", unreadable="gone"), by).class_ == "idle"


def test_a_pattern_of_stars_costs_no_time() -> None:
    # A backtracking matcher would not come back from this.
    by = rules(f'[[hint]]\napp = "{"*a" * 40}b"\nclass = "batch"\n')
    assert decide(in_session(), by, app="a" * 255).class_ == "loop"
