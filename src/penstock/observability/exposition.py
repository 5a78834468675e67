"""Metrics in Prometheus' text format. Imported on first use, because the library takes time to load.

A snapshot reads the broker's state on the event loop, in short steps. Rendering takes longer and runs in a
thread pool.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from penstock.observability.metrics import (
    OTHER,
    SECONDS_BOUNDS,
    BrokerMetrics,
    GroupLag,
    Histogram,
    ScrapedMetric,
    TopicSize,
)

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

_BUCKETS = (*(repr(bound) for bound in SECONDS_BOUNDS), "+Inf")


_REFUSED = "Connections that were refused, or closed because of invalid requests."
_THROTTLED = "Requests of users over a quota; users beyond the first 100 are counted together."


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Values of all metrics, copied from the broker for one scrape."""

    requests: list[tuple[str, Histogram]]
    flushes: Histogram
    event_loop_lag: Histogram
    failovers: Histogram
    delivery_lateness: Histogram
    webhook_calls: Histogram
    produce_errors: list[tuple[str, int]]
    refusals: list[tuple[str, int]]
    http_requests: list[tuple[str, Histogram]]
    http_answers: list[tuple[str, int]]
    throttled_users: list[tuple[str, int]]
    readings: list[tuple[ScrapedMetric, float]]
    topics: list[TopicSize]
    max_topics: int
    group_states: list[tuple[str, int]]
    group_lags: list[GroupLag]


def snapshot_steps(metrics: BrokerMetrics) -> Generator[None, None, MetricsSnapshot]:
    """Read all metrics in short steps. The caller can run other work between them, since there may be many
    partitions. The generator returns the snapshot.
    """
    readings: list[tuple[ScrapedMetric, float]] = []
    for reading in metrics.readings:
        readings.append((reading, reading.read()))
        yield
    topics: list[TopicSize] = []
    for size in metrics.topic_sizes():
        topics.append(size)
        yield
    group_lags: list[GroupLag] = []
    for lag in metrics.group_lags():
        group_lags.append(lag)
        yield
    return MetricsSnapshot(
        requests=[(metrics.api_names[key], histogram.copy()) for key, histogram in metrics.requests.items()],
        flushes=metrics.flushes.copy(),
        event_loop_lag=metrics.event_loop_lag.copy(),
        failovers=metrics.failovers.copy(),
        delivery_lateness=metrics.delivery_lateness.copy(),
        webhook_calls=metrics.webhook_calls.copy(),
        produce_errors=[(code.name.upper(), count) for code, count in metrics.produce_errors.items()],
        refusals=list(metrics.refusals.counts.items()),
        http_requests=[(name, histogram.copy()) for name, histogram in metrics.http_requests.items()],
        http_answers=list(metrics.http_answers.counts.items()),
        throttled_users=list(metrics.throttled_users.counts.items()),
        readings=readings,
        topics=topics,
        max_topics=metrics.max_topics,
        group_states=list(metrics.group_states().items()),
        group_lags=group_lags,
    )


def render(snapshot: MetricsSnapshot) -> bytes:
    """Text of a snapshot and of the metrics of this process (processor time, memory, open files)."""
    registry = CollectorRegistry()
    registry.register(_Families(snapshot))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def merge(texts: Mapping[str, bytes], label: str) -> bytes:
    """Merge the texts of several processes into one. `texts` has them by process name, and each sample gets that
    name as the value of `label`.
    """
    families: dict[str, Metric] = {}
    for process, text in texts.items():
        for family in text_string_to_metric_families(text.decode()):
            merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                merged.add_sample(sample.name, {**sample.labels, label: process}, sample.value)
    registry = CollectorRegistry()
    registry.register(_Merged(families.values()))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class _Families(Collector):
    def __init__(self, snapshot: MetricsSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        shown = self._snapshot
        yield _histogram(
            "request", "Time from a complete request to its response, by API.", shown.requests, "api"
        )
        yield _histogram(
            "flush", "Duration of a flush round, which makes records durable.", [("", shown.flushes)]
        )
        lag = [("", shown.event_loop_lag)]
        yield _histogram("event_loop_lag", "Delay of due callbacks on the event loop.", lag)
        yield _histogram(
            "failover",
            "Time from the loss of the connection to a failed broker until it led no partition.",
            [("", shown.failovers)],
        )
        lateness = [("", shown.delivery_lateness)]
        yield _histogram("delayed_lateness", "Time from the due time of a message to its delivery.", lateness)
        calls = [("", shown.webhook_calls)]
        yield _histogram("webhook_call", "Duration of a webhook call, with or without a response.", calls)
        yield _counter(
            "produce_errors",
            "Partitions of Produce requests that got an error.",
            shown.produce_errors,
            "error",
        )
        yield _counter("refused", _REFUSED, shown.refusals, "reason")
        yield _histogram(
            "http_request", "Time from an HTTP request to its response.", shown.http_requests, "endpoint"
        )
        yield _counter("http_answers", "Responses to HTTP requests, by status.", shown.http_answers, "status")
        yield _counter("user_throttled_requests", _THROTTLED, shown.throttled_users, "user")
        for reading, value in shown.readings:
            kind = CounterMetricFamily if reading.is_counter else GaugeMetricFamily
            yield kind(reading.name, reading.doc, value=value)
        yield from _topics(list(_capped(shown.topics, shown.max_topics)))
        yield from _groups(shown.group_states, shown.group_lags)


def _histogram(name: str, doc: str, rows: Iterable[tuple[str, Histogram]], label: str = "") -> Metric:
    family = HistogramMetricFamily(f"penstock_{name}_seconds", doc, labels=[label] if label else [])
    for value, histogram in rows:
        running = list(accumulate(histogram.counts))
        buckets = list(zip(_BUCKETS, running, strict=True))
        family.add_metric([value] if label else [], buckets, histogram.total_seconds)
    return family


def _counter(name: str, doc: str, rows: Iterable[tuple[str, int]], label: str) -> Metric:
    family = CounterMetricFamily(f"penstock_{name}", doc, labels=[label])
    for value, count in rows:
        family.add_metric([value], count)
    return family


def _topics(sizes: Sequence[TopicSize]) -> Iterator[Metric]:
    partitions = GaugeMetricFamily("penstock_topic_partitions", "Partitions, by topic.", labels=["topic"])
    stored = GaugeMetricFamily("penstock_topic_log_bytes", "Bytes stored, by topic.", labels=["topic"])
    for size in sizes:
        partitions.add_metric([size.topic], size.partitions)
        stored.add_metric([size.topic], size.size_bytes)
    yield partitions
    yield stored
    appended = [(size.topic, size.appended_records) for size in sizes]
    yield _counter(
        "topic_appended_records", "Offsets assigned since the topic was created.", appended, "topic"
    )


def _groups(states: Iterable[tuple[str, int]], lags: Iterable[GroupLag]) -> Iterator[Metric]:
    by_state = GaugeMetricFamily("penstock_groups", "Consumer groups, by state.", labels=["state"])
    for state, count in states:
        by_state.add_metric([state], count)
    yield by_state
    by_partition = GaugeMetricFamily(
        "penstock_group_lag",
        "Records that a group has not committed yet, by partition.",
        labels=["group", "topic", "partition"],
    )
    for lag in lags:
        by_partition.add_metric([lag.group, lag.topic, str(lag.partition)], lag.lag)
    yield by_partition


def _by_topic(sizes: Iterable[TopicSize]) -> Iterable[TopicSize]:
    """Add up the sizes of the partitions of each topic."""
    by_topic: dict[str, TopicSize] = {}
    for size in sizes:
        other = by_topic.get(size.topic)
        if other is not None:
            size = TopicSize(
                size.topic,
                size.partitions + other.partitions,
                size.size_bytes + other.size_bytes,
                size.appended_records + other.appended_records,
            )
        by_topic[size.topic] = size
    return by_topic.values()


def _capped(sizes: Iterable[TopicSize], limit: int) -> Iterator[TopicSize]:
    """Sizes of the first `limit` topics in the order of names, and the sum of all others under the label `(other)`,
    which is not a valid topic name.
    """
    ordered = sorted(_by_topic(sizes), key=lambda size: size.topic)
    yield from ordered[:limit]
    rest = ordered[limit:]
    if rest:
        yield TopicSize(
            f"({OTHER})",
            sum(size.partitions for size in rest),
            sum(size.size_bytes for size in rest),
            sum(size.appended_records for size in rest),
        )
