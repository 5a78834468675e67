"""Draining on this broker: checks partitions that are being removed every second, and moves those that it leads to
their next phase.

A topic shrinks from the moment its partition count is lowered until the surplus partitions are removed; nothing runs
while no topic shrinks. The leader of a partition decides alone (`next_phase`), after it has asked the group
coordinators of all brokers (`advancing`). Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from penstock.clock import monotonic_ms
from penstock.cluster.change_maker import ChangeMaker
from penstock.cluster.image import ImageChange, PartitionState, TopicImage
from penstock.cluster.partition_counts import PartitionCounts
from penstock.errors import PenstockError
from penstock.internal_client.inspection import ask_broker
from penstock.model import BrokerId, TopicPartition
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.dispatch import Session
from penstock.server.draining.advancing import Advancer, asks_groups
from penstock.server.draining.group_positions import GroupPositions
from penstock.server.draining.known_clients import ClientIdentity, KnownClients
from penstock.server.draining.quiet_file import read_quiet_times, write_quiet_times
from penstock.server.draining.quiet_times import QuietTimes
from penstock.server.draining.reports import DrainReport, make_report, read_report
from penstock.server.draining.writers import Writers
from penstock.transactions.links import BrokerLinks

LOOK_SECONDS = 1.0
REMOVAL_SECONDS = 0.02
"""Pause in seconds between removals. Partitions are removed from the last one down, and another broker may have to
remove the next one.
"""
OBSERVED_SECONDS = 1.5
"""Time in seconds for which `observe` collects the writers of partitions."""
MEETING_SECONDS = 1.0
"""Maximum time in seconds that a new consumer waits until all brokers know it."""
KEEP_SECONDS = 10.0
"""Interval in seconds at which quiet times are written to the disk."""
QUESTION = "drain_report"
CONSUMER_SEEN = "consumer_seen"
PENSTOCK_CLIENT = "penstock"
"""Prefix of the client ids of internal clients."""


class Draining:
    def __init__(
        self, context: BrokerContext, changes: ChangeMaker, links: BrokerLinks, logger: Logger
    ) -> None:
        """Create the object and set it as `context.draining`, where handlers find it."""
        context.draining = self
        self.counts = PartitionCounts(context.metadata, changes, context.clock)
        self.clients = KnownClients()
        self.writers = Writers()
        self.advancer = Advancer(context, self.counts, self.writers, logger)
        self._context = context
        self._links = links
        self._logger = logger
        self._quiet = QuietTimes()
        self._observers: list[Writers] = []
        self._kept_at: float | None = None
        """Event loop time in seconds at which quiet times were last written; None until the file was read."""
        self._topics: dict[str, TopicImage] = {}
        """Shrinking topics, by name."""
        self._started_ms = monotonic_ms(context.clock)
        self._is_due = asyncio.Event()
        self._is_changed = asyncio.Event()
        """Set when the image of a shrinking topic changes."""
        self._task: asyncio.Task[None] | None = None

    @property
    def topics(self) -> Iterable[TopicImage]:
        """Shrinking topics: topics with partitions that are being removed."""
        return self._topics.values()

    def start(self) -> None:
        """Subscribe to the cluster image, behind the replica manager, and start the checks."""
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
            if self._topics:
                await self._keep_quiet_times(is_last=True)
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
            self._is_changed.set()
        self._wake()

    def _wake(self) -> None:
        if self._topics:
            self._is_due.set()

    # --- clients

    def shown_count(self, session: Session, topic: TopicImage) -> int:
        """Number of partitions of a shrinking topic, or of a view of it, that Metadata shows to a client.

        Partitions are sealed in any order, so a sealed partition with a lower index than a draining one is shown too.
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
        """Record the client of a write to a draining or an observed partition."""
        client, now_ms = identity(session), self._context.clock.now_ms()
        for writers in (self.writers, *self._observers):
            writers.note(name, client, now_ms)

    async def meet_consumer(self, session: Session) -> bool:
        """Make a client known as a consumer on all brokers. Returns True if it was unknown: its metadata may then lack
        the partitions that are being removed.
        """
        client = identity(session)
        if all(self.clients.is_in_doubt(topic.id) for topic in self._topics.values()):
            return False
        if reads_phases(session) or self.clients.is_consumer(client):
            return False
        self.clients.add([client], ())
        with suppress(TimeoutError):
            await asyncio.wait_for(self.ask_others(CONSUMER_SEEN, client._asdict()), MEETING_SECONDS)
        return True

    async def observe(self, replicas: Sequence[Replica]) -> Writers:
        """Collect for `OBSERVED_SECONDS` the clients that write to these partitions, which are not draining."""
        writers = Writers()
        self._observers.append(writers)
        for replica in replicas:
            replica.notes_writers = True
        try:
            await asyncio.sleep(OBSERVED_SECONDS)
        finally:
            self._observers.remove(writers)
            if not self._observers:
                for replica in replicas:
                    replica.notes_writers = bool(replica.phase)
        return writers

    def _connected(self) -> Iterator[ClientIdentity]:
        return map(identity, self._sessions())

    def _sessions(self) -> Iterator[Session]:
        """Connections of clients; connections of brokers are left out."""
        sessions = (watched.session for watched in self._context.connections.values())
        return (session for session in sessions if session.broker_id is None)

    # --- the loop

    async def _run(self) -> None:
        while True:
            await self._is_due.wait()
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - a loop that dies would leave partitions draining for ever
                self._logger.error_rarely("draining partitions could not be checked", error)
            if not self._topics:
                self._is_due.clear()
            await self._remove_meanwhile(LOOK_SECONDS)

    async def _remove_meanwhile(self, seconds: float) -> None:
        """Until the next check, remove each sealed partition as soon as it is the last one of its topic."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            self._is_changed.clear()
            await self.advancer.remove(list(self._topics.values()))
            left = deadline - loop.time()
            if left <= REMOVAL_SECONDS:
                await asyncio.sleep(max(0.0, left))
                return
            changed = loop.create_task(self._is_changed.wait())
            try:
                await asyncio.wait([changed], timeout=left - REMOVAL_SECONDS)
            finally:
                changed.cancel()
            await asyncio.sleep(REMOVAL_SECONDS)

    async def _look(self) -> None:
        if self._kept_at is None:
            self._kept_at = asyncio.get_running_loop().time()
            read = partial(read_quiet_times, self._context.disk)
            self._quiet.load(await self._context.threads.run("background", read))
        self._know_clients()
        replicas = list(self._going())
        names = [replica.name for replica, _ in replicas]
        self._quiet.keep(names)
        self.writers.keep(names)
        for name in self.advancer.verdicts.keys() - set(names):
            del self.advancer.verdicts[name]
        now_ms = monotonic_ms(self._context.clock)
        for replica, _ in replicas:
            self._quiet.look(replica.name, replica.log.log_end_offset, replica.partition.leader_epoch, now_ms)
        await self._exchange(with_groups=any(asks_groups(each, state) for each, state in replicas))
        await self._keep_quiet_times(is_last=not replicas)
        await self.advancer.advance(replicas, self._topics, partial(self._quiet.of, now_ms=now_ms))

    async def _keep_quiet_times(self, *, is_last: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        if self._kept_at is None or (now < self._kept_at + KEEP_SECONDS and not is_last):
            return
        self._kept_at = now
        times = list(self._quiet.all(monotonic_ms(self._context.clock)))
        try:
            write = partial(write_quiet_times, self._context.disk, times)
            await self._context.threads.run("background", write)
        except OSError as error:
            self._logger.error_rarely("quiet times of draining partitions could not be stored", error)

    def _going(self) -> Iterator[tuple[Replica, PartitionState]]:
        """Replicas on this broker of partitions that are being removed, with the states of the partitions."""
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
            if is_late and age_ms >= self.advancer.limits(topic).quiet_ms:
                # Clients that were connected before the start of this broker have reconnected by now.
                self.clients.own.incomplete.discard(topic.id)
                self.clients.begin(topic.id, self._connected())

    async def _exchange(self, *, with_groups: bool) -> None:
        """Ask all other brokers for the clients and quiet times that they know and, `with_groups`, for the positions of
        their groups.
        """
        others = [each for each in self._context.image.brokers if each != self._context.node_id]
        answers = await asyncio.gather(*(self._ask(each, with_groups) for each in others))
        told = [answer for answer in answers if answer is not None]
        self.clients.others = [each.known for each in told] if len(told) == len(others) else None
        now_ms = monotonic_ms(self._context.clock)
        for each in told:
            self._quiet.learn(each.quiet, now_ms)
        self.advancer.positions = GroupPositions()
        if with_groups:
            own = read_report(await self.report(with_groups=True))
            for each in (own, *told):
                self.advancer.positions.merge(each.positions)

    async def _ask(self, broker_id: BrokerId, with_groups: bool) -> DrainReport | None:
        try:
            arguments = {"groups": int(with_groups)}
            answer = await self._links.send(
                broker_id, lambda connection: ask_broker(connection, QUESTION, arguments)
            )
            return read_report(answer)
        except (OSError, PenstockError, TimeoutError, ValueError, TypeError, KeyError) as error:
            self._logger.error_rarely(
                "request to a broker about draining partitions failed", error, broker=broker_id
            )
            return None

    async def ask_others(self, question: str, arguments: Mapping[str, Any] | None = None) -> list[Any]:
        """Ask all other brokers a question of the Inspect API. The answer of a broker that does not respond is None."""

        async def ask(broker_id: BrokerId) -> Any:
            try:
                return await self._links.send(
                    broker_id, lambda each: ask_broker(each, question, arguments or {})
                )
            except (OSError, PenstockError, TimeoutError) as error:
                self._logger.error_rarely(
                    "request to a broker failed", error, broker=broker_id, question=question
                )
                return None

        others = [each for each in self._context.image.brokers if each != self._context.node_id]
        return list(await asyncio.gather(*map(ask, others)))

    async def report(self, *, with_groups: bool) -> dict[str, Any]:
        """Answer to the question `QUESTION` of another broker."""
        times = list(self._quiet.all(monotonic_ms(self._context.clock)))
        return await make_report(self._context, self.clients.own, times, with_groups=with_groups)


def identity(session: Session) -> ClientIdentity:
    return ClientIdentity(str(session.principal), session.client_id or "", session.host)


def reads_phases(session: Session) -> bool:
    """True if the client is part of this project: such a client asks for the active partitions and writes only to
    these.
    """
    return not session.software and (session.client_id or "").startswith(PENSTOCK_CLIENT)
