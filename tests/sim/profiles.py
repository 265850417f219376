"""The machines that policies are measured on."""

import tomllib
from pathlib import Path

from tests.sim.engine import Machine

from onegate.admission.model import PoolCapacity, Reservation

CONTEXT_TOK = 32_768
# Where a prefix cache is told of, it is as large as the cache of the sequences themselves.
CACHE_TOK = 262_144
HOST = Path(__file__).with_name("host.toml")


def slots(seats: int = 8) -> Machine:
    """A context per seat, whose prompts do not delay the other seats."""
    return Machine(PoolCapacity(seats, CONTEXT_TOK, Reservation.PER_SLOT), own_prefill=True)


def shared_slots(seats: int = 8) -> Machine:
    """A context per seat, as llama-server has: pieces of prompts are part of everybody's steps."""
    return Machine(PoolCapacity(seats, CONTEXT_TOK, Reservation.PER_SLOT, max_step_tok=512))


def seats(count: int = 32) -> Machine:
    """Continuous batching with a cache that grows, as vLLM has."""
    return Machine(
        PoolCapacity(
            count,
            CONTEXT_TOK,
            Reservation.GROW,
            kv_tok=count * 16_384,
            max_step_tok=2048,
            block_tok=16,
        )
    )


def host() -> Machine:
    """The embedded engine as `calibrate` has measured it."""
    figures = tomllib.loads(HOST.read_text(encoding="utf-8"))
    return Machine(
        PoolCapacity(
            reservation=Reservation(figures["capacity"].pop("reservation")), **figures["capacity"]
        ),
        **figures["cost"],
    )


PROFILES = {
    "slots": slots,
    "shared-slots": shared_slots,
    "slots-1": lambda: slots(1),
    "slots-2": lambda: slots(2),
    "seats": seats,
    "host": host,
}
