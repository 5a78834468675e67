"""Figures of topics, groups and brokers in the view of the cluster."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.model import BrokerId

RATE_SAMPLES = 6
"""Number of samples that a rate is computed over."""


class LogFigures(NamedTuple):
    """Figures of one partition, from its leader."""

    broker: BrokerId
    start: int
    end: int
    """High watermark of the partition."""
    bytes: int


class Sample(NamedTuple):
    time: float
    """Monotonic time in seconds."""
    records: int
    """Number of records ever written: the sum of the end offsets."""
    bytes: int


class Rate:
    """Records and bytes per second over the last `RATE_SAMPLES` samples."""

    __slots__ = ("_samples", "bytes", "records")

    def __init__(self) -> None:
        self.records = 0.0
        self.bytes = 0.0
        self._samples: deque[Sample] = deque(maxlen=RATE_SAMPLES)

    def add(self, sample: Sample) -> None:
        samples = self._samples
        if samples and sample.records < samples[-1].records:
            samples.clear()  # the topic was created again
        if samples and sample.bytes < samples[-1].bytes:
            # Retention has deleted segments. Lower the earlier sizes by the same number of bytes.
            removed = samples[-1].bytes - sample.bytes
            lowered = [each._replace(bytes=each.bytes - removed) for each in samples]
            samples.clear()
            samples.extend(lowered)
        samples.append(sample)
        first = samples[0]
        seconds = sample.time - first.time
        if seconds > 0:
            self.records = (sample.records - first.records) / seconds
            self.bytes = (sample.bytes - first.bytes) / seconds

    @property
    def is_new(self) -> bool:
        """True if there is no sample yet."""
        return not self._samples

    @property
    def is_idle(self) -> bool:
        return self.records == 0 and self.bytes == 0


@dataclass(slots=True)
class TopicFigures:
    name: str
    id: str = ""
    partitions: int = 0
    replication_factor: int = 0
    is_internal: bool = False
    under_replicated: int = 0
    """Number of partitions with fewer in-sync replicas than replicas."""
    offline: int = 0
    """Number of partitions without a leader."""
    retention_ms: int = -1
    retention_bytes: int = -1
    cleanup_policy: str = ""
    lag: int = 0
    """Greatest lag of any group that reads the topic."""
    rate: Rate = field(default_factory=Rate)
    partition_rates: dict[int, float] = field(default_factory=dict)
    """Records per second of each partition; empty while the topic is idle."""

    @property
    def health(self) -> str:
        """`failing` if a partition has no leader, else `degraded` if one is under-replicated, else `ok`."""
        if self.offline:
            return "failing"
        return "degraded" if self.under_replicated else "ok"

    def update(self, row: tuple[Any, ...]) -> None:
        """Set the metadata of the topic from a row of a broker's journal of changes."""
        (
            self.id,
            self.partitions,
            self.replication_factor,
            self.is_internal,
            self.under_replicated,
            self.offline,
            self.retention_ms,
            self.retention_bytes,
            self.cleanup_policy,
        ) = row


@dataclass(slots=True)
class GroupFigures:
    id: str
    broker: BrokerId
    type: str
    state: str
    members: int
    offsets: Mapping[str, Mapping[int, int]]
    """Committed offsets by topic and partition. A subscribed topic without committed offsets has an empty mapping."""
    lag: int = 0


@dataclass(slots=True)
class BrokerFigures:
    id: BrokerId
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Figures that the broker last returned about itself."""
    received_rate: float = 0.0
    sent_rate: float = 0.0
    request_rate: float = 0.0
    seen_at: float = 0.0
    """Monotonic time in seconds at which `figures` were received."""
    error: str = ""
    """Reason why the broker does not respond; empty if it does."""
    epoch: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    """Version up to which each journal of changes was read."""

    def take(self, figures: Mapping[str, Any], now: float) -> None:
        seconds = now - self.seen_at
        if self.figures and seconds > 0.5:
            self.received_rate = self._rate("received_bytes", figures, seconds)
            self.sent_rate = self._rate("sent_bytes", figures, seconds)
            self.request_rate = self._rate("requests", figures, seconds)
        if not self.figures or seconds > 0.5:
            self.figures, self.seen_at = figures, now
        self.error = ""

    def _rate(self, name: str, figures: Mapping[str, Any], seconds: float) -> float:
        return float(max(0, figures[name] - self.figures[name])) / seconds
