"""The share groups of a simulated cluster: a topic, its writers, members of one or two groups and an administrator.

Some seeds write to the topic in transactions as well, and read it with read_committed.
"""

from __future__ import annotations

from functools import partial

from simulation.clients.actor import Actor
from simulation.clients.retries import retried
from simulation.scenarios.stage import Stage
from simulation.shares.dead_letter_topic import DeadLetterTopic
from simulation.shares.share_admin import ShareAdmin
from simulation.shares.share_audit import ShareAudit
from simulation.shares.share_group import ShareGroup
from simulation.shares.share_inspector import ShareInspector
from simulation.shares.share_member import ShareMember
from simulation.shares.share_topic import ShareTopic, ShareWriter
from simulation.transactions.transaction_client import VERSION_1, VERSION_2
from simulation.transactions.transactional_producer import Role, Strike, TransactionalProducer

_SHARE = 0.25
"""The share of seeds with share groups."""
_ORDERED = 0.35
"""The share of them whose records have keys and priorities."""
_WITH_LETTERS = 0.5
"""The share of them whose groups have back-offs and dead letters."""
_OF_VIEWS = 0.3
"""The share of those without transactions whose groups read a view."""
_FREED = 0.4
"""The share of them whose topic has `retention.acknowledged`."""


class ShareCast:
    def __init__(self, stage: Stage, strike: Strike) -> None:
        self._stage = stage
        self._random = random = stage.world.random("shares")
        self.is_there = random.random() < _SHARE
        self._is_transactional = random.random() < 0.5
        copies = random.choice((3, 3, 2))
        configs = {
            "segment.bytes": str(random.choice((2_000, 20_000, 1_000_000))),
            "min.insync.replicas": str(random.choice((1, 2)) if copies > 2 else 1),
        }
        queues = stage.world.random("queue shares")
        self._has_letters = queues.random() < _WITH_LETTERS
        self._is_view = not self._is_transactional and queues.random() < _OF_VIEWS
        self._is_freed = queues.random() < _FREED
        if self._is_freed:
            configs["retention.acknowledged"] = "true"
        self._topic = ShareTopic(1, random.randint(1, 2), configs, copies, is_view=self._is_view)
        self._letters = DeadLetterTopic(stage, queues, copies) if self._has_letters else None
        self._writer = ShareWriter(stage, self._topic)
        self._groups = [
            ShareGroup(
                stage, self._topic, number, is_committed=self._is_transactional and random.random() < 0.7
            )
            for number in range(random.choice((1, 1, 2)))
        ]
        order = stage.world.random("delivery order")
        if order.random() < _ORDERED and not self._is_view:
            self._writer.contents = order
        self._inspector = ShareInspector(stage, self._groups, is_freed=self._is_freed)
        self._strike = strike

    @property
    def traits(self) -> frozenset[str]:
        if not self.is_there:
            return frozenset()
        is_committed = any(group.model.is_committed for group in self._groups)
        kinds = {"ordered shares"} if self._writer.contents is not None else set()
        kinds |= {"queue shares"} if self._has_letters else set()
        kinds |= {"shares of views"} if self._is_view else set()
        kinds |= {"acknowledged shares"} if self._is_freed else set()
        kinds |= {"shares"} | ({"committed shares"} if is_committed else set())
        return frozenset(kinds | ({"transactional shares"} if self._is_transactional else set()))

    @property
    def actors(self) -> list[Actor]:
        if not self.is_there:
            return []
        stage, random = self._stage, self._random
        may_replace = not self._is_transactional
        admin = ShareAdmin(stage, self._groups, self._writer, self._letters, may_replace=may_replace)
        actors: list[Actor] = [self._writer, admin]
        for group in self._groups:
            actors += [ShareMember(stage, group, number) for number in range(random.randint(2, 4))]
        if self._is_transactional:
            dialect = random.choice((VERSION_1, VERSION_2))
            role = Role("shares", dialect, random.choice((300, 1_000)))
            topic = self._topic
            actors.append(
                TransactionalProducer(stage, topic.model, "work-transactor", role, topic.places, self._strike)
            )
        return actors

    async def open(self) -> None:
        """Create the topic."""
        if self.is_there:
            await retried(partial(self._topic.create, self._stage), "the topic of share groups is not made")
            if self._letters is not None:
                await retried(self._letters.create, "the dead-letter topic is not made")

    def look(self) -> None:
        if self.is_there:
            self._inspector.look()

    async def audit(self) -> None:
        if self.is_there:
            self._writer.contents = None  # a record that its key blocks would not arrive at once
            routing = self._stage.routing("share-audit")
            for group in self._groups:
                await ShareAudit(self._stage, group, self._writer, routing, self._letters).run()
            if self._letters is not None:
                await self._letters.audit(self._groups, routing)
