"""Partitions that go, on this broker: looks at them every second, and moves those that it leads to their next phase.

Nothing runs while no topic shrinks. The leader of a partition decides alone (`next_phase`), and asks the group
coordinators of all brokers before. Every write is conditional on the leader epoch. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.clock import monotonic_ms
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.image import ImageChange, PartitionPhase, PartitionState, TopicImage
from penstock.cluster.partition_counts import PartitionCounts
from penstock.cluster.shrinking import is_removable
from penstock.config import PARTITION_DRAIN_MAX_MS, PARTITION_DRAIN_QUIET_MS, TopicConfig
from penstock.errors import PenstockError
from penstock.internal_client.inspection import ask_broker
from penstock.model import BrokerId, Offset, TopicPartition
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Session
from penstock.server.draining.group_positions import GroupPositions
from penstock.server.draining.known_clients import Acquaintances, ClientIdentity, KnownClients
from penstock.server.draining.next_phase import DrainingPartition, DrainLimits, GroupPosition, Verdict, judge
from penstock.server.draining.quiet_times import QuietTimes
from penstock.server.draining.reports import make_report, read_report
from penstock.server.draining.unread import has_records
from penstock.server.draining.writers import Writers
from penstock.transactions.links import BrokerLinks

LOOK_SECONDS = 1.0
NAMED_WRITERS = 5
QUESTION = "drain_report"
PENSTOCK_CLIENT = "penstock"
"""Start of the client ids of internal clients."""


class Draining:
    def __init__(
        self, context: BrokerContext, changes: ChangeMaker, links: BrokerLinks, logger: Logger
    ) -> None:
        """Attach to the context, so that handlers find it there."""
        context.draining = self
        self.counts = PartitionCounts(context.metadata, changes, context.clock)
        self.clients = KnownClients()
        self.writers = Writers()
        self.verdicts: dict[TopicPartition, Verdict] = {}
        """Last verdict about each partition that this broker leads."""
        self._context = context
        self._links = links
        self._logger = logger
        self._quiet = QuietTimes()
        self._positions = GroupPositions()
        self._topics: dict[str, TopicImage] = {}
        """Shrinking topics."""
        self._started_ms = monotonic_ms(context.clock)
        self._is_due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Follow the image, after the replicas of the broker."""
        self._context.metadata.subscribe(self.on_image)
        for topic in self._context.image.topics.values():
            if topic.is_shrinking:
                self._topics[topic.name] = topic
                self.clients.own.incomplete.add(topic.id)
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._wake()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._links.close()

    def on_image(self, change: ImageChange) -> None:
        for name in change.topics:
            before, after = change.before.topic(name), change.after.topic(name)
            if after is None or not after.is_shrinking:
                self._topics.pop(name, None)
                continue
            self._topics[name] = after
            if before is None or before.id != after.id or after.active_count < before.active_count:
                self.clients.begin(after.id, self._connected())
        self._wake()

    def _wake(self) -> None:
        if self._topics:
            self._is_due.set()

    # --- clients

    def shown_count(self, session: Session, topic: TopicImage) -> int:
        """Number of partitions of a shrinking topic, or of its view, that Metadata shows to a client.

        Partitions are sealed in any order, so a sealed one below a draining one is shown too.
        """
        source = self._context.image.topics.get(topic.view_of or topic.name, topic)
        client, clients = identity(session), self.clients
        is_reader = session.is_consumer or clients.is_consumer(client)
        if is_reader or clients.is_in_doubt(source.id):
            return len(topic.partitions)
        if not clients.was_connected(source.id, client):
            now_ms = monotonic_ms(self._context.clock)
            is_waiting = not session.is_producer and clients.seems_to_wait(source.id, client, now_ms)
            return len(topic.partitions) if is_waiting else topic.active_count
        writable = [index for index, state in enumerate(topic.partitions) if state.phase.takes_records]
        return 1 + max(writable, default=-1)

    def on_write(self, session: Session, name: TopicPartition) -> None:
        """Note a write to a draining partition."""
        self.writers.note(name, identity(session), self._context.clock.now_ms())

    def _connected(self) -> Iterator[ClientIdentity]:
        return map(identity, self._sessions())

    def _sessions(self) -> Iterator[Session]:
        """Connections of clients."""
        sessions = (watched.session for watched in self._context.connections.values())
        return (session for session in sessions if session.broker_id is None)

    # --- the loop

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - a loop that dies would leave partitions draining for ever
                self._logger.error_rarely("draining partitions not checked", error)
            if not self._topics:
                self._is_due.clear()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        self._know_clients()
        replicas = list(self._going())
        names = [replica.name for replica, _ in replicas]
        self._quiet.keep(names)
        self.writers.keep(names)
        for name in self.verdicts.keys() - set(names):
            del self.verdicts[name]
        now_ms = monotonic_ms(self._context.clock)
        quiet = {
            replica.name: self._quiet.look(replica.name, replica.log.log_end_offset, now_ms)
            for replica, _ in replicas
        }
        await self._exchange(with_groups=any(_asks_groups(each, state) for each, state in replicas))
        for replica, state in replicas:
            if replica.partition.is_leader:
                await self._advance(replica, state, quiet[replica.name])

    def _going(self) -> Iterator[tuple[Replica, PartitionState]]:
        """Replicas on this broker of partitions that go."""
        held = {replica.name: replica for replica in self._context.replicas} if self._topics else {}
        for topic in self._topics.values():
            for index in range(topic.active_count, len(topic.partitions)):
                replica = held.get(TopicPartition(topic.name, index))
                if replica is not None and replica.topic_id == topic.id:
                    yield replica, topic.partitions[index]

    def _know_clients(self) -> None:
        self.clients.keep({topic.id for topic in self._topics.values()})
        if self._topics:
            self.clients.add(
                (identity(session) for session in self._sessions() if session.is_consumer),
                (identity(session) for session in self._sessions() if session.is_producer),
            )
        age_ms = monotonic_ms(self._context.clock) - self._started_ms
        for topic in self._topics.values():
            is_late = topic.id in self.clients.own.incomplete and topic.id not in self.clients.own.before
            if is_late and age_ms >= self._limits(topic).quiet_ms:
                # Clients from before the start have connected again by now.
                self.clients.own.incomplete.discard(topic.id)
                self.clients.begin(topic.id, self._connected())

    async def _exchange(self, *, with_groups: bool) -> None:
        """Ask all other brokers for their clients, and for the positions of their groups."""
        others = [each for each in self._context.image.brokers if each != self._context.node_id]
        answers = await asyncio.gather(*(self._ask(each, with_groups) for each in others))
        known = [answer[0] for answer in answers if answer is not None]
        self.clients.others = known if len(known) == len(others) else None
        self._positions = GroupPositions()
        if with_groups:
            own = await make_report(self._context, self.clients.own, with_groups=True)
            self._positions.merge(read_report(own)[1])
            for answer in answers:
                if answer is not None:
                    self._positions.merge(answer[1])

    async def _ask(
        self, broker_id: BrokerId, with_groups: bool
    ) -> tuple[Acquaintances, GroupPositions] | None:
        try:
            arguments = {"groups": int(with_groups)}
            answer = await self._links.send(
                broker_id, lambda connection: ask_broker(connection, QUESTION, arguments)
            )
            return read_report(answer)
        except (OSError, PenstockError, TimeoutError, ValueError, TypeError, KeyError) as error:
            self._logger.error_rarely("broker not asked about draining partitions", error, broker=broker_id)
            return None

    async def ask_others(self, question: str) -> list[Any]:
        """Ask all other brokers a question; the answer of one that does not respond is None."""

        async def ask(broker_id: BrokerId) -> Any:
            try:
                return await self._links.send(broker_id, lambda each: ask_broker(each, question, {}))
            except (OSError, PenstockError, TimeoutError) as error:
                self._logger.error_rarely("broker not asked", error, broker=broker_id, question=question)
                return None

        others = [each for each in self._context.image.brokers if each != self._context.node_id]
        return list(await asyncio.gather(*map(ask, others)))

    async def report(self, *, with_groups: bool) -> dict[str, Any]:
        """Answer to the question of another broker."""
        return await make_report(self._context, self.clients.own, with_groups=with_groups)

    # --- phases

    async def _advance(self, replica: Replica, state: PartitionState, quiet_ms: int) -> None:
        topic = self._topics.get(replica.name.topic)
        if topic is None:
            return  # the change was taken back since the look began
        verdict = await self._judge(replica, state, quiet_ms, self._limits(topic))
        self.verdicts[replica.name] = verdict
        epoch = replica.partition.leader_epoch
        with suppress(PenstockError):  # the next look tries again
            if verdict.phase is not None:
                self._announce(replica, verdict)
                await self.counts.advance(replica.name, epoch, verdict.phase)
            elif state.phase >= PartitionPhase.SEALED:
                await self._remove(replica)

    async def _judge(
        self, replica: Replica, state: PartitionState, quiet_ms: int, limits: DrainLimits
    ) -> Verdict:
        log = replica.log
        partition = DrainingPartition(
            state.phase,
            state.waits_for_groups,
            max(0, self._context.clock.now_ms() - state.phase_since_ms),
            quiet_ms,
            log.producers.unstable.first_open() is not None,
            log.high_watermark >= log.log_end_offset,
            await self._behind(replica) if _asks_groups(replica, state) else (),
        )
        return judge(partition, limits)

    async def _behind(self, replica: Replica) -> list[GroupPosition] | None:
        if not self._positions.is_complete(self._context.image):
            return None
        behind = []
        for position in self._positions.found.get(replica.name, ()):
            log = replica.log
            look = partial(has_records, log, Offset(position.offset), log.high_watermark)
            if await self._context.threads.run("read", look):
                behind.append(position)
        return behind

    def _limits(self, topic: TopicImage) -> DrainLimits:
        settings = TopicConfig(self._context.config, topic.configs)
        return DrainLimits(settings[PARTITION_DRAIN_QUIET_MS], settings[PARTITION_DRAIN_MAX_MS])

    def _announce(self, replica: Replica, verdict: Verdict) -> None:
        if verdict.is_overdue:
            writers = [f"{client.client_id}@{client.host}" for client, _ in self.writers.of(replica.name)]
            self._logger.warning(
                "partition drained for too long, refusing records",
                partition=replica.name,
                writers=", ".join(writers[:NAMED_WRITERS]),
            )
        else:
            phase = verdict.phase.name.lower() if verdict.phase is not None else ""
            self._logger.info("partition changes its phase", partition=replica.name, phase=phase)

    async def _remove(self, replica: Replica) -> None:
        """Remove the last partition of a topic once nothing in it is needed any more."""
        topic = self._context.image.topic(replica.name.topic)
        index = replica.name.partition
        if topic is None or index >= len(topic.partitions) or not is_removable(topic, index):
            return
        is_dropped = topic.partitions[index].phase is PartitionPhase.DROPPING
        if _end_for_removal(replica, is_dropped) is None:
            return
        replica.is_ending = True
        # After an error the outcome is unknown: the partition takes no marker until a later attempt succeeds.
        done = await self.counts.remove(
            replica.name, replica.partition.leader_epoch, lambda: _end_for_removal(replica, is_dropped)
        )
        replica.is_ending = done
        if done:
            self._logger.info(
                "partition removed", partition=replica.name, log_end_offset=replica.log.log_end_offset
            )


def identity(session: Session) -> ClientIdentity:
    return ClientIdentity(str(session.principal), session.client_id or "", session.host)


def reads_phases(session: Session) -> bool:
    """Whether the client is one of this project, which writes only to the active partitions that it asks for."""
    return not session.software and (session.client_id or "").startswith(PENSTOCK_CLIENT)


def _asks_groups(replica: Replica, state: PartitionState) -> bool:
    return replica.partition.is_leader and state.phase is PartitionPhase.DRAINING and state.waits_for_groups


def _end_for_removal(replica: Replica, is_dropped: bool) -> Offset | None:
    """Log end offset of a partition that can be removed; None if records or a transaction keep it."""
    log = replica.log
    end = log.log_end_offset
    is_settled = log.high_watermark >= end and log.producers.unstable.first_open() is None
    is_archived = replica.removable_offset >= end
    is_expired = log.log_start_offset >= end
    return end if is_settled and is_archived and (is_expired or is_dropped) else None
