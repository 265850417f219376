"""What every connection works with, and the one account of a request's end."""

from typing import Any

import msgspec
import pytest

from onegate.engines.base import PoolState
from onegate.protocol.errors import Reason
from onegate.server.live import Mute
from onegate.server.outcome import Outcome

Box = Any  # of conftest.py


def opened(box: Box, verb: str, class_: str = "batch") -> Any:
    client = Mute(principal="uid:7", uid=7)
    live = box.services.live.open(client=client, id=1, verb=verb, arrived_ns=0)
    live.class_ = class_
    return live


async def test_pools_by_model_the_first_one_first(box: Box) -> None:
    tiny = box.engine.infos["tiny"]
    box.engine.infos["other"] = msgspec.structs.replace(tiny, model="other")
    assert list(box.services.pools()) == ["tiny", "other"]


async def test_a_class_by_name(box: Box) -> None:
    assert box.services.class_config("batch").rank == 2


async def test_an_end_is_counted_logged_and_forgotten(box: Box) -> None:
    live = opened(box, "generate")
    live.prompt_tok, live.output_tok, live.granted_ns = 5, 3, 2_000_000
    box.services.account(live, Outcome.FAILED, Reason.ENGINE_FAILED)
    assert len(box.services.live) == 0
    assert box.outcomes() == {Outcome.FAILED: 1}
    (line,) = box.ends()
    assert (
        line.items()
        >= {
            "rid": "b-1",
            "uid": "7",
            "class": "batch",
            "outcome": "failed",
            "reason": "engine_failed",
            "queue_ms": "2",
            "prompt_tok": "5",
            "out_tok": "3",
        }.items()
    )
    assert "ttft_ms" not in line


@pytest.mark.parametrize(("verb", "counted"), [("generate", 1), ("lease", 1), ("count", 0)])
async def test_only_what_queues_is_counted(box: Box, verb: str, counted: int) -> None:
    box.services.account(opened(box, verb), Outcome.FINISHED, None)
    assert len(box.services.live) == 0
    assert sum(box.outcomes().values()) == len(box.ends()) == counted


async def test_an_end_is_counted_for_whoever_asked(box: Box) -> None:
    live = opened(box, "generate")
    live.prompt_tok, live.output_tok = 5, 3
    live.arrived_ns, live.granted_ns = 1_000_000, 3_000_000
    box.services.account(live, Outcome.FINISHED, None)
    (row,) = box.services.usage.rows()
    assert (row.principal, row.class_, row.finished) == ("uid:7", "batch", 1)
    assert (row.prompt_tok, row.output_tok, row.queue_ms) == (5, 3, 2)
    assert row.run_ms > 0


async def test_what_was_cached_done_again_and_lost_is_counted_and_logged(box: Box) -> None:
    live = opened(box, "generate")
    live.prompt_tok, live.granted_ns, live.predicted_ns = 9, 3_000_000, 7_000_000
    live.work.cached_tok, live.work.recomputed_tok, live.work.discarded_tok = 4, 5, 6
    box.services.account(live, Outcome.FINISHED, None)
    (row,) = box.services.usage.rows()
    found = row.told_tok, row.cached_tok, row.recomputed_tok, row.discarded_tok
    assert found == (9, 4, 5, 6)
    (line,) = box.ends()
    wanted = {"cached_tok": "4", "recomputed_tok": "5", "discarded_tok": "6", "predicted_ms": "7"}
    assert line.items() >= wanted.items()


async def test_a_line_does_not_say_what_is_not_known_or_did_not_happen(box: Box) -> None:
    box.services.account(opened(box, "generate"), Outcome.FINISHED, None)
    (line,) = box.ends()
    assert not line.keys() & {"cached_tok", "recomputed_tok", "discarded_tok", "predicted_ms"}


async def test_what_never_started_has_waited_and_used_no_prompt(box: Box) -> None:
    live = opened(box, "generate")
    live.prompt_tok = 5
    box.services.account(live, Outcome.EXPIRED, Reason.TTFT_DEADLINE_EXCEEDED)
    (row,) = box.services.usage.rows()
    assert (row.expired, row.prompt_tok, row.run_ms) == (1, 0, 0)
    assert row.queue_ms > 0


async def test_a_count_uses_nothing(box: Box) -> None:
    box.services.account(opened(box, "count"), Outcome.FINISHED, None)
    assert box.services.usage.rows() == []


async def test_a_refusal_on_arrival_is_counted_in_both_places(box: Box) -> None:
    box.services.refused_on_arrival("uid:7", "batch", Reason.INVALID)
    assert box.outcomes() == {Outcome.REJECTED: 1}
    (row,) = box.services.usage.rows()
    assert (row.principal, row.class_, row.rejected) == ("uid:7", "batch", 1)


async def test_a_released_pool_is_seen_as_one(box: Box) -> None:
    box.services.release.in_force = True
    assert box.services.pools()["tiny"].state is PoolState.RELEASED
