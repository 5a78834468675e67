"""The base of consumer groups and share groups: members report by heartbeats, and records alone change the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from penstock.errors import ErrorCode
from penstock.groups.group import GroupStep
from penstock.groups.records import GroupRecord
from penstock.groups.settings import GroupSettings


class RecordedState(Protocol):
    """State of a group as its records have it."""

    epoch: int

    @property
    def members(self) -> Mapping[str, Any]: ...

    def apply(self, record: GroupRecord) -> None: ...

    def tombstones(self) -> list[GroupRecord]: ...


S = TypeVar("S", bound=RecordedState)


class HeartbeatGroup(ABC, Generic[S]):
    def __init__(
        self, group_id: str, remembered: S, settings: GroupSettings, wall_ms: Callable[[], int]
    ) -> None:
        self.group_id = group_id
        self.remembered = remembered
        self._settings = settings
        self._wall_ms = wall_ms
        self._empty_since_ms: int | None = None

    def apply(self, record: GroupRecord) -> None:
        self.remembered.apply(record)

    @property
    def is_empty(self) -> bool:
        return not self.remembered.members

    @property
    def is_blank(self) -> bool:
        return self.remembered.epoch == 0

    @property
    def member_count(self) -> int:
        return len(self.remembered.members)

    @property
    def empty_since_ms(self) -> int | None:
        return self._empty_since_ms

    def _note_empty(self) -> None:
        """Remember the time if the group has no members now."""
        self._empty_since_ms = self._wall_ms() if self.is_empty else None

    @property
    @abstractmethod
    def topics(self) -> frozenset[str]:
        """Names of the topics that the members read."""

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def tombstones(self) -> list[GroupRecord]:
        return self.remembered.tombstones()

    def give_up(self, error: ErrorCode) -> GroupStep:
        """Return an empty step: no request waits in a group of this kind."""
        return GroupStep()
