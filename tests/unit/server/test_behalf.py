"""What becomes of an end client that a delegate speaks for."""

from typing import Any

import pytest

from onegate.config import check
from onegate.protocol.errors import Phase, Reason
from onegate.protocol.messages import GetStatus, GetUsage, OnBehalf, Pause, Whoami
from onegate.server.behalf import NoDelegate, attested_uid, classify_for
from onegate.server.classify import ClassNotAllowed, Decision, Rules, UnknownClass, compile_rules
from onegate.server.peercred import Peer

Box = Any  # of conftest.py

PROXY = "onegate-ollama-proxy.service"
SESSION = {
    "source": "sock_diag",
    "uid": 1000,
    "unit": "session-3.scope",
    "slice": "user-1000.slice",
}


def rules(text: str = "") -> Rules:
    return compile_rules(check(text), {}.get)


def proxy(unit: str | None = PROXY) -> Peer:
    return Peer(
        pid=7,
        uid=990,
        gid=990,
        groups=(990,),
        source="peer_pidfd",
        unit=unit,
        slice="system.slice",
        tty=True,
    )


def behalf(**fields: Any) -> OnBehalf:
    return OnBehalf(**({"source": "unknown"} | fields))


def decide(asked: str | None = None, *, text: str = "", **fields: Any) -> Decision:
    decision = classify_for(proxy(), behalf(**fields), rules(text), asked, "")
    assert isinstance(decision, Decision), decision
    return decision


def test_nobody_else_speaks_for_others() -> None:
    found = classify_for(proxy("web.service"), behalf(), rules(), None, "")
    assert isinstance(found, NoDelegate)
    assert "delegate = true" in found.message
    assert found.why


@pytest.mark.parametrize(
    ("fields", "ceiling"),
    [
        (SESSION, "interactive"),
        (SESSION | {"ceiling": "loop"}, "loop"),  # of the delegate's word
        (SESSION | {"unit": "cron.service", "slice": "system.slice"}, "batch"),  # of his own
        (SESSION | {"slice": None}, "loop"),  # in no session that anybody knows of
        ({"ceiling": "interactive"}, "interactive"),
        ({}, "batch"),  # nothing is known, and nobody answers for him
        ({"uid": 1000, "slice": "user-1000.slice"}, "batch"),  # not attested, so not believed
        ({"source": "listener", "principal": "door", "ceiling": "loop"}, "loop"),
        ({"source": "keyfile", "principal": "door"}, "batch"),
    ],
)
def test_the_ceiling_is_the_lowest_of_three(fields: dict[str, Any], ceiling: str) -> None:
    assert decide(**fields).ceiling == ceiling


def test_nobody_is_raised_above_the_delegate() -> None:
    text = f'[[grant]]\nunit = "{PROXY}"\nceiling = "loop"\ndelegate = true\n'
    assert decide(text=text, **SESSION).ceiling == "loop"
    assert decide(text=text, ceiling="interactive").ceiling == "loop"


def test_the_facts_are_those_of_the_end_client_and_not_of_the_delegate() -> None:
    # The delegate sits at a terminal, which would make it interactive.
    assert decide(**SESSION).class_ == "loop"
    text = '[[grant]]\ngid = 990\nceiling = "batch"\n'
    assert decide(text=text + f'[[grant]]\nunit = "{PROXY}"\nceiling = "loop"\n').ceiling == "batch"
    assert decide(text='[[grant]]\ngid = 991\nceiling = "batch"\n', **SESSION).class_ == "loop"


@pytest.mark.parametrize(
    ("asked", "kind"),
    [("interactive", ClassNotAllowed), ("nonsense", UnknownClass), ("batch", Decision)],
)
def test_a_class_can_be_asked_for_at_or_below_it(asked: str, kind: type) -> None:
    found = classify_for(proxy(), behalf(**SESSION, ceiling="loop"), rules(), asked, "")
    assert type(found) is kind
    if isinstance(found, Decision):
        assert found.class_ == asked


def test_a_ceiling_that_there_is_not_is_no_ceiling() -> None:
    found = classify_for(proxy(), behalf(ceiling="royal"), rules(), None, "")
    assert isinstance(found, UnknownClass)


def test_without_a_choice_it_is_the_ordinary_class_or_the_ceiling() -> None:
    assert decide(ceiling="interactive").class_ == "loop"
    assert decide(ceiling="batch").class_ == "batch"


@pytest.mark.parametrize(
    ("fields", "principal", "flow", "end_client"),
    [
        (SESSION, "uid:1000", "uid:1000/session-3.scope", "uid:1000"),
        (
            SESSION | {"slice": "user-1001.slice"},
            "uid:1001",
            "uid:1001/session-3.scope",
            "uid:1001",
        ),
        (SESSION | {"unit": None}, "uid:1000", "uid:1000/-", "uid:1000"),
        ({}, "uid:990/unknown", "uid:990/unknown/-", "uid:990/unknown"),
        (
            {"source": "listener", "principal": "door", "flow": "eva"},
            "uid:990/door",
            "uid:990/door/~eva",
            "uid:990/door/~eva",
        ),
        (SESSION | {"flow": "eva"}, "uid:1000", "uid:1000/~eva", "uid:1000/~eva"),
    ],
)
def test_whom_it_is_counted_for(
    fields: dict[str, Any], principal: str, flow: str, end_client: str
) -> None:
    decision = decide(**fields)
    assert (decision.principal, decision.flow) == (principal, flow)
    assert decision.end_client == end_client


def test_an_end_client_may_have_the_verbs_of_a_delegate_and_none_of_an_administrator() -> None:
    root = decide(**(SESSION | {"uid": 0, "slice": "user-0.slice"}))
    assert (root.delegate, root.admin) == (True, False)


def test_a_uid_counts_where_somebody_attests_it() -> None:
    assert attested_uid(behalf(uid=0)) is None
    assert attested_uid(behalf(source="sock_diag", uid=0)) == 0


def test_why_says_whose_word_decided() -> None:
    why = decide(**SESSION, ceiling="loop").why
    assert why[0].startswith("on behalf, sock_diag: uid 1000")
    assert "ceiling loop: the lowest of interactive, interactive, loop" in why


# --- a connection that speaks for somebody --------------------------------------------------------


def speaking(box: Box, **fields: Any) -> Any:
    client = box.connect(uid=2000)
    client.hello(on_behalf=behalf(**({"ceiling": "loop"} | fields)))
    return client


async def test_only_a_delegate_may_say_whom_it_is_for(box: Box) -> None:
    from onegate.protocol.messages import Hello

    client = box.connect(uid=1000)
    client.say(Hello(features=["v1"], on_behalf=behalf()))
    (failed,) = client.heard()
    assert (failed.id, failed.reason, failed.phase) == (None, Reason.PERMISSION, Phase.HANDSHAKE)
    await box.quiet()
    assert len(box.sessions) == 0


async def test_what_is_asked_is_counted_for_the_end_client(box: Box) -> None:
    client = speaking(box, source="sock_diag", uid=7)
    run = await box.run(client)
    assert run.request.cache_salt == "uid:7"
    run.finish()
    box.free(run)
    await box.quiet()
    (row,) = box.services.usage.rows()
    assert row.principal == "uid:7"
    assert [line["uid"] for line in box.ends()] == ["7"]
    box.all_is_given_back()


async def test_bytes_that_came_before_are_given_back_to_whoever_they_were_charged(
    box: Box,
) -> None:
    client = box.connect(uid=2000)
    from onegate.protocol.connection import ClientConnection
    from onegate.protocol.messages import Generate, Hello

    wire = ClientConnection()
    data = wire.send(Hello(features=["v1"], on_behalf=behalf(source="sock_diag", uid=7)))
    data += wire.send(Generate(id=1, prompt="x" * 2000))
    client.raw(data[:20])
    client.raw(data[20:-50])
    assert box.services.inbound.total_bytes > 0
    client.hang_up()
    await box.quiet()
    assert box.services.inbound.total_bytes == 0


async def test_it_is_shown_nothing_of_the_end_client(box: Box) -> None:
    own = box.greeted(uid=7)
    await box.ask(own)
    client = speaking(box, source="sock_diag", uid=7)
    client.say(
        GetStatus(id=1, detail=True), Whoami(id=2), GetUsage(id=3), Pause(id=4, class_="loop")
    )
    status, whoami, usage, pause = client.heard()
    assert [(row.mine, row.principal) for row in status.requests] == [(False, None)]
    assert (whoami.principal, whoami.delegate, whoami.admin) == ("uid:7", True, False)
    assert whoami.daily == {}
    assert (usage.reason, pause.reason) == (Reason.PERMISSION, Reason.PERMISSION)
    own.say(GetStatus(id=5, detail=True))
    assert [row.mine for row in own.heard()[-1].requests] == [True]


async def test_end_clients_have_connections_of_their_own(make_box: Any) -> None:
    box = make_box("[gate]\nsessions_per_uid = 2\nsessions_total = 12\n")
    for uid in (7, 7, 8, 8):
        speaking(box, source="sock_diag", uid=uid)
    client = box.connect(uid=2000)
    from onegate.protocol.messages import Hello

    client.say(Hello(features=["v1"], on_behalf=behalf(source="sock_diag", uid=7, ceiling="loop")))
    (failed,) = client.heard()
    assert (failed.reason, failed.limit, failed.used) == (Reason.PEER_QUOTA, 2, 2)
    assert failed.message.startswith("the client that you speak for has")
    # One that comes itself is the same user.
    assert box.connect(uid=8).heard() != []
    await box.quiet()
    assert len(box.sessions) == 4


async def test_a_delegate_leaves_half_of_all_connections_to_the_others(make_box: Any) -> None:
    box = make_box("[gate]\nsessions_per_uid = 2\nsessions_total = 10\n")
    for uid in range(5):
        speaking(box, source="sock_diag", uid=uid)
    (failed,) = box.connect(uid=2000).heard()
    assert (failed.reason, failed.limit) == (Reason.PEER_QUOTA, 5)
    assert box.connect(uid=1).heard() == []


async def test_users_of_one_program_are_counted_one_by_one(make_box: Any) -> None:
    box = make_box("[gate]\nsessions_per_uid = 1\nsessions_total = 10\n")
    for flow in ("eva", "max"):
        speaking(box, source="listener", principal="door", flow=flow)
    assert len(box.sessions) == 2


async def test_who_stops_being_a_delegate_speaks_for_nobody(box: Box) -> None:
    client = speaking(box, source="sock_diag", uid=7)
    box.services.rules = rules()
    client.say(Whoami(id=1))
    (failed,) = client.heard()
    assert (failed.id, failed.reason) == (None, Reason.PERMISSION)


async def test_a_reload_that_lowers_the_end_client_lowers_the_connection(box: Box) -> None:
    client = speaking(box, source="sock_diag", uid=7)
    text = "[[grant]]\nuid = 7\nceiling = 'batch'\n[[grant]]\nuid = 2000\ndelegate = true\n"
    box.services.rules = rules(text)
    client.say(Whoami(id=1))
    (whoami,) = client.heard()
    assert whoami.ceiling == "batch"
