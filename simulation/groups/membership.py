"""Common behaviour of members of both group protocols: report in time, take and give up partitions, leave.

`held` are the partitions that were assigned and not given up; the model learns of every change first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from penstock.errors import ErrorCode
from simulation.clients.client import SimulatedClient
from simulation.groups.group_client import GroupClient, Identity
from simulation.models.group_model import GroupModel, Lease, Place
from simulation.scenarios.stage import Stage

NOT_NOW = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.request_timed_out,
    }
)
"""Errors after which a client looks up the coordinator and tries again."""
_ROUNDING_SECONDS = 0.01

BeforeGivingUp = Callable[[set[Place]], Awaitable[None]]


class Membership(ABC):
    def __init__(
        self,
        stage: Stage,
        group: GroupModel,
        client: SimulatedClient,
        owner: str,
        instance_id: str | None,
        *,
        before_giving_up: BeforeGivingUp,
    ) -> None:
        self.interruptions = 0
        """The number of changes that the member did not ask for."""
        self._stage = stage
        self._group = group
        self._client = client
        self._coordinator = GroupClient(client)
        self._owner = owner
        self._instance_id = instance_id
        self._before_giving_up = before_giving_up
        self._random = stage.world.random(f"{owner}/membership")
        self._lease: Lease = group.lease(owner)
        self._reports_at = 0.0
        self._is_lost = True
        """Whether the coordinator has to be looked up again."""

    @property
    @abstractmethod
    def identity(self) -> Identity: ...

    @property
    @abstractmethod
    def reader(self) -> Identity | None:
        """The identity under which the member fetches offsets, where that needs one."""

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether the member has an assignment, and knows of nothing that will change it."""

    @abstractmethod
    async def report(self) -> None: ...

    @abstractmethod
    async def leave(self) -> None: ...

    @property
    def held(self) -> set[Place]:
        return self._lease.places

    @property
    def is_due(self) -> bool:
        return self._seconds() >= self._reports_at

    def die(self) -> None:
        self._group.end_lease(self._lease)

    def _seconds(self) -> float:
        return self._stage.world.loop.time()

    def _prolong(self, sent: float) -> None:
        """Extend the lease: a request that was sent at `sent` got a response, so the session is measured from
        then at the earliest.

        A response of a replaced coordinator extends nothing.
        """
        if self._client.is_authoritative:
            self._lease.ends = sent + self._group.session_ms / 1000 - _ROUNDING_SECONDS

    def _take(self, places: set[Place]) -> None:
        """Take partitions, unless the lease may be over: then the member reports again first."""
        places = places - self.held
        if not places:
            return
        if self._seconds() >= self._lease.ends or not self._client.is_authoritative:
            self._reports_at = 0.0
            return
        self._group.take(self._lease, sorted(places, key=str), self._seconds())
        self._note("owns", *sorted(map(str, self.held)))

    def _give_up(self, places: set[Place]) -> None:
        self._lease.places -= places

    def _note(self, what: str, *details: object) -> None:
        self._stage.note(self._owner, what, *details)

    async def _find(self) -> None:
        if self._is_lost:
            await self._coordinator.find(self._group.name)
            self._is_lost = False
