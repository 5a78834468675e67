"""Clients to which Metadata still shows the partitions that are being removed: clients that were connected before, and
consumers.

A client is identified by principal, client id and host. Clients that were connected when a topic began to shrink may
have batched records for these partitions, so they keep seeing them. Consumers see the partitions so that they can read
them to the end. The lists are hints and are never stored: brokers exchange them, and while they are incomplete every
client counts as known. A client that wrongly counts as known makes draining slower; a client that wrongly counts as
unknown gets errors for its batched records.

Loop thread only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.model import TopicId

WAITING_MS = 3_000
MAX_CLIENTS = 10_000
"""Maximum number of clients that are remembered for a topic. Beyond it every client counts as known."""


class ClientIdentity(NamedTuple):
    principal: str
    client_id: str
    host: str


@dataclass(slots=True)
class Acquaintances:
    """Clients that one broker knows while topics shrink."""

    before: dict[TopicId, set[ClientIdentity]] = field(default_factory=dict)
    """Clients that were connected when the topic began to shrink."""
    consumers: set[ClientIdentity] = field(default_factory=set)
    producers: set[ClientIdentity] = field(default_factory=set)
    incomplete: set[TopicId] = field(default_factory=set)
    """Topics that began to shrink before this broker started, or that have too many clients."""


class KnownClients:
    def __init__(self) -> None:
        self.own = Acquaintances()
        self.others: list[Acquaintances] | None = None
        """Clients that the other brokers know; None while a broker has not responded."""
        self._asked_since_ms: dict[tuple[TopicId, ClientIdentity], int] = {}
        """Monotonic time in milliseconds at which an unknown client first requested the metadata of a topic."""

    def begin(self, topic_id: TopicId, connected: Iterable[ClientIdentity]) -> None:
        """Remember the clients that are connected when a topic begins to shrink, or shrinks further."""
        known = self.own.before.setdefault(topic_id, set())
        known.update(connected)
        if len(known) > MAX_CLIENTS:
            known.clear()
            self.own.incomplete.add(topic_id)

    def add(self, consumers: Iterable[ClientIdentity], producers: Iterable[ClientIdentity]) -> None:
        """Remember clients that have fetched or produced."""
        for known, found in ((self.own.consumers, consumers), (self.own.producers, producers)):
            known.update(found)
            if len(known) > MAX_CLIENTS:
                known.clear()
                self.own.incomplete.update(self.own.before)

    def keep(self, topics: set[TopicId]) -> None:
        """Forget topics that do not shrink any more."""
        for topic_id in self.own.before.keys() - topics:
            del self.own.before[topic_id]
        self.own.incomplete &= topics
        for asked in [each for each in self._asked_since_ms if each[0] not in topics]:
            del self._asked_since_ms[asked]
        if not topics:
            self.own.consumers.clear()
            self.own.producers.clear()
            self.others = None

    def is_in_doubt(self, topic_id: TopicId) -> bool:
        if self.others is None or topic_id in self.own.incomplete or topic_id not in self.own.before:
            return True
        return any(topic_id in each.incomplete for each in self.others)

    def is_consumer(self, client: ClientIdentity) -> bool:
        return any(client in each.consumers for each in self._all())

    def seems_to_wait(self, topic_id: TopicId, client: ClientIdentity, now_ms: int) -> bool:
        """True if a client has requested the metadata of the topic for `WAITING_MS` and written nothing. A consumer
        does so if it is assigned a partition that Metadata does not show to it.
        """
        if any(client in each.producers for each in self._all()) or len(self._asked_since_ms) >= MAX_CLIENTS:
            return False
        return now_ms - self._asked_since_ms.setdefault((topic_id, client), now_ms) >= WAITING_MS

    def was_connected(self, topic_id: TopicId, client: ClientIdentity) -> bool:
        return any(client in each.before.get(topic_id, ()) for each in self._all())

    def _all(self) -> Iterable[Acquaintances]:
        return (self.own, *(self.others or ()))
