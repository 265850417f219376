"""The shipped grants and hints, and what a rule states."""

from onegate.config.rules import SHIPPED_HINTS, Grant, Hint, shipped_grants


def test_a_rule_knows_its_conditions() -> None:
    grant = Grant(uid=0, unit="x.service", ceiling="batch", admin=True)
    assert grant.conditions() == {"uid": 0, "unit": "x.service"}
    assert Grant(ceiling="batch").conditions() == {}
    assert Hint(tty=False, class_="loop").conditions() == {"tty": False}
    assert Hint(app="x", unit="y", class_="loop").conditions() == {"app": "x", "unit": "y"}
    assert Grant(gid=3, group="g", slice="s").conditions() == {"gid": 3, "group": "g", "slice": "s"}


def test_every_shipped_rule_has_a_condition_and_a_consequence() -> None:
    for grant in shipped_grants(1000):
        assert grant.conditions()
        assert (grant.ceiling, grant.delegate, grant.admin) != (None, None, None)
    for hint in SHIPPED_HINTS:
        assert hint.conditions()
        assert hint.class_ is not None


def test_containers_come_before_the_rule_for_root() -> None:
    grants = shipped_grants(None)
    root = grants.index(Grant(uid=0, admin=True))
    containers = [i for i, grant in enumerate(grants) if grant.admin is False]
    assert containers
    assert max(containers) < root


def test_nobody_is_a_delegate_unless_the_owner_says_so() -> None:
    assert all(grant.delegate is None for grant in shipped_grants(1000))


def test_of_a_system_service_our_own_unit_is_one() -> None:
    (proxy,) = [grant for grant in shipped_grants(None) if grant.delegate is not None]
    assert proxy == Grant(unit="onegate-ollama-proxy.service", ceiling="interactive", delegate=True)
