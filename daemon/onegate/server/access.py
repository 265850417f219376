"""Who may use which verb. A verb without a rule does not start: `check_complete` says so."""

from enum import Enum
from typing import get_args

from onegate.protocol import messages as m
from onegate.server.classify import Decision


class Access(Enum):
    """Whom a verb is for."""

    EVERYBODY = "everybody"
    DELEGATE = "delegates"
    ADMINISTRATOR = "administrators"


RULES: dict[type, Access] = {
    m.Generate: Access.EVERYBODY,
    m.Embed: Access.EVERYBODY,
    m.CountTokens: Access.EVERYBODY,
    m.Cancel: Access.EVERYBODY,  # reaches only requests of the same connection
    m.Capacity: Access.EVERYBODY,
    m.GetStatus: Access.EVERYBODY,  # who the others are is shown to administrators only
    m.Whoami: Access.EVERYBODY,
    m.Metrics: Access.EVERYBODY,  # counts, without a label that names anybody
    m.GetUsage: Access.EVERYBODY,  # one's own rows; those of others are for administrators
    m.Lease: Access.DELEGATE,
    # Reaches only leases of the same connection, and a refusal would end the request whose id it
    # names.
    m.Settle: Access.EVERYBODY,
    m.Load: Access.DELEGATE,
    m.Unload: Access.DELEGATE,
    m.Pause: Access.ADMINISTRATOR,
    m.Unpause: Access.ADMINISTRATOR,
    m.CancelAny: Access.ADMINISTRATOR,
    m.ReleaseEngine: Access.ADMINISTRATOR,
}


def check_complete(handled: set[type]) -> None:
    """Raise unless every verb of the wire has a rule and a way to be carried out."""
    verbs = set(get_args(m.ClientMessage)) - {m.Hello}
    for what, have in (("access rule", set(RULES)), ("handler", handled)):
        if missing := sorted(verb.__name__ for verb in verbs - have):
            raise RuntimeError(f"verbs without {what}: {', '.join(missing)}")
        if extra := sorted(verb.__name__ for verb in have - verbs):
            raise RuntimeError(f"{what} for what is no verb: {', '.join(extra)}")


def allowed(decision: Decision, verb: type) -> bool:
    """May a peer that was classified like this use the verb?"""
    match RULES[verb]:
        case Access.EVERYBODY:
            return True
        case Access.DELEGATE:
            return decision.delegate
        case Access.ADMINISTRATOR:
            return decision.admin
