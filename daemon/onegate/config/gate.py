"""`[gate]`: the socket, and every limit that is not one class's own."""

from typing import Annotated

from msgspec import Struct

from onegate.config.units import (
    AbsolutePath,
    Bytes,
    Count,
    CountOrZero,
    Line,
    MillisecondsOrZero,
    Seconds,
    ShareOrZero,
    SocketMode,
    Tok,
    why,
)

MIB = 1024 * 1024


class GateConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gate]`: what the daemon accepts, and how much of it."""

    socket_path: Annotated[
        AbsolutePath | None,
        why("where it listens; `none`: the usual place of a system or of a user", restart=True),
    ] = None
    socket_mode: Annotated[SocketMode, why("who may connect", restart=True)] = 0o660
    socket_group: Annotated[
        Line | None,
        why("group whose members may connect; `none`: the daemon's own", restart=True),
    ] = None
    socket_backlog: Annotated[
        Count,
        why("connects that wait; past it the kernel refuses at once", "connections", restart=True),
    ] = 1024

    max_in_flight: Annotated[
        Count, why("permits at a time; below the engine's seats it wastes them", "requests")
    ] = 64
    max_queued_tok: Annotated[
        Tok,
        why(
            "all classes together, of which a newcomer meets those of its rank or better: a longer "
            "queue is only a later refusal, and what waits below never keeps anybody out",
            "tokens",
        ),
    ] = 262_144
    max_queued_requests: Annotated[
        Count,
        why(
            "a guard for memory, counted like max_queued_tok; the queue is measured in tokens",
            "requests",
        ),
    ] = 4096
    look_ahead: Annotated[
        CountOrZero,
        why(
            "requests sent beyond the engine's seats: what waits there can't be reordered",
            "requests",
        ),
    ] = 0
    floor_window_s: Annotated[
        Seconds, why("the sliding window that floor shares are kept over", "s")
    ] = 30.0
    floor_quantum_tok: Annotated[
        Tok, why("a floor grant is left in peace for this many, or it never finishes", "tokens")
    ] = 256
    preempt_delta_ms: Annotated[
        MillisecondsOrZero,
        why("nobody is stopped for a request that probably gets a seat within this anyway", "ms"),
    ] = 250
    recompute_budget: Annotated[
        ShareOrZero,
        why("of a class's tokens, what preemption may have computed a second time", "share"),
    ] = 0.15
    probe_after_refusals: Annotated[
        Count,
        why(
            "refusals by prediction in a row, after which one request is let in to see", "requests"
        ),
    ] = 8
    ticket_grace: Annotated[
        ShareOrZero,
        why("room beyond a full queue for those who come back when they were told to", "share"),
    ] = 0.25

    sessions_per_uid: Annotated[
        Count, why("one user's programs leave connections for the others", "connections")
    ] = 64
    sessions_total: Annotated[
        Count, why("below the file descriptors the daemon has", "connections")
    ] = 1024
    in_flight_per_session: Annotated[Count, why("live requests of one connection", "requests")] = (
        256
    )
    inbound_bytes: Annotated[
        Bytes,
        why("unfinished and queued requests in memory: images are bytes, not tokens", "bytes"),
    ] = 192 * MIB
    inbound_bytes_per_principal: Annotated[
        Bytes, why("of which one user gets at most this", "bytes")
    ] = 64 * MIB
    max_frame_bytes: Annotated[
        Bytes, why("checked before anything of a frame is stored", "bytes")
    ] = 8 * MIB
    frame_timeout_s: Annotated[
        Seconds, why("a frame once begun must be complete, or half of one holds memory", "s")
    ] = 10.0
    hello_timeout_s: Annotated[Seconds, why("a connection that says nothing is closed", "s")] = 10.0
    write_high_water_bytes: Annotated[
        Bytes, why("past it a slow reader's own streams are held back", "bytes")
    ] = 1 * MIB
    write_buffer_max_bytes: Annotated[
        Bytes, why("past it a slow reader's requests are aborted", "bytes")
    ] = 4 * MIB
    unread_bytes: Annotated[
        Bytes, why("of all connections together; past it whoever has most of it is cut", "bytes")
    ] = 32 * MIB
    unread_bytes_per_principal: Annotated[
        Bytes, why("of which one user's connections get at most this", "bytes")
    ] = 16 * MIB
    drain_timeout_s: Annotated[
        Seconds,
        why("at shutdown, or when the device is lent, what runs may finish for this long", "s"),
    ] = 30.0
