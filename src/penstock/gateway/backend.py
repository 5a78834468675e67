"""All that the gateway asks of a cluster: the one narrow interface between HTTP and Kafka.

The gateway is a client: inside a broker and in a process of its own it reaches the cluster through a `Backend` and
nothing else (`cluster_backend.py` makes one over `net/routes.py`). Errors are BrokerErrors with Kafka's code,
OutcomeUnknown of `net/sender.py`, or OSErrors where no broker answers. What is returned belongs to the caller and is
frozen: changing a server's state by what it gave out is not possible. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from penstock.net.routes import Routes, TopicRoute
from penstock.records.building import NewRecord
from penstock.records.iteration import Record

EARLIEST, LATEST = -2, -1
"""In place of a time, for `Records.offsets`."""


class ConfigResource(IntEnum):
    """Kafka's codes."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    documentation: str


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1: as the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Committed records of a partition, and where to read on."""

    records: tuple[Record, ...]
    next_offset: int
    high_watermark: int
    log_start_offset: int


class KeyPage(NamedTuple):
    """Committed records of one key in a partition."""

    records: tuple[Record, ...]
    next_offset: int
    is_complete: bool
    """Whether the key has nothing more at or after `next_offset` at present."""


class Limits(NamedTuple):
    max_records: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class GroupSummary:
    id: str
    type: str
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    client_id: str
    host: str
    partitions: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class GroupOffset:
    topic: str
    partition: int
    committed: int | None
    log_start: int
    log_end: int

    @property
    def lag(self) -> int:
        """Offsets between the committed offset and the log end, or in the whole log without a committed offset."""
        return max(0, self.log_end - (self.log_start if self.committed is None else self.committed))


@dataclass(frozen=True, slots=True)
class GroupDescription:
    summary: GroupSummary
    members: tuple[GroupMember, ...]
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True)
class TransactionSummary:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    node_id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    cluster_id: str
    brokers: tuple[BrokerSummary, ...]
    partitions: int
    without_leader: int
    under_replicated: int


class Topics(Protocol):
    async def all(self) -> Sequence[TopicRoute]:
        """Every topic, asked for anew."""
        ...

    async def get(self, name: str, *, fresh: bool = False) -> TopicRoute:
        """What is known of a topic, or is asked for: anew when `fresh`. UNKNOWN_TOPIC_OR_PARTITION without it."""
        ...

    async def create(self, topic: NewTopic, *, validate_only: bool = False) -> None: ...

    async def delete(self, name: str) -> None: ...

    async def set_partitions(self, name: str, count: int) -> None:
        """They only grow."""
        ...

    async def truncate(self, name: str, before: Mapping[int, int]) -> Mapping[int, int]:
        """Delete what lies before the offsets (-1: before the high watermark); the log starts thereafter."""
        ...


class Configs(Protocol):
    async def get(self, kind: ConfigResource, name: str) -> Sequence[ConfigEntry]: ...

    async def alter(self, kind: ConfigResource, name: str, changes: Mapping[str, str | None]) -> None:
        """None takes a setting back to its default. All of the changes, or none."""
        ...


class Records(Protocol):
    async def produce(self, topic: str, partition: int, record: NewRecord, *, is_alone: bool = False) -> int:
        """Its offset, once it is committed. `is_alone`: in a batch of its own, as idempotency keys need it."""
        ...

    async def produce_many(
        self, topic: str, records: Sequence[tuple[int, NewRecord]]
    ) -> Sequence[int | Exception]:
        """Each into its partition: its offset, once all are committed, or what became of it."""
        ...

    async def read(self, topic: str, partition: int, offset: int, limits: Limits, wait_ms: int = 0) -> Page:
        """Records from an offset on, none of an open or aborted transaction. With a wait, the answer is held until
        there is one. OFFSET_OUT_OF_RANGE where the log begins later or ends earlier."""
        ...

    async def wait_for_any(self, topic: str, offsets: Mapping[int, int], wait_ms: int) -> None:
        """Return once one of the partitions may have a committed record at or after its offset, or the time is over."""
        ...

    async def read_key(
        self, topic: str, partition: int, key: bytes, from_offset: int, limits: Limits, wait_ms: int = 0
    ) -> KeyPage:
        """Records of one key from an offset on (where the log begins later, from there). With a wait, the answer is
        held until there is one; any number of callers may wait. By the topic's index, which it must have."""
        ...

    async def offsets(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """The first offset at or after a time, or EARLIEST, or LATEST; the end where there is none."""
        ...


class Groups(Protocol):
    async def all(self) -> Sequence[GroupSummary]: ...

    async def describe(self, group: str) -> GroupDescription:
        """GROUP_ID_NOT_FOUND without it."""
        ...

    async def reset(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Commit offsets for a group that has no members; refused where it has."""
        ...

    async def delete(self, group: str) -> None: ...


class Transactions(Protocol):
    async def all(self) -> Sequence[TransactionSummary]: ...

    async def abort(self, transactional_id: str) -> None:
        """Its producer is fenced, what it had open is aborted."""
        ...


class Cluster(Protocol):
    async def brokers(self) -> Sequence[BrokerSummary]: ...

    async def health(self) -> ClusterHealth: ...


class Backend(Protocol):
    """The parts, and routes for whom no part is enough: members of groups."""

    @property
    def topics(self) -> Topics: ...

    @property
    def configs(self) -> Configs: ...

    @property
    def records(self) -> Records: ...

    @property
    def groups(self) -> Groups: ...

    @property
    def transactions(self) -> Transactions: ...

    @property
    def cluster(self) -> Cluster: ...

    @property
    def routes(self) -> Routes: ...

    async def close(self) -> None:
        """Whoever still waits is told so."""
        ...
