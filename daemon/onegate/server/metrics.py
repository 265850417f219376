"""The daemon's figures in Prometheus text format.

Every sample is read from where it already lives when it is asked for; nothing is counted twice.
Label values come from closed sets: class names of the configuration, outcomes, reasons, models.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from onegate.protocol.status import Status
from onegate.server.account import Accounts


class _Figures(Collector):
    def __init__(self, accounts: Accounts, status: Callable[[], Status]) -> None:
        self._accounts = accounts
        self._status = status

    def collect(self) -> Iterable[Metric]:
        yield from self._requests()
        yield from self._gauges(self._status())

    def _requests(self) -> Iterable[Metric]:
        ended = CounterMetricFamily(
            "onegate_requests", "Requests that ended", labels=["class", "outcome", "reason"]
        )
        tokens = CounterMetricFamily(
            "onegate_tokens", "Tokens of ended requests", labels=["class", "kind"]
        )
        prompts = CounterMetricFamily(
            "onegate_prompt_tokens",
            "Prompt tokens of ended requests by what the engine said of them",
            labels=["class", "source"],
        )
        preempted = CounterMetricFamily(
            "onegate_preempted", "Times that one was stopped to make room", labels=["class"]
        )
        recomputed = CounterMetricFamily(
            "onegate_recomputed_tokens",
            "Prompts and kept output that were computed again after a stop or an engine's death",
            labels=["class"],
        )
        discarded = CounterMetricFamily(
            "onegate_discarded_tokens",
            "Output of runs that could not be gone on from after a stop or an engine's death",
            labels=["class"],
        )
        times = {
            name: HistogramMetricFamily(f"onegate_{name}_seconds", text, labels=["class"])
            for name, text in (
                ("queue", "Arrival to permit"),
                ("ttft", "Arrival to first token out"),
                ("e2e", "Arrival to end"),
                ("predicted_ttft_error", "First token of those that waited, beyond its prediction"),
            )
        }
        for class_, account in self._accounts.classes.items():
            with_reason = dict.fromkeys(account.outcomes, 0)
            for (outcome, reason), count in account.reasons.items():
                with_reason[outcome] += count
                ended.add_metric([class_, outcome.value, reason.value], count)
            for outcome, count in account.outcomes.items():
                if plain := count - with_reason[outcome]:
                    ended.add_metric([class_, outcome.value, ""], plain)
            tokens.add_metric([class_, "prompt"], account.prompt_tok)
            tokens.add_metric([class_, "output"], account.output_tok)
            prompts.add_metric([class_, "cached"], account.cached_tok)
            prompts.add_metric([class_, "computed"], account.told_tok - account.cached_tok)
            prompts.add_metric([class_, "unknown"], account.prompt_tok - account.told_tok)
            preempted.add_metric([class_], account.preempted)
            recomputed.add_metric([class_], account.recomputed_tok)
            discarded.add_metric([class_], account.discarded_tok)
            for family, histogram in zip(
                times.values(),
                (account.queue, account.ttft, account.e2e, account.ttft_error),
                strict=True,
            ):
                family.add_metric([class_], histogram.buckets(), histogram.sum_s)
        lowered = CounterMetricFamily(
            "onegate_lowered",
            "Requests that were treated as a lower class for what their program does",
            labels=["class", "asked"],
        )
        for (asked, class_), count in self._accounts.lowered.items():
            lowered.add_metric([class_, asked], count)
        yield ended
        yield tokens
        yield prompts
        yield preempted
        yield recomputed
        yield discarded
        yield lowered
        yield from times.values()
        for name, text, count in (
            (
                "engine_losses",
                "Times the engine died or was given up",
                self._accounts.engine_losses,
            ),
            ("sessions_refused", "Connections refused", self._accounts.sessions_refused),
            (
                "protocol_offences",
                "Connections ended for an offence",
                self._accounts.protocol_offences,
            ),
            (
                "usage_write_failures",
                "Times that what was used could not be written",
                self._accounts.usage_write_failures,
            ),
        ):
            yield CounterMetricFamily(f"onegate_{name}", text, value=count)

    def _gauges(self, status: Status) -> Iterable[Metric]:
        gate = status.gate
        for name, text, value in (
            ("in_flight", "Permits held", gate.in_flight),
            ("queued", "Requests waiting", gate.queued),
            ("queued_tok", "Tokens waiting", gate.queued_tok),
            ("inbound_bytes", "Bytes of unfinished frames and live requests", gate.inbound_bytes),
            ("sessions", "Connections", gate.sessions),
        ):
            yield GaugeMetricFamily(f"onegate_{name}", text, value=value)
        for name, text, field in (
            ("seats", "Sequences the engine runs at once", "seats"),
            ("seats_used", "Seats in use", "seats_used"),
            (
                "seats_quarantined",
                "Seats whose end the engine has not confirmed",
                "seats_quarantined",
            ),
            ("kv_tok", "Tokens that fit into the KV cache", "kv_tok"),
            ("kv_tok_used", "Tokens charged against the KV cache", "kv_tok_used"),
            (
                "ledger_minus_engine_tok",
                "What we charge beyond what the engine says",
                "ledger_minus_engine_tok",
            ),
            ("restarts", "Engine restarts", "restarts"),
        ):
            family = GaugeMetricFamily(f"onegate_pool_{name}", text, labels=["model"])
            for pool in status.pools:
                if (figure := getattr(pool, field)) is not None:
                    family.add_metric([pool.model], figure)
            yield family
        family = GaugeMetricFamily(
            "onegate_step_model_error_ratio",
            "Median error of the predicted step times, as a part of what was seen",
            labels=["model"],
        )
        for pool in status.pools:
            if pool.step_model is not None and pool.step_model.error is not None:
                family.add_metric([pool.model], pool.step_model.error)
        yield family
        family = GaugeMetricFamily("onegate_class_queued", "Requests waiting", labels=["class"])
        for class_ in status.classes:
            family.add_metric([class_.name], class_.queued)
        yield family


class Metrics:
    """A registry of our own, so that nothing of the process default appears in it."""

    def __init__(self, accounts: Accounts, status: Callable[[], Status]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Figures(accounts, status))

    def text(self) -> str:
        """All figures now, in Prometheus text format."""
        return generate_latest(self._registry).decode()
