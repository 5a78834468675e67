"""Topics made and removed through the Kafka protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.servers import Server

TIMEOUT_S = 60
_numbers = itertools.count()


def create_topic(server: Server, name: str, partitions: int) -> None:
    admin = _admin(server)
    created = admin.create_topics([NewTopic(name, partitions, 1)], operation_timeout=TIMEOUT_S)
    created[name].result(TIMEOUT_S)
    _wait_for_leaders(admin, name, partitions)


def delete_topic(server: Server, name: str) -> None:
    admin = _admin(server)
    admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)


@contextmanager
def topic(server: Server, partitions: int) -> Iterator[str]:
    """A topic with a name of its own, gone afterwards."""
    name = f"bench-{next(_numbers)}"
    create_topic(server, name, partitions)
    try:
        yield name
    finally:
        delete_topic(server, name)


def _admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4})


def _wait_for_leaders(admin: AdminClient, name: str, partitions: int) -> None:
    """Creation is answered before every broker thread knows of it; ask until all partitions have a leader."""
    for _ in range(TIMEOUT_S * 20):
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
        if len(found) == partitions and all(partition.leader >= 0 for partition in found.values()):
            return
        admin.poll(0.05)
    raise KafkaException(f"topic {name} has not got all its leaders within {TIMEOUT_S} s")
