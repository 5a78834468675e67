"""Controller: the broker that elects partition leaders and completes reassignments when brokers come and go.

Every write of the controller is conditional on the controller epoch, so a fenced controller writes nothing.
It acts on each change of the image. Loop thread only.
"""

from __future__ import annotations

import asyncio

from penstock.cluster import deletions, leader_election, reassignment, znodes
from penstock.cluster.change_list import TRIMMED_AT_ONCE, ChangeList
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.controller_election import ControllerTerm, become_controller
from penstock.cluster.coordination import Check, CoordinationStore, SessionExpired
from penstock.cluster.image import NO_LEADER, ImageChange
from penstock.cluster.metadata import ClusterMetadata
from penstock.config import (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    LEADER_IMBALANCE_PER_BROKER_PERCENTAGE,
)
from penstock.errors import BrokerError, ErrorCode
from penstock.model import BrokerId
from penstock.observability.logs import Logger

RETRY_SECONDS = 1.0


class Controller:
    def __init__(
        self,
        store: CoordinationStore,
        metadata: ClusterMetadata,
        changes: ChangeMaker,
        change_list: ChangeList,
        node_id: BrokerId,
        log: Logger,
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._changes = changes
        self._change_list = change_list
        self._node_id = node_id
        self._log = log
        self._term: ControllerTerm | None = None
        self._topics: set[str] = set()
        """Names of topics to check: all topics after an election or a change of brokers, else the changed topics."""
        self._untrimmed = 0
        self._woken = asyncio.Event()
        self._is_rebalance_due = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Stand for election. A background task then acts while this broker is elected, and stands again when
        there is no controller.
        """
        self._metadata.subscribe(self._on_image)
        await self._act()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._run()), loop.create_task(self._schedule_rebalances())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_image(self, change: ImageChange) -> None:
        self._untrimmed += 1
        if change.after.brokers != change.before.brokers:
            self._topics.update(change.after.topics)
        self._topics.update(change.topics)
        if self._term is not None and change.after.controller_id != self._node_id:
            self._resign()
        if self._term is not None or change.after.controller_id == NO_LEADER:
            self._woken.set()

    def _resign(self) -> None:
        self._term = None
        self._log.info("resigned as controller", node_id=self._node_id)

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                await self._act()
            except SessionExpired:
                return
            except Exception as error:  # noqa: BLE001 - a loop that dies would end elections for good
                self._log.error_rarely("controller action failed", error)
                await asyncio.sleep(RETRY_SECONDS)
                self._woken.set()

    async def _schedule_rebalances(self) -> None:
        while True:
            await asyncio.sleep(self._metadata.config[LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS])
            if self._term is not None and self._metadata.config[AUTO_LEADER_REBALANCE_ENABLE]:
                self._is_rebalance_due = True
                self._woken.set()

    async def _act(self) -> None:
        if self._term is None:
            await self._stand_for_election()
        if self._term is None:
            return
        try:
            await self._settle(self._term)
        except BrokerError as error:
            if error.code is not ErrorCode.not_controller:
                raise
            if self._term is not None:
                self._resign()
            await self._metadata.reread_members()

    async def _stand_for_election(self) -> None:
        try:
            term: ControllerTerm | None = await become_controller(self._store, self._node_id)
        except BrokerError:
            term = None  # Another broker is the controller; the removal of its node wakes this task.
        await self._metadata.reread_members()
        holder = self._metadata.image.controller_id
        if holder == NO_LEADER:
            self._woken.set()  # The node vanished before the image showed it, so no image change wakes this task.
        if term is None or holder != self._node_id:
            return
        self._term = term
        self._topics.update(self._metadata.image.topics)
        self._log.info("elected as controller", node_id=self._node_id, epoch=term.epoch)
        await self._clean_up()

    async def _clean_up(self) -> None:
        """Clean up changes that dead brokers left unfinished."""
        topics = self._metadata.image.topics
        for name in await self._store.children(znodes.TOPICS):
            if name not in topics or topics[name].is_unfinished:
                try:
                    await self._changes.clean_up([name])
                except BrokerError as error:
                    self._log.info(
                        "unfinished topic change could not be cleaned up", topic=name, reason=str(error)
                    )

    async def _settle(self, term: ControllerTerm) -> None:
        fence = Check(znodes.CONTROLLER_EPOCH, term.epoch_version)
        while self._topics:
            topics, self._topics = self._topics, set()
            try:
                await self._changes.rule(reassignment.settle(self._metadata.config), sorted(topics), fence)
            except BaseException:
                self._topics |= topics
                raise
        if self._is_rebalance_due:
            self._is_rebalance_due = False
            image, percentage = (
                self._metadata.image,
                self._metadata.config[LEADER_IMBALANCE_PER_BROKER_PERCENTAGE],
            )
            rule = leader_election.prefer_for(leader_election.imbalanced(image, percentage))
            await self._changes.rule(rule, image.topics, fence)
        if self._untrimmed >= TRIMMED_AT_ONCE:
            self._untrimmed = 0
            await self._change_list.trim()
            await deletions.trim(self._store, self._change_list)
