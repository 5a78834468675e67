"""Base class of coordinators: maps names to shards, and provides shards with deadlines, sweeps and reloads.

A coordinator has one shard for each partition of its internal topic that this broker leads (see `shards`).
A name, such as a group id, belongs to one partition for good. Loop thread only.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar, cast

from penstock.cluster.image import ImageChange
from penstock.cluster.topics import CreatableTopic
from penstock.config import BrokerConfig
from penstock.model import BrokerId
from penstock.replication.replica import Replica
from penstock.state_log.shard import Shard
from penstock.state_log.shards import CoordinatorContext, Shards
from penstock.state_log.timers import Timers

S = TypeVar("S", bound=Shard[Any])


class Coordinator(ABC, Generic[S]):
    def __init__(
        self, context: CoordinatorContext, topic: str, make_topic: Callable[[BrokerConfig], CreatableTopic]
    ) -> None:
        self.timers = Timers(context.clock, self._on_due)
        self.unknown_records = 0
        """Number of records that were skipped while shards were loaded, because their kind is unknown."""
        self._context = context
        self._topic = topic
        self._shards: Shards[S] = Shards(topic, make_topic, context, self._load, self._on_loaded)
        self._sweeping: asyncio.Task[None] | None = None
        self._stopped = False

    # --- what a subclass supplies

    @abstractmethod
    async def _load(self, index: int, replica: Replica) -> S:
        """Load a shard: replay the records of its log."""

    @abstractmethod
    async def _on_loaded(self, shard: S) -> None:
        """Resume the work of a shard that was just loaded."""

    @abstractmethod
    async def _sweep(self, shard: S) -> None:
        """Remove expired state."""

    @property
    @abstractmethod
    def _sweep_interval_ms(self) -> int: ...

    # --- the shard of a name

    async def find(self, name: str) -> BrokerId:
        """Return the broker that coordinates the name; the internal topic is created at the first call."""
        return await self._shards.find(name)

    @property
    def shards(self) -> Sequence[S]:
        """The loaded shards."""
        return self._shards.loaded

    @property
    def is_loading(self) -> bool:
        return self._shards.is_loading

    @property
    def load_seconds(self) -> float:
        return self._shards.load_seconds

    # --- start and stop

    def start(self) -> None:
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep_shards())
        self._shards.start()

    async def stop(self) -> None:
        """Respond to all waiting requests; nothing is appended after this returns."""
        self._stopped = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.wait([self._sweeping])
        await self._shards.stop()
        self.timers.close()

    # --- what shards ask for

    @property
    def config(self) -> BrokerConfig:
        return self._context.metadata.config

    def wall_ms(self) -> int:
        return self._context.clock.now_ms()

    def lost(self, shard: Shard[Any]) -> None:
        self._shards.lost(shard)

    # --- the cluster and time

    def on_image(self, change: ImageChange) -> None:
        if not self._stopped and self._topic in change.topics:
            self._shards.follow_leadership()

    def on_repaired(self, replica: Replica) -> None:
        """Handle the repair of damaged records in this replica."""
        self._shards.on_repaired(replica)

    def _note_passed_over(self, shard: S, unknown: int, damaged_parts: int) -> None:
        """Count the records that were skipped while the shard was loaded, and log a warning."""
        shard.passed_over_damage = bool(damaged_parts)
        self.unknown_records += unknown
        if unknown or damaged_parts:
            self._context.logger.warning(
                "coordinator skipped unreadable records while it loaded a shard",
                topic=self._topic,
                partition=shard.partition,
                records=unknown,
                damaged_parts=damaged_parts,
            )

    def _on_due(self, key: Hashable) -> None:
        # The key has no reference to the shard: a closed shard would stay in memory until its last deadline.
        index, name = cast("tuple[int, str | None]", key)
        shard = self._shards.get(index)
        if shard is not None:
            shard.on_due(name)

    async def _sweep_shards(self) -> None:
        while True:
            await asyncio.sleep(self._sweep_interval_ms / 1000)
            for shard in self.shards:
                try:
                    await self._sweep(shard)
                except Exception as error:  # noqa: BLE001 - a loop that dies would end expiry for good
                    self._context.logger.error_rarely(
                        "expired state of a coordinator shard could not be removed",
                        error,
                        topic=self._topic,
                        partition=shard.partition,
                    )
