"""Where a client looks for the socket: the mirror image of where `onegate.config` binds it.

A pure function of the environment. A test holds the two together.
"""

from collections.abc import Callable, Mapping

SOCKET_ENV = "ONEGATE_SOCKET"
SYSTEM_SOCKET = "/run/onegate/onegate.sock"

# The places of a daemon that a plain user started, in the order in which it takes the first one
# that the environment names; each with what comes below it.
_USER_PLACES = (
    ("XDG_RUNTIME_DIR", ""),
    ("XDG_CACHE_HOME", "/onegate"),
    ("HOME", "/.cache/onegate"),
)


def user_sockets(environ: Mapping[str, str]) -> list[str]:
    """Paths where the user's own daemon can be, the likeliest first."""
    return [
        f"{base.rstrip('/')}{below}/onegate.sock"
        for variable, below in _USER_PLACES
        if (base := environ.get(variable, "")).startswith("/")
    ]


def socket_to_connect(environ: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """The path a client uses: `ONEGATE_SOCKET`, else the user's own daemon, else the system's."""
    if given := environ.get(SOCKET_ENV):
        return given
    return next((path for path in user_sockets(environ) if exists(path)), SYSTEM_SOCKET)
