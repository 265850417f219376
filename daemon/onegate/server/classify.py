"""Which class a peer gets, and why: a pure function of the peer, the rules and what it asks for.

Facts that a process cannot choose set its ceiling; what it can choose (terminal, user unit, the
name it gives, the class it asks for) chooses at or below. Nobody raises himself above his ceiling:
a hint above it is lowered, a question above it is refused, because a caller that asked should
know that it will not get it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate

from onegate.config import ORDINARY_CLASS, Config, Grant, Hint, rule_text
from onegate.server.peercred import Peer

# The name a peer gives is its own choice, of any length; patterns see this much of it.
_MAX_APP_MATCHED = 255


@dataclass(frozen=True, slots=True)
class _GrantRule:
    label: str
    grant: Grant
    matches: Callable[[Peer], bool]


@dataclass(frozen=True, slots=True)
class _HintRule:
    label: str
    hint: Hint
    matches: Callable[[Peer, str], bool]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one configuration, ready to be applied. `classes`: names, best first."""

    classes: tuple[str, ...]
    grants: tuple[_GrantRule, ...]
    hints: tuple[_HintRule, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a peer may do. `allowed`: its ceiling and every class below, best first.

    principal: whom shares are counted for. flow: principal and unit; with the class it is what
    fairness is kept between. why: the rules and facts that led here, one sentence each.
    end_client: the name of whom the peer speaks for, for counting his connections; empty where it
    speaks for itself.
    """

    class_: str
    ceiling: str
    delegate: bool
    admin: bool
    principal: str
    flow: str
    why: tuple[str, ...]
    allowed: tuple[str, ...]
    end_client: str = ""


@dataclass(frozen=True, slots=True)
class ClassNotAllowed:
    """The peer asked for a class above its ceiling."""

    asked: str
    ceiling: str
    allowed: tuple[str, ...]
    why: tuple[str, ...]

    @property
    def message(self) -> str:
        return (
            f'class "{self.asked}" is above your ceiling "{self.ceiling}"; '
            f"allowed are {', '.join(self.allowed)}"
        )


@dataclass(frozen=True, slots=True)
class UnknownClass:
    """The peer asked for a class that the configuration does not have."""

    asked: str
    known: tuple[str, ...]

    @property
    def message(self) -> str:
        return f"no class is called {self.asked[:40]!a}; known are {', '.join(self.known)}"


def compile_rules(config: Config, group_gid: Callable[[str], int | None]) -> Rules:
    """Rules of a checked configuration.

    `group_gid` gives a group's id by name, None where there is no such group: its grants match
    nobody until the rules are compiled again. It may ask the network, so it is called here only.
    """
    grants = (
        *((f"grant[{i}]", grant) for i, grant in enumerate(config.grants)),
        *((f"shipped grant {i}", grant) for i, grant in enumerate(config.shipped_grants)),
    )
    hints = (
        *((f"hint[{i}]", hint) for i, hint in enumerate(config.hints)),
        *((f"shipped hint {i}", hint) for i, hint in enumerate(config.shipped_hints)),
    )
    return Rules(
        classes=tuple(cls.name for cls in config.classes),
        grants=tuple(
            _GrantRule(f"{label} ({rule_text(grant)})", grant, _grant_matcher(grant, group_gid))
            for label, grant in grants
        ),
        hints=tuple(
            _HintRule(f"{label} ({rule_text(hint)})", hint, _hint_matcher(hint))
            for label, hint in hints
        ),
    )


def _glob(pattern: str | None) -> Callable[[str | None], bool]:
    if pattern is None:
        return lambda text: True
    match = re.compile(translate(pattern)).match
    return lambda text: text is not None and match(text) is not None


def _grant_matcher(grant: Grant, group_gid: Callable[[str], int | None]) -> Callable[[Peer], bool]:
    unit, slice_ = _glob(grant.unit), _glob(grant.slice)
    group = None if grant.group is None else group_gid(grant.group)

    def matches(peer: Peer) -> bool:
        return (
            (grant.uid is None or grant.uid == peer.uid)
            and (grant.gid is None or grant.gid == peer.gid)
            and (grant.group is None or group in peer.groups)
            and unit(peer.unit)
            and slice_(peer.slice)
        )

    return matches


def _hint_matcher(hint: Hint) -> Callable[[Peer, str], bool]:
    unit, app_glob = _glob(hint.unit), _glob(hint.app)

    def matches(peer: Peer, app: str) -> bool:
        return (
            (hint.tty is None or hint.tty == peer.tty)
            and unit(peer.user_unit)
            and app_glob(app[:_MAX_APP_MATCHED])
        )

    return matches


def classify(
    peer: Peer, rules: Rules, asked: str | None, app: str
) -> Decision | ClassNotAllowed | UnknownClass:
    """The class of `peer`, which calls itself `app` and asks for the class `asked`, if any."""
    if asked is not None and asked not in rules.classes:
        return UnknownClass(asked, rules.classes)
    if peer.verified:
        why = [_facts(peer)]
        ceiling, delegate, admin = _granted(peer, rules, why)
    else:
        why = [f"facts unreadable, {peer.unreadable}: the lowest class"]
        ceiling, delegate, admin = rules.classes[-1], False, False
    allowed = rules.classes[rules.classes.index(ceiling) :]
    if asked is not None:
        if asked not in allowed:
            return ClassNotAllowed(asked, ceiling, allowed, tuple(why))
        chosen = asked
        why.append(f"class {asked}: asked for")
    else:
        chosen = lowered(_hinted(peer, rules, app, why), allowed, why)
    principal = f"uid:{peer.uid if peer.owner_uid is None else peer.owner_uid}"
    return Decision(
        class_=chosen,
        ceiling=ceiling,
        delegate=delegate,
        admin=admin,
        principal=principal,
        flow=f"{principal}/{peer.user_unit or peer.unit or '-'}",
        why=tuple(why),
        allowed=allowed,
    )


def lowered(chosen: str | None, allowed: tuple[str, ...], why: list[str]) -> str:
    """What was chosen, or the ordinary class, if it is not above the ceiling; else the ceiling."""
    if chosen is None:
        chosen = ORDINARY_CLASS
        why.append(f"class {ORDINARY_CLASS}: nothing was chosen")
    if chosen in allowed:
        return chosen
    why.append(f"class {allowed[0]}: lowered to the ceiling")
    return allowed[0]


def _facts(peer: Peer) -> str:
    """What was found out, in one line."""
    owner = "" if peer.owner_uid is None else f", in the session of uid {peer.owner_uid}"
    unit = peer.unit or "no unit"
    user_unit = "" if peer.user_unit is None else f", user unit {peer.user_unit}"
    tty = "a terminal" if peer.tty else "no terminal"
    return f"uid {peer.uid}{owner}, {unit} in {peer.slice or 'no slice'}{user_unit}, {tty}"


def _granted(peer: Peer, rules: Rules, why: list[str]) -> tuple[str, bool, bool]:
    """(ceiling, delegate, admin), each from the first matching grant that states it."""
    ceiling: str | None = None
    delegate: bool | None = None
    admin: bool | None = None
    for rule in rules.grants:
        if not rule.matches(peer):
            continue
        grant = rule.grant
        if ceiling is None and grant.ceiling is not None:
            ceiling = grant.ceiling
            why.append(f"ceiling {ceiling}: {rule.label}")
        if delegate is None and grant.delegate is not None:
            delegate = grant.delegate
            why.append(f"{'delegate' if delegate else 'no delegate'}: {rule.label}")
        if admin is None and grant.admin is not None:
            admin = grant.admin
            why.append(f"{'administrator' if admin else 'no administrator'}: {rule.label}")
    if ceiling is None:
        ceiling = ORDINARY_CLASS
        why.append(f"ceiling {ceiling}: no grant matched")
    return ceiling, bool(delegate), bool(admin)


def _hinted(peer: Peer, rules: Rules, app: str, why: list[str]) -> str:
    if peer.verified:
        for rule in rules.hints:
            if rule.hint.class_ is not None and rule.matches(peer, app):
                why.append(f"class {rule.hint.class_}: {rule.label}")
                return rule.hint.class_
    why.append(f"class {ORDINARY_CLASS}: no hint matched")
    return ORDINARY_CLASS
