"""Base class of consumer groups and share groups: members report by heartbeats, and only records change the state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from penstock.cluster.image import ClusterImage
from penstock.errors import ErrorCode
from penstock.groups.group import GroupStep
from penstock.groups.records import GroupRecord
from penstock.groups.settings import GroupSettings


class RecordedState(Protocol):
    """State of a group that consists of its records."""

    epoch: int

    @property
    def members(self) -> Mapping[str, Any]: ...

    def see(self, image: ClusterImage) -> None: ...

    def update_target(self, changed: bool) -> None: ...

    def apply(self, record: GroupRecord) -> None: ...

    def take_records(self) -> list[GroupRecord]: ...

    def tombstones(self) -> list[GroupRecord]: ...


class MemberDeadlines(Protocol):
    """Deadlines of members. A member is removed when its deadline passes."""

    @property
    def next_ms(self) -> int | None: ...

    def pop(self, now_ms: int) -> str | None:
        """Remove and return the id of a member whose deadline has passed; None if there is none."""


S = TypeVar("S", bound=RecordedState)
D = TypeVar("D", bound=MemberDeadlines)


class HeartbeatGroup(ABC, Generic[S, D]):
    def __init__(
        self,
        group_id: str,
        remembered: S,
        deadlines: D,
        settings: GroupSettings,
        wall_ms: Callable[[], int],
    ) -> None:
        self.group_id = group_id
        self.remembered = remembered
        self._deadlines = deadlines
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
        """Remember the current time if the group has no members."""
        self._empty_since_ms = self._wall_ms() if self.is_empty else None

    def on_topics(self, image: ClusterImage, now_ms: int) -> GroupStep:
        """Handle topics that were created or deleted or have another number of partitions."""
        self.remembered.see(image)
        self.remembered.update_target(changed=False)
        return GroupStep(self.remembered.take_records())

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms

    def tick(self, now_ms: int) -> GroupStep:
        """Remove the members whose deadline has passed."""
        gone = []
        while (member_id := self._deadlines.pop(now_ms)) is not None:
            gone.append(member_id)
        if gone:
            self._remove(gone)
        return GroupStep(self.remembered.take_records())

    def _remove(self, member_ids: Sequence[str]) -> None:
        for member_id in member_ids:
            self._forget(member_id)
        self.remembered.update_target(changed=True)
        self._note_empty()

    @abstractmethod
    def _forget(self, member_id: str) -> None:
        """Remove a member and its deadlines."""

    @property
    @abstractmethod
    def topics(self) -> frozenset[str]:
        """Names of the topics that the members read."""

    def reads(self, topic: str) -> bool:
        return topic in self.topics

    def tombstones(self) -> list[GroupRecord]:
        return self.remembered.tombstones()

    def give_up(self, error: ErrorCode) -> GroupStep:
        """Return an empty step, because no request to a group of this kind waits."""
        return GroupStep()
