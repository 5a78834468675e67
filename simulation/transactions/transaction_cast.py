"""The clients of transactions in a simulated cluster, their topics, and the final audit.

In peace, when no client writes any more, every transaction ends: the last stable offset reaches the end of
every log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from penstock.errors import BrokerError, ErrorCode
from penstock.records.building import NewRecord, build_batch
from simulation.clients.actor import Actor
from simulation.clients.client import NoAnswer
from simulation.clients.count_admin import QUIET_MS, CountAdmin
from simulation.clients.retries import retried
from simulation.clients.whole_log import log_end
from simulation.models.history import FILLING, InvariantViolated
from simulation.models.partition_history import Place
from simulation.models.transaction_model import TransactionModel
from simulation.scenarios.stage import Stage
from simulation.transactions.copier import Copier, Copies
from simulation.transactions.transaction_client import VERSION_1, VERSION_2, TransactionClient
from simulation.transactions.transaction_reader import Shown, TransactionReader, read_shown
from simulation.transactions.transactional_producer import Role, Strike, TransactionalProducer

_SHARE = 0.25
"""The share of seeds with transactions."""
_VIEW_SHARE = 0.5
"""The share of these seeds in which a reader reads through views that show all records."""
_TIMEOUTS_MS = (300, 1_000, 3_000)
_END_SECONDS = 3.0 + 10.0
"""Seconds until all transactions have ended: the longest timeout, and ten seconds for coordinators."""
_COPY_SECONDS = 60.0


def view_of(topic: str) -> str:
    return f"{topic}.view"


class TransactionCast:
    def __init__(self, stage: Stage, strike: Strike, *, is_shrinking: bool = False) -> None:
        """`is_shrinking`: an administrator reduces and restores the partition counts of the topics."""
        self._stage = stage
        self._strike = strike
        self._random = random = stage.world.random("transactions")
        self.is_there = random.random() < _SHARE
        self._model = TransactionModel()
        self._routing = stage.routing("transactions")
        topics = {"ledger-0": random.randint(1, 2), "ledger-1": random.randint(1, 2)}
        if is_shrinking:
            topics = {topic: count + 1 for topic, count in topics.items()}
        self._topics = topics if self.is_there else {}
        self._counts = CountAdmin(stage, "count-admin", topics) if self.is_there and is_shrinking else None
        self._places = [(topic, index) for topic, count in self._topics.items() for index in range(count)]
        self._roles: list[Role] = []
        self._readers: list[TransactionReader] = []
        self._producers: list[TransactionalProducer] = []
        self._copiers: list[Copier] = []
        self._all_copies: list[Copies] = []
        self._stable: dict[tuple[UUID, Place, int, int], int] = {}
        self._has_views = self.is_there and stage.world.random("transaction views").random() < _VIEW_SHARE
        if self.is_there:
            self._choose()

    @property
    def traits(self) -> frozenset[str]:
        if not self.is_there:
            return frozenset()
        versions = {f"version {role.dialect.version}" for role in self._roles}
        views = {"transactions of views"} if self._has_views else set()
        return frozenset(versions | {"transactions"} | views | ({"copiers"} if self._copiers else set()))

    @property
    def actors(self) -> list[Actor]:
        if not self.is_there:
            return []
        return [
            *self._readers,
            *self._producers,
            *self._copiers,
            PlainProducer(self._stage, self._model, self._places),
            *([] if self._counts is None else [self._counts]),
        ]

    def _choose(self) -> None:
        random = self._random
        for number in range(random.randint(1, 2)):
            role = self._role(f"id-{number}")
            places = self._places if random.random() < 0.7 else self._places[:1]
            for letter in "ab"[: random.choice((1, 2, 2))]:
                name = f"transactor-{number}{letter}"
                self._producers.append(
                    TransactionalProducer(self._stage, self._model, name, role, places, self._strike)
                )
        if random.random() < 0.7:
            going = ("ledger-0", self._topics["ledger-0"] - 1)
            copies = Copies("copiers", self._places[0] if self._counts is None else going)
            self._all_copies.append(copies)
            role = self._role("copiers")
            outputs = [place for place in self._places if place[0] != copies.source[0]]
            for letter in "ab"[: random.choice((1, 2))]:
                self._copiers.append(
                    Copier(self._stage, self._model, f"copier-{letter}", role, outputs, self._strike, copies)
                )
        for number, is_committed in enumerate((True, True, False)):
            self._readers.append(
                TransactionReader(self._stage, self._model, self._places, number, is_committed=is_committed)
            )
        if self._has_views:
            views = {topic: view_of(topic) for topic in self._topics}
            self._readers.append(
                TransactionReader(self._stage, self._model, self._places, 3, is_committed=True, views=views)
            )

    def _role(self, transactional_id: str) -> Role:
        dialect = self._random.choice((VERSION_1, VERSION_2))
        is_held = dialect is VERSION_2 and self._random.random() < 0.2
        role = Role(transactional_id, dialect, self._random.choice(_TIMEOUTS_MS), is_held)
        self._roles.append(role)
        return role

    async def open(self) -> None:
        """Create the topics."""
        for topic, count in self._topics.items():
            copies = self._random.choice((3, 3, 2))
            configs = {
                "segment.bytes": str(self._random.choice((2_000, 20_000, 1_000_000))),
                "min.insync.replicas": str(self._random.choice((1, 2)) if copies > 2 else 1),
            }
            if self._counts is not None:
                configs["partition.drain.quiet.ms"] = str(QUIET_MS)
            await retried(partial(self._create, topic, count, configs, copies), f"{topic} is not made")
            if self._has_views:
                shown = {"view.of": topic, "view.filter": "size >= 0"}
                await retried(
                    partial(self._create, view_of(topic), 1, shown, 1), f"the view of {topic} is not made"
                )

    async def _create(self, topic: str, count: int, configs: dict[str, str], copies: int) -> None:
        try:
            await (await self._routing.any_broker()).create_topic(topic, count, configs, copies)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise

    def look(self) -> None:
        """Check that the last stable offset does not decrease while one broker leads, and is not above the
        high watermark.
        """
        for member in self._stage.members:
            for replica in member.replicas() if member.is_serving else ():
                if not replica.partition.is_leader:
                    continue
                place = (replica.name.topic, replica.name.partition)
                stable = replica.log.last_stable_offset
                if stable > replica.log.high_watermark:
                    raise InvariantViolated("I6", f"{place}: {stable} is stable, but not committed")
                life = (replica.topic_id, place, member.node_id, replica.partition.leader_epoch)
                if stable < self._stable.get(life, 0):
                    raise InvariantViolated(
                        "I6", f"{place}: {self._stable[life]} was stable, now {stable} is"
                    )
                self._stable[life] = stable

    # --- the audit

    async def audit(self) -> None:
        if not self.is_there:
            return
        if self._counts is not None:
            await self._counts.restore()
        await self._end_held()
        await self._until_stable()
        if self._counts is not None and self._copiers:
            await self._until_copied(self._copiers[0])
            await self._end_held()
            await self._until_stable()
        committed: dict[Place, Sequence[Shown]] = {}
        for place in self._places:
            everything, committed[place] = await retried(
                partial(self._read_all, place), f"{place} cannot be read"
            )
            self._model.check_partition(place, everything, committed[place])
            for reader in self._readers:
                reader.check(place, committed[place] if reader.is_committed else everything)
        self._model.check_atomic(committed)
        for copies in self._all_copies:
            progress = await retried(self._copiers[0].progress, f"{copies.group} is not served")
            copies.check(progress, committed)

    async def _until_copied(self, copier: Copier) -> None:
        """Let a copier go on until its group has read its source to the end, although the partition may have gone."""
        deadline = self._stage.world.loop.time() + _COPY_SECONDS
        source = self._all_copies[0].source
        while True:
            with suppress(BrokerError, NoAnswer):
                _, shown = await read_shown(self._routing, source, is_committed=True)
                last = shown[-1][0] if shown else -1
                if await copier.progress() > last:
                    return
                await copier.step()
            if self._stage.world.loop.time() > deadline:
                raise InvariantViolated("reaches end", f"{copier.name} does not read {source} to its end")
            await asyncio.sleep(0.05)

    async def _end_held(self) -> None:
        """Fence the holders of open transactions, which nothing else would end."""
        for role in [role for role in self._roles if role.is_held]:
            client = TransactionClient(role.transactional_id, role.dialect, self._routing, self._random)
            producer = await retried(
                partial(client.initialise, role.timeout_ms, None, is_held=False),
                f"{role.transactional_id} is not served",
            )
            self._model.on_producer(role.transactional_id, f"the last of {role.transactional_id}", producer)

    async def _until_stable(self) -> None:
        deadline = self._stage.world.loop.time() + _END_SECONDS
        while unstable := self._unstable():
            if self._stage.world.loop.time() > deadline:
                raise InvariantViolated("I13", f"transactions do not end: {unstable}")
            await asyncio.sleep(0.05)

    def _unstable(self) -> list[str]:
        return [
            f"{replica.name} at {member.node_id}: {replica.log.last_stable_offset} of {replica.log.log_end_offset}"
            for member in self._stage.members
            for replica in member.replicas()
            if replica.log.last_stable_offset < replica.log.log_end_offset and replica.partition.is_leader
        ]

    async def _read_all(self, place: Place) -> tuple[list[Shown], list[Shown]]:
        """Return all records, and the committed ones, up to the same end."""
        end = await log_end(self._routing, place)
        _, uncommitted = await read_shown(self._routing, place, end=end, is_committed=False)
        _, committed = await read_shown(self._routing, place, end=end, is_committed=True)
        return uncommitted, committed


class PlainProducer:
    """Writes records outside of transactions: readers of committed data see them when no transaction before
    them is open.
    """

    def __init__(self, stage: Stage, model: TransactionModel, places: Sequence[Place]) -> None:
        self.name = "plain"
        self._stage = stage
        self._model = model
        self._places = places
        self._random = stage.world.random(self.name)
        self._routing = stage.routing(self.name)
        self._sent = 0

    async def step(self) -> None:
        place = self._random.choice(self._places)
        leader, _ = await self._routing.leader(*place)
        self._sent += 1
        value = f"plain {self._sent}".encode() + FILLING
        # No value is sent twice, so values have no order.
        self._model.on_send(place, value, 0, None, value.decode())
        batch = build_batch([NewRecord(None, value, self._stage.now_ms())])
        try:
            result = await leader.produce(*place, bytes(batch), -1, zstd=False).result()
        except (BrokerError, NoAnswer):
            self._routing.mistrust(*place)
            raise
        assert result is not None
        self._model.on_ack(value, result.base_offset)
        self._stage.note(self.name, "produce", value.decode(), result.base_offset)
