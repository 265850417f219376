"""What becomes of an end client that a delegate speaks for.

A delegate attests facts about somebody whom the daemon cannot see itself. Its word is worth no more
than the delegate: the best class that the end client can have is bounded by the delegate's own
ceiling, by what the facts would be granted if he came himself, and by what the delegate says. It is
nobody's administrator, and is shown nothing of the others.
"""

from dataclasses import dataclass

from msgspec import structs

from onegate.cgroup import owner_of
from onegate.protocol.requests import OnBehalf
from onegate.server.classify import (
    ClassNotAllowed,
    Decision,
    Rules,
    UnknownClass,
    classify,
    lowered,
)
from onegate.server.peercred import Peer

_NO_GID = -1  # no grant has it


@dataclass(frozen=True, slots=True)
class NoDelegate:
    """The peer may not speak for others."""

    why: tuple[str, ...]

    @property
    def message(self) -> str:
        return (
            "on_behalf is for delegates, and no grant makes you one: leave it out, or ask the "
            "administrator for a [[grant]] with delegate = true for your unit or uid"
        )


def classify_for(
    peer: Peer, behalf: OnBehalf, rules: Rules, asked: str | None, app: str
) -> Decision | ClassNotAllowed | UnknownClass | NoDelegate:
    """The class of the end client that `peer` speaks for.

    principal: the end client's own, where the delegate attests a uid, so that his share is one
    whichever way he comes; else a name of the delegate's, below the delegate's own principal.
    """
    own = classify(peer, rules, None, "")
    assert isinstance(own, Decision)  # nothing was asked for that could be refused
    if not own.delegate:
        return NoDelegate(own.why)
    for name in (behalf.ceiling, asked):
        if name is not None and name not in rules.classes:
            return UnknownClass(name, rules.classes)
    client = _end_client(peer, behalf)
    if client is None:
        # Nothing is known that could grant anything: only the delegate's word is left.
        bounds = [own.ceiling, behalf.ceiling or rules.classes[-1]]
        why = [f"on behalf, {behalf.source}: nothing is known of the end client"]
        chosen = None
    else:
        theirs = classify(client, rules, None, app)
        assert isinstance(theirs, Decision)
        bounds = [own.ceiling, theirs.ceiling, behalf.ceiling or own.ceiling]
        why = [f"on behalf, {behalf.source}: {theirs.why[0]}", *theirs.why[1:]]
        chosen = theirs.class_
    ceiling = max(bounds, key=rules.classes.index)
    why.append(f"ceiling {ceiling}: the lowest of {', '.join(bounds)}")
    allowed = rules.classes[rules.classes.index(ceiling) :]
    if asked is not None:
        if asked not in allowed:
            return ClassNotAllowed(asked, ceiling, allowed, tuple(why))
        chosen = asked
        why.append(f"class {asked}: asked for")
    else:
        chosen = lowered(chosen, allowed, why)
    principal = _principal(own.principal, client, behalf)
    return Decision(
        class_=chosen,
        ceiling=ceiling,
        delegate=True,
        admin=False,
        principal=principal,
        flow=f"{principal}/{_flow(behalf)}",
        why=tuple(why),
        allowed=allowed,
        end_client=principal if behalf.flow is None else f"{principal}/~{behalf.flow}",
    )


def attested_uid(behalf: OnBehalf) -> int | None:
    """The end client's uid; None where the delegate does not know it."""
    return None if behalf.source == "unknown" else behalf.uid


def _end_client(peer: Peer, behalf: OnBehalf) -> Peer | None:
    """The end client as a peer, as far as it is known."""
    uid = attested_uid(behalf)
    if uid is None:
        return None
    return structs.replace(
        peer,
        uid=uid,
        gid=_NO_GID,
        groups=(),
        unreadable="",
        cgroup="",
        unit=behalf.unit,
        slice=behalf.slice,
        user_unit=None,
        owner_uid=None if behalf.slice is None else owner_of([behalf.slice]),
        tty=False,
        started_ticks=None,
    )


def _principal(own: str, client: Peer | None, behalf: OnBehalf) -> str:
    if behalf.principal is not None:
        return f"{own}/{behalf.principal}"
    if client is None:
        return f"{own}/unknown"
    return f"uid:{client.uid if client.owner_uid is None else client.owner_uid}"


def _flow(behalf: OnBehalf) -> str:
    """An end user's id where there is one: it divides the principal's share, and no other's."""
    return f"~{behalf.flow}" if behalf.flow is not None else behalf.unit or "-"
