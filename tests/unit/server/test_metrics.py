"""The figures in Prometheus text format, read back by its own parser."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from onegate.admission.model import StepView
from onegate.engines.base import EngineSnapshot
from onegate.protocol import messages as m
from onegate.server import metrics

Box = Any  # of conftest.py
TABLE = Path(metrics.__file__).with_name("METRICS.md")
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(box: Box) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(box.services.metrics.text())
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float | None:
    wanted = {key.rstrip("_"): text for key, text in labels.items()}
    return found.get((f"onegate_{name}", tuple(sorted(wanted.items()))))


async def test_requests_by_how_they_ended(box: Box) -> None:
    client = box.greeted()
    for id in (1, 2):
        run = await box.run(client, id)
        run.accept(prompt_tok=9)
        run.chunk("Because.", n_tok=3)
        run.finish()
        await box.quiet()
        box.free(run)
    run = await box.run(client, 3)
    client.say(m.Cancel(id=3))
    await box.ask(client, 4, model="huge")
    await box.ask(client, 5, model="huge")
    found = samples(box)
    ended = {"class_": "loop"}
    assert value(found, "requests_total", outcome="finished", reason="", **ended) == 2
    assert value(found, "requests_total", outcome="cancelled", reason="cancelled", **ended) == 1
    assert value(found, "requests_total", outcome="rejected", reason="wrong_model", **ended) == 2
    assert value(found, "requests_total", outcome="rejected", reason="", **ended) is None
    assert value(found, "tokens_total", kind="output", **ended) == 6
    prompt = value(found, "tokens_total", kind="prompt", **ended)
    assert prompt is not None
    assert prompt >= 18
    assert value(found, "queue_seconds_count", **ended) == 3
    assert value(found, "ttft_seconds_count", **ended) == 2
    assert value(found, "e2e_seconds_count", **ended) == 5
    assert value(found, "e2e_seconds_bucket", le="+Inf", **ended) == 5


async def test_what_holds_now(box: Box) -> None:
    client = box.greeted()
    await box.run(client, 1)
    await box.run(client, 2)
    await box.ask(client, 3)
    found = samples(box)
    assert value(found, "in_flight") == 2
    assert value(found, "queued") == 1
    assert value(found, "sessions") == 1
    assert value(found, "pool_seats", model="tiny") == 2
    assert value(found, "pool_seats_used", model="tiny") == 2
    assert value(found, "pool_kv_tok", model="tiny") == 8192
    assert value(found, "class_queued", class_="loop") == 1
    assert value(found, "class_queued", class_="batch") == 0
    inbound = value(found, "inbound_bytes")
    assert inbound is not None
    assert inbound > 0


async def test_what_is_not_known_is_left_out(box: Box) -> None:
    assert value(samples(box), "pool_ledger_minus_engine_tok", model="tiny") is None
    box.engine.snapshots["tiny"] = EngineSnapshot(model="tiny", kv_tok_used=0)
    assert value(samples(box), "pool_ledger_minus_engine_tok", model="tiny") == 0


async def test_counts_of_the_daemon(box: Box) -> None:
    box.services.accounts.engine_losses = 2
    box.services.accounts.sessions_refused = 3
    box.services.accounts.protocol_offences = 4
    box.services.accounts.usage_write_failures = 5
    found = samples(box)
    assert value(found, "engine_losses_total") == 2
    assert value(found, "sessions_refused_total") == 3
    assert value(found, "protocol_offences_total") == 4
    assert value(found, "usage_write_failures_total") == 5
    assert value(found, "pool_restarts", model="tiny") == 2


async def test_what_was_stopped_and_what_was_predicted(box: Box) -> None:
    batch = box.services.accounts.of("batch")
    batch.preempted, batch.discarded_tok, batch.recomputed_tok = 2, 7, 9
    box.services.accounts.of("loop").ttft_error.add(-0.2)
    found = samples(box)
    assert value(found, "preempted_total", class_="batch") == 2
    assert value(found, "preempted_total", class_="loop") == 0
    assert value(found, "discarded_tokens_total", class_="batch") == 7
    assert value(found, "recomputed_tokens_total", class_="batch") == 9
    error = "predicted_ttft_error_seconds_bucket"
    assert value(found, error, class_="loop", le="-0.25") == 0
    assert value(found, error, class_="loop", le="-0.1") == 1
    assert value(found, error, class_="loop", le="+Inf") == 1
    assert value(found, error, class_="batch", le="+Inf") == 0


async def test_prompts_by_what_the_engine_said_of_them(box: Box) -> None:
    batch = box.services.accounts.of("batch")
    batch.prompt_tok, batch.told_tok, batch.cached_tok = 100, 70, 30
    found = samples(box)
    sources = {"cached": 30, "computed": 40, "unknown": 30}
    for source, tok in sources.items():
        assert value(found, "prompt_tokens_total", class_="batch", source=source) == tok


async def test_how_wrong_the_step_times_were_once_it_is_known(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert value(samples(box), "step_model_error_ratio", model="tiny") is None
    view = box.gate.view()
    known = StepView(1e6, None, 1e5, 0.04, 99, 1)
    for pace, expected in ((known, 0.04), (replace(known, error=None), None)):
        pools = (replace(view.pools[0], pace=pace),)
        monkeypatch.setattr(box.gate, "view", lambda pools=pools: replace(view, pools=pools))
        assert value(samples(box), "step_model_error_ratio", model="tiny") == expected


async def test_every_figure_is_described_and_only_these(box: Box) -> None:
    """The table names each, and its labels; a figure that is not known has no sample yet."""
    run = await box.run(box.greeted())
    run.finish()
    await box.quiet()
    box.services.accounts.lowered["loop", "batch"] = 1
    rows = re.findall(r"^\| `onegate_(\w+)` \|(.*?) \| ", TABLE.read_text("utf-8"), re.MULTILINE)
    described = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert len(described) == len(rows)
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(box.services.metrics.text()):
        name = family.name.removeprefix("onegate_") + ("_total" * (family.type == "counter"))
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        found[name] = labels or described.get(name, set())
    assert found == described


async def test_nobody_is_named(box: Box) -> None:
    client = box.greeted(uid=4711)
    await box.run(client, prompt="a secret")
    text = box.services.metrics.text()
    assert "4711" not in text
    assert "secret" not in text


async def test_two_daemons_in_one_process_do_not_mix(make_box: Any) -> None:
    first, second = make_box(), make_box()
    await first.run(first.greeted())
    assert value(samples(first), "in_flight") == 1
    assert value(samples(second), "in_flight") == 0


@pytest.mark.parametrize("name", ["process_cpu_seconds_total", "python_info"])
async def test_nothing_of_the_process_default_appears(box: Box, name: str) -> None:
    assert name not in box.services.metrics.text()
