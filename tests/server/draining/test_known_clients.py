"""Clients that are shown partitions that go, their writers, and quiet times."""

from __future__ import annotations

from uuid import UUID

from penstock.model import TopicId, TopicPartition
from penstock.server.draining.known_clients import (
    MAX_CLIENTS,
    WAITING_MS,
    Acquaintances,
    ClientIdentity,
    KnownClients,
)
from penstock.server.draining.writers import MAX_WRITERS, Writers

TOPIC = TopicId(UUID(int=1))
ANNA, BERT = (ClientIdentity("User:ANONYMOUS", name, "host") for name in ("anna", "bert"))
NAME = TopicPartition("orders", 7)


def test_clients_connected_before_the_change_are_known() -> None:
    clients = KnownClients()
    clients.begin(TOPIC, [ANNA])
    clients.others = []
    assert not clients.is_in_doubt(TOPIC)
    assert clients.was_connected(TOPIC, ANNA)
    assert not clients.was_connected(TOPIC, BERT)
    clients.others = [Acquaintances({TOPIC: {BERT}}, {ANNA})]
    assert clients.was_connected(TOPIC, BERT)
    assert clients.is_consumer(ANNA)


def test_every_client_counts_as_known_while_a_broker_has_not_told() -> None:
    clients = KnownClients()
    assert clients.is_in_doubt(TOPIC)
    clients.begin(TOPIC, [ANNA])
    assert clients.is_in_doubt(TOPIC)
    clients.others = [Acquaintances(incomplete={TOPIC})]
    assert clients.is_in_doubt(TOPIC)


def test_too_many_clients_are_not_remembered() -> None:
    clients = KnownClients()
    clients.others = []
    clients.begin(TOPIC, (ClientIdentity("", str(number), "") for number in range(MAX_CLIENTS + 1)))
    assert clients.is_in_doubt(TOPIC)
    assert not clients.own.before[TOPIC]


def test_clients_of_topics_without_draining_partitions_are_forgotten() -> None:
    clients = KnownClients()
    clients.begin(TOPIC, [ANNA])
    clients.add([BERT], [ANNA])
    clients.keep(set())
    assert clients.own == Acquaintances()


def test_client_that_asks_repeatedly_without_writes_seems_to_wait() -> None:
    clients = KnownClients()
    clients.others = []
    assert not clients.seems_to_wait(TOPIC, ANNA, 1_000)
    assert not clients.seems_to_wait(TOPIC, ANNA, 1_000 + WAITING_MS - 1)
    assert clients.seems_to_wait(TOPIC, ANNA, 1_000 + WAITING_MS)
    clients.others = [Acquaintances(producers={ANNA})]
    assert not clients.seems_to_wait(TOPIC, ANNA, 99_000)


def test_writers_are_bounded_and_newest_first() -> None:
    writers = Writers()
    for number in range(MAX_WRITERS + 5):
        writers.note(NAME, ClientIdentity("", str(number), ""), number)
    writers.note(NAME, ClientIdentity("", "7", ""), 999)
    found = writers.of(NAME)
    assert len(found) == MAX_WRITERS
    assert found[0] == (ClientIdentity("", "7", ""), 999)
