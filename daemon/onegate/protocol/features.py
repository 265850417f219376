"""What two versions agree on in `Hello` and `Welcome`, and which verbs hang on it.

A feature is a name that both sides said. `v1` is everything without a feature of its own. A verb of
a feature that was not agreed on is answered `unsupported`; its meaning is fixed all the same, so
that announcing it later changes nothing for anybody. Fields that later versions add to a request
get a feature too, because daemons refuse fields that they do not know.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from onegate.protocol.errors import RemoteProtocolError
from onegate.protocol.messages import (
    ClientMessage,
    Embed,
    GetUsage,
    Lease,
    Load,
    ReleaseEngine,
    Settle,
    Unload,
)

V1 = "v1"
EMBED = "embed"
LEASE = "lease"
LOAD = "load"
USAGE = "usage"
RELEASE = "release"

FEATURE_OF: Mapping[type, str] = MappingProxyType(
    {
        Embed: EMBED,
        Lease: LEASE,
        Settle: LEASE,
        Load: LOAD,
        Unload: LOAD,
        GetUsage: USAGE,
        ReleaseEngine: RELEASE,
    }
)

# What this package can speak, and so what its clients offer.
KNOWN = frozenset({V1, *FEATURE_OF.values()})
# What its daemon carries out, and so what it announces. A feature is added here when it is built.
BUILT = KNOWN


def negotiate(offered: Iterable[str], built: frozenset[str] = BUILT) -> frozenset[str]:
    """The features of a connection: those offered that the daemon has.

    Raises RemoteProtocolError without `v1`, for then there is nothing that both understand.
    """
    agreed = built.intersection(offered)
    if V1 not in agreed:
        raise RemoteProtocolError(
            f"no protocol in common: features must offer one of these versions: {V1}"
        )
    return agreed


def lacking(kind: type[ClientMessage], agreed: frozenset[str]) -> str | None:
    """The feature that such a message needs and the connection has not; None if it may be sent."""
    feature = FEATURE_OF.get(kind, V1)
    return None if feature in agreed else feature
