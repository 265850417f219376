"""What a server is doing now, as far as it says."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from onegate.engines.base import EngineError, EngineMalformed, EngineSnapshot
from onegate.engines.http.documents import document
from onegate.engines.http.link import HttpLink, HttpStatus
from onegate.engines.openai.exposition import gauges
from onegate.engines.openai.flavours import Flavour
from onegate.engines.openai.shapes import Slot


@dataclass(frozen=True)
class Figures:
    """Running and waiting requests by model; empty where the server does not say.

    `tasks` are the numbers of what runs, of which no two are ever the same; None where it gives
    none.
    """

    of: Mapping[str, EngineSnapshot] = field(default_factory=dict)
    tasks: frozenset[int] | None = None


async def figures(link: HttpLink, flavour: Flavour, models: Collection[str]) -> Figures:
    """Of these models, which are all that are served. Raises EngineErrors."""
    try:
        if flavour.counts == "slots" and len(models) == 1:
            return await _slots(link, next(iter(models)))
        if flavour.counts == "vllm":
            found = _vllm(await link.get("/metrics"))
            # Adapters and second names are counted under the first one, and cannot be told apart.
            return Figures(found) if found.keys() >= set(models) else Figures()
    except HttpStatus:
        return Figures()
    return Figures()


async def _slots(link: HttpLink, model: str) -> Figures:
    slots = document(await link.get("/slots"), list[Slot])
    deferred: int | None = None
    try:
        name = "llamacpp:requests_deferred"
        for _, value in gauges(await link.get("/metrics"), {name}).get(name, ()):
            deferred = int(value)
    except (HttpStatus, EngineMalformed):
        deferred = None  # it was started without --metrics
    busy = [slot.id_task for slot in slots if slot.is_processing]
    tasks = [number for number in busy if number is not None]
    return Figures(
        {model: EngineSnapshot(model=model, seats_used=len(busy), waiting=deferred)},
        tasks=frozenset(tasks) if len(tasks) == len(busy) else None,
    )


def _vllm(text: bytes) -> dict[str, EngineSnapshot]:
    names = {
        "vllm:num_requests_running": "seats_used",
        "vllm:num_requests_waiting": "waiting",
    }
    sums: dict[str, dict[str, int]] = {}
    for name, rows in gauges(text, set(names)).items():
        for labels, value in rows:
            # Several engines behind one server are one pool.
            counted = sums.setdefault(labels.get("model_name", ""), {})
            counted[names[name]] = counted.get(names[name], 0) + int(value)
    return {
        model: EngineSnapshot(
            model=model, seats_used=counted.get("seats_used"), waiting=counted.get("waiting")
        )
        for model, counted in sums.items()
    }


async def takes_priority(link: HttpLink, flavour: Flavour, model: str) -> bool | None:
    """Whether the server orders what waits by a priority: it is asked for one token with one.

    Only a yes counts. None where it was too busy to say, and is to be asked again.
    """
    if flavour.priority is None:
        return False
    body = {
        "model": model,
        "prompt": "a",
        "max_tokens": 1,
        "priority": 1 if flavour.name == "vllm" else 0.5,
    }
    try:
        await link.post("/v1/completions", msgspec.json.encode(body), timeout_s=10.0)
    except HttpStatus as status:
        return None if status.status in (429, 503) else False
    except EngineError:
        return None
    return True
