"""Metrics of a broker: plain integers and lists that are cheap to update, and are read only at a scrape.

There is no global state: the broker creates one `BrokerMetrics` and passes it on, and `exposition` renders
it. Every label has a bounded number of values. Loop thread only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.errors import ErrorCode

SECONDS_BOUNDS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
MAX_REASONS = 50
MAX_THROTTLED_USERS = 100
OTHER = "other"


class Histogram:
    """Histogram of durations in seconds. An observation costs one bisection and two additions."""

    __slots__ = ("counts", "total_seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(SECONDS_BOUNDS) + 1)
        self.total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        self.total_seconds += seconds

    def copy(self) -> Histogram:
        copied = Histogram()
        copied.counts = self.counts[:]
        copied.total_seconds = self.total_seconds
        return copied


class CappedCounter:
    """Counter for each value of a label. When `limit` values are known, further values are counted as `other`."""

    __slots__ = ("_limit", "counts")

    def __init__(self, limit: int) -> None:
        self.counts: dict[str, int] = {}
        self._limit = limit

    def increment(self, value: str) -> None:
        counts = self.counts
        if value not in counts and len(counts) >= self._limit:
            value = OTHER
        counts[value] = counts.get(value, 0) + 1


@dataclass(frozen=True, slots=True)
class ScrapedMetric:
    """Metric whose value is obtained by calling `read` at each scrape."""

    name: str
    doc: str
    read: Callable[[], float]
    is_counter: bool


@dataclass(frozen=True, slots=True)
class TopicSize:
    topic: str
    partitions: int
    size_bytes: int
    appended_records: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    group: str
    topic: str
    partition: int
    lag: int


class BrokerMetrics:
    def __init__(self, api_names: Mapping[int, str], max_topics: int) -> None:
        self.api_names = api_names
        self.max_topics = max_topics
        self.requests: dict[int, Histogram] = {key: Histogram() for key in api_names}
        self.flushes = Histogram()
        self.event_loop_lag = Histogram()
        self.failovers = Histogram()
        self.webhook_calls = Histogram()
        self.delivery_lateness = Histogram()
        """Time between the due time of a delayed message and its delivery."""
        self.refusals = CappedCounter(MAX_REASONS)
        self.http_requests: dict[str, Histogram] = {}
        """Durations of HTTP requests by endpoint. The number of endpoints is small."""
        self.http_answers = CappedCounter(MAX_REASONS)
        self.throttled_users = CappedCounter(MAX_THROTTLED_USERS)
        """Number of throttled requests by user."""
        self.produce_errors: dict[ErrorCode, int] = {}
        self.readings: list[ScrapedMetric] = []
        self.topic_sizes: Callable[[], Iterable[TopicSize]] = tuple
        """Returns the sizes of topics or of their partitions. Several entries of one topic are added up."""
        self.group_states: Callable[[], Mapping[str, int]] = dict
        self.group_lags: Callable[[], Iterable[GroupLag]] = tuple

    def refused(self, reason: str) -> None:
        """Count a refused connection or frame. `reason` is one of our constants, never a client's text."""
        self.refusals.increment(reason)

    def produce_failed(self, code: ErrorCode) -> None:
        """Count one partition of a Produce request that was refused with this error code."""
        self.produce_errors[code] = self.produce_errors.get(code, 0) + 1

    def add_gauge(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Add a gauge whose value `read` returns at each scrape."""
        self.readings.append(ScrapedMetric(name, doc, read, is_counter=False))

    def add_counter(self, name: str, doc: str, read: Callable[[], float]) -> None:
        """Add a counter whose value `read` returns at each scrape. Its name gets the suffix `_total`."""
        self.readings.append(ScrapedMetric(name, doc, read, is_counter=True))
