"""Metrics of a supervisor for Prometheus: statistics of the pipelines that it owns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

States = Callable[[], Mapping[str, Mapping[str, Any]]]

_COUNTERS = {
    "penstock_pipeline_rows": ("Rows written to the targets of a pipeline.", "rows", 1.0),
    "penstock_pipeline_runs": ("Runs of a pipeline.", "runs", 1.0),
    "penstock_pipeline_failures": ("Failed runs of a pipeline.", "failures", 1.0),
}
_GAUGES = {
    "penstock_pipeline_lag_records": (
        "Records of the source that are not processed yet.",
        "lag_records",
        1.0,
    ),
    "penstock_pipeline_lag_seconds": (
        "Age of the oldest record that is not processed yet.",
        "lag_seconds",
        1.0,
    ),
    "penstock_pipeline_bytes": ("Bytes of the source that were processed.", "bytes", 1.0),
    "penstock_pipeline_last_success_seconds": (
        "Time of the last success since 1970.",
        "last_success_ms",
        0.001,
    ),
    "penstock_pipeline_duration_seconds": ("Duration of the last run or batch.", "duration_ms", 0.001),
}
_RUNNING = ("running", "waiting", "starting")


class PipelineCollector:
    def __init__(self, states: States) -> None:
        self._states = states

    def collect(self) -> Iterator[Metric]:
        states = self._states()
        for name, (doc, field, factor) in _COUNTERS.items():
            counter = CounterMetricFamily(name, doc, labels=["pipeline"])
            for pipeline, state in states.items():
                counter.add_metric([pipeline], float(state.get(field) or 0) * factor)
            yield counter
        for name, (doc, field, factor) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, doc, labels=["pipeline"])
            for pipeline, state in states.items():
                if state.get(field) is not None:
                    gauge.add_metric([pipeline], float(state[field]) * factor)
            yield gauge
        healthy = GaugeMetricFamily(
            "penstock_pipeline_healthy", "1 unless the last run failed or is late.", labels=["pipeline"]
        )
        for pipeline, state in states.items():
            healthy.add_metric([pipeline], float(state.get("state") in _RUNNING))
        yield healthy


def serve_metrics(states: States, host: str, port: int) -> int:
    """Serve `/metrics`. Returns the port, which the operating system chooses if `port` is 0."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PipelineCollector(states))
    server, _ = start_http_server(port, host, registry)
    return int(server.server_port)
