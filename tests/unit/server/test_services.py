"""What every connection works with, and the one account of a request's end."""

from typing import Any

import msgspec
import pytest

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
