"""Creation and deletion of topics through the Kafka protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from bench.client_security import client_security
from bench.target import Target

TIMEOUT_S = 60
_numbers = itertools.count()


def create_topic(server: Target, name: str, partitions: int) -> None:
    admin = _admin(server)
    settings = {"min.insync.replicas": "2"} if server.copies > 1 else {}
    wanted = NewTopic(name, partitions, server.copies, config=settings)
    created = admin.create_topics([wanted], operation_timeout=TIMEOUT_S)
    created[name].result(TIMEOUT_S)
    wait_for_copies(admin, name, partitions, server.copies)


def delete_topic(server: Target, name: str) -> None:
    admin = _admin(server)
    admin.delete_topics([name], operation_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)


@contextmanager
def topic(server: Target, partitions: int) -> Iterator[str]:
    """A topic with a unique name that is deleted afterwards."""
    name = f"bench-{next(_numbers)}"
    create_topic(server, name, partitions)
    try:
        yield name
    finally:
        delete_topic(server, name)


def _admin(server: Target) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 4, **client_security()})


def wait_for_copies(admin: AdminClient, name: str, partitions: int, copies: int) -> None:
    """Wait until all partitions have leaders and replicas: a creation is acknowledged before every broker
    knows it.
    """
    for _ in range(TIMEOUT_S * 20):
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions.values()
        if len(found) == partitions and all(len(each.isrs) == copies and each.leader >= 0 for each in found):
            return
        admin.poll(0.05)
    raise KafkaException(f"topic {name} has not got all its leaders and copies within {TIMEOUT_S} s")
