"""A broker's metrics as Prometheus' text. Imported late: the library takes time to load.

Collecting reads the broker's state and belongs on the loop; turning it into text takes longer and may run
in a pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from penstock.observability.metrics import OTHER, SECONDS_BOUNDS, BrokerMetrics, Histogram, TopicSize

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_BUCKETS = (*(repr(bound) for bound in SECONDS_BOUNDS), "+Inf")


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def collect(metrics: BrokerMetrics) -> list[Metric]:
    """Everything the metrics say at this moment."""
    return [*_requests(metrics), *_process(metrics), *_readings(metrics), *_topics(metrics)]


def render(families: Sequence[Metric]) -> bytes:
    """The text of what was collected, and of the process itself (processor time, memory, open files)."""
    registry = CollectorRegistry()
    registry.register(_Collected(families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def _requests(metrics: BrokerMetrics) -> Iterator[Metric]:
    family = HistogramMetricFamily(
        "penstock_request_seconds", "Time from a complete request to its answer, by API.", labels=["api"]
    )
    for key, histogram in metrics.requests.items():
        _add_histogram(family, [metrics.api_names[key]], histogram)
    yield family
    errors = CounterMetricFamily(
        "penstock_produce_errors",
        "Partitions of Produce requests that were refused, by error.",
        labels=["error"],
    )
    for code, count in metrics.produce_errors.items():
        errors.add_metric([code.name.upper()], count)
    yield errors
    refusals = CounterMetricFamily(
        "penstock_refused", "Connections that were refused or closed for what they sent.", labels=["reason"]
    )
    for reason, count in metrics.refusals.counts.items():
        refusals.add_metric([reason], count)
    yield refusals


def _process(metrics: BrokerMetrics) -> Iterator[Metric]:
    flushes = HistogramMetricFamily(
        "penstock_flush_seconds", "Time of a flush round: making appended records durable."
    )
    _add_histogram(flushes, [], metrics.flushes)
    yield flushes
    lag = HistogramMetricFamily(
        "penstock_event_loop_lag_seconds", "How late the event loop ran what was due."
    )
    _add_histogram(lag, [], metrics.event_loop_lag)
    yield lag


def _readings(metrics: BrokerMetrics) -> Iterator[Metric]:
    for reading in metrics.readings:
        kind = CounterMetricFamily if reading.is_counter else GaugeMetricFamily
        yield kind(reading.name, reading.doc, value=reading.read())


def _topics(metrics: BrokerMetrics) -> Iterator[Metric]:
    partitions = GaugeMetricFamily("penstock_topic_partitions", "Partitions, by topic.", labels=["topic"])
    sizes = GaugeMetricFamily("penstock_topic_log_bytes", "Bytes stored, by topic.", labels=["topic"])
    records = CounterMetricFamily(
        "penstock_topic_appended_records",
        "Offsets given out since the topic was made, by topic.",
        labels=["topic"],
    )
    for size in _capped(metrics.topic_sizes(), metrics.max_topics):
        partitions.add_metric([size.topic], size.partitions)
        sizes.add_metric([size.topic], size.size_bytes)
        records.add_metric([size.topic], size.appended_records)
    yield from (partitions, sizes, records)


def _capped(sizes: Iterable[TopicSize], limit: int) -> Iterator[TopicSize]:
    """The first topics by name, and all others as one that no topic can be called."""
    ordered = sorted(sizes, key=lambda size: size.topic)
    yield from ordered[:limit]
    rest = ordered[limit:]
    if rest:
        yield TopicSize(
            f"({OTHER})",
            sum(size.partitions for size in rest),
            sum(size.size_bytes for size in rest),
            sum(size.appended_records for size in rest),
        )


def _add_histogram(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    buckets = []
    running = 0
    for bound, count in zip(_BUCKETS, histogram.counts, strict=True):
        running += count
        buckets.append((bound, running))
    family.add_metric(labels, buckets, histogram.total_seconds)
