"""Number and text types of the configuration, each with both bounds.

Every number is bounded above and below, so neither NaN nor infinity nor an absurd value gets past
the reader: a comparison with NaN is false, and infinity is above every bound.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta

# sizeof(sockaddr_un.sun_path) less the terminating zero, unix(7).
MAX_SOCKET_PATH_BYTES = 107


def why(reason: str, unit: str = "", *, restart: bool = False) -> Meta:
    """What a key is for. `restart`: a reload cannot change it."""
    extra: dict[str, Any] = {"unit": unit, "restart": restart}
    return Meta(description=reason, extra=extra)


def _form(text: str) -> Meta:
    """How the allowed text reads to a person; a regular expression is not an explanation."""
    return Meta(extra={"form": text})


Count = Annotated[int, Meta(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, Meta(ge=0, le=1_000_000)]
Tok = Annotated[int, Meta(ge=1, le=100_000_000)]
DailyTok = Annotated[int, Meta(ge=1, le=1_000_000_000_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=31_536_000_000)]  # a year
MillisecondsOrZero = Annotated[int, Meta(ge=0, le=31_536_000_000)]
Seconds = Annotated[float, Meta(ge=0.001, le=31_536_000.0)]  # a year
CostMs = Annotated[float, Meta(ge=0.0, le=3_600_000.0)]
Bytes = Annotated[int, Meta(ge=1024, le=1 << 40)]
Share = Annotated[float, Meta(gt=0.0, le=1.0)]
ShareOrZero = Annotated[float, Meta(ge=0.0, le=1.0)]
FloorShare = Annotated[float, Meta(ge=0.0, le=0.9)]
Rank = Annotated[int, Meta(ge=0, le=1000)]
# (uid_t)-1 means "no change" to the kernel and is nobody's.
Id = Annotated[int, Meta(ge=0, le=0xFFFF_FFFE)]

Line = Annotated[
    str,
    Meta(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f]+\Z"),
    _form("one line of text"),
]
Name = Annotated[
    str,
    Meta(max_length=32, pattern=r"^[a-z][a-z0-9_-]*\Z"),
    _form("a name of a-z, 0-9, - and _ that starts with a letter, at most 32 characters"),
]
AbsolutePath = Annotated[
    str,
    Meta(max_length=4096, pattern=r"^/[^\x00-\x1f\x7f]+\Z"),
    _form("an absolute path"),
]
Glob = Annotated[
    str,
    Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f/]+\Z"),
    _form("a name, or a pattern with * and ?"),
]
AppGlob = Annotated[
    str,
    Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+\Z"),
    _form("a name, or a pattern with * and ?"),
]
# The text of each is judged by `window.parse`, which says what is wrong with it.
Windows = Annotated[
    tuple[Annotated[str, Meta(max_length=255)], ...],
    Meta(max_length=16),
    _form('an array of times such as "22:00-06:00" or "sat,sun 00:00-24:00", at most 16'),
]
RefuseOn = Annotated[
    tuple[Literal["boundary", "truncated"], ...],
    Meta(max_length=2),
    _form('an array of "boundary", "truncated", or empty'),
]
# Read and write for the owner is the least that lets anybody connect; execute means nothing here.
SocketMode = Annotated[
    int, Meta(ge=0o600, le=0o666), _form("a file mode from 0o600 to 0o666, written 0o660")
]
