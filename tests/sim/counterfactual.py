"""What would have been: branches of the world in which a refused request is let in, or is not.

A branch is a fork of the process, so that it begins in exactly the state that the core was in.
Whoever comes later asks in both for an answer of one length. Otherwise chance, which lets in long
ones here and short ones there, decides how many are in time, by two or three to either side.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

from tests.sim.clients import Client, Crowd
from tests.sim.world import SECOND

from onegate.admission import arrival

# Both branches are watched until so long after its deadline: whom it made late is known by then.
AFTER_NS = 10 * SECOND
# About the mean of the answers in `overload`.
USUAL_TOK = 210
_REPORT = struct.Struct("?q")


@dataclass(frozen=True, slots=True)
class Verdict:
    """`alone`: it would have had its first token in time. `net`: how many more of all requests
    would have had theirs, itself among them; below 0 where it would have made others late.
    """

    alone: bool
    net: int


def if_let_in(crowd: Crowd, client: Client) -> Verdict:
    """What would have come of letting in one that has just been refused by prediction."""
    alone, met = _branch(lambda: _watch(crowd, client, let_in=True))
    _, met_without = _branch(lambda: _watch(crowd, client, let_in=False))
    return Verdict(alone, met - met_without)


def _watch(crowd: Crowd, client: Client, *, let_in: bool) -> tuple[bool, int]:
    """Whether this one was in time, and how many were in all, of those who had come by then."""
    box, ask = crowd.box, client.ask
    assert ask.ttft_ns is not None
    crowd.on_refused = None  # branches do not branch
    for other in crowd.clients:
        if not other.jobs:
            other.ask = replace(other.ask, output_tok=USUAL_TOK)
    ends_ns = box.now + ask.ttft_ns
    job = None
    if let_in:
        with patch.object(arrival, "too_late", return_value=None):
            job = box.submit(
                ask.class_, ask.prompt_tok, USUAL_TOK, max_tok=ask.max_tok,
                principal=ask.principal, flow=ask.flow, ttft_ns=ask.ttft_ns,
                own=ask.ttft_is_own, resume=ask.resume,
            )  # fmt: skip
    box.run_until(ends_ns + AFTER_NS)
    jobs = [one for one in box.jobs.values() if one.spec.ttft_deadline_ns is not None]
    met = [one for one in jobs if one.in_time]
    return job is not None and job in met, len(met)


def _branch(watch: Callable[[], tuple[bool, int]]) -> tuple[bool, int]:
    """Let it happen in a world of its own. Raises EOFError when that one fails."""
    here, there = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(there, _REPORT.pack(*watch()))
        finally:
            # Nothing of the branch may be seen outside it, whatever happened there.
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as report:
        found = report.read()
    os.waitpid(child, 0)
    if not found:
        raise EOFError("the branch has failed")
    alone, met = _REPORT.unpack(found)
    return alone, met
