"""Alarms: conditions of a partition that need an operator's attention, shown in `/health`, in a metric and in the log.

An alarm is raised when its condition is found, and cleared when the condition is over. Raising it again
changes its detail and adds no log line. Alarms do not make a process unhealthy, because a restart would not
end the condition. Loop thread only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from penstock.clock import Clock
from penstock.model import TopicPartition
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics

MAX_ALARMS = 1000
"""Maximum number of alarms that are kept. Further alarms are only counted in the metric."""


class AlarmKind(StrEnum):
    CORRUPT_FETCH = "corrupt_fetch"
    """This process fetched a record batch whose CRC does not match, and refused it."""
    BLOCKED_DEAD_LETTERS = "blocked_dead_letters"
    """Dead letters of a share group cannot be written. The records concerned wait, and none is lost."""
    DAMAGED_LOG = "damaged_log"
    """A log of this broker contains records that cannot be read."""
    TRUNCATION_REFUSED = "truncation_refused"
    """The leader of a partition lacks records that this broker knows to be committed. This broker keeps the
    records, and does not follow that leader.
    """


@dataclass(frozen=True, slots=True)
class Alarm:
    kind: AlarmKind
    partition: TopicPartition
    detail: str
    since_ms: int


class Alarms:
    def __init__(self, clock: Clock, log: Logger, metrics: BrokerMetrics) -> None:
        self._clock = clock
        self._log = log
        self._alarms: dict[tuple[AlarmKind, TopicPartition], Alarm] = {}
        self._raised = dict.fromkeys(AlarmKind, 0)
        metrics.add_gauge(
            "penstock_alarms", "Alarms that are raised now, as shown in /health.", lambda: len(self._alarms)
        )
        for kind in AlarmKind:
            metrics.add_counter(
                f"penstock_alarms_{kind}",
                f"Number of times that the alarm {kind} was raised.",
                partial(self.count, kind),
            )

    @property
    def present(self) -> tuple[Alarm, ...]:
        """All alarms, oldest first."""
        return tuple(self._alarms.values())

    def count(self, kind: AlarmKind) -> int:
        """Number of times that alarms of this kind were raised since the start, including repeated ones."""
        return self._raised[kind]

    def has(self, kind: AlarmKind, partition: TopicPartition) -> bool:
        """True if the alarm is raised now."""
        return (kind, partition) in self._alarms

    def is_set(self, kind: AlarmKind, partition: TopicPartition, detail: str) -> bool:
        """True if the alarm is raised now, with this detail."""
        known = self._alarms.get((kind, partition))
        return known is not None and known.detail == detail

    def set(self, kind: AlarmKind, partition: TopicPartition, detail: str) -> None:
        """Raise an alarm, or change the detail of a raised one."""
        self._raised[kind] += 1
        known = self._alarms.get((kind, partition))
        if known is None and len(self._alarms) >= MAX_ALARMS:
            return
        since_ms = self._clock.now_ms() if known is None else known.since_ms
        self._alarms[kind, partition] = Alarm(kind, partition, detail, since_ms)
        if known is None:
            self._log.error("alarm raised", alarm=str(kind), partition=partition, detail=detail)

    def clear(self, kind: AlarmKind, partition: TopicPartition) -> None:
        """Clear an alarm if it is raised."""
        if self._alarms.pop((kind, partition), None) is not None:
            self._log.info("alarm cleared", alarm=str(kind), partition=partition)

    def forget(self, partition: TopicPartition) -> None:
        """Clear all alarms of a partition that this broker no longer has."""
        for kind in AlarmKind:
            self.clear(kind, partition)
