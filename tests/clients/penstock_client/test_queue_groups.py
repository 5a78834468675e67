"""`Queue` whose share group is changed by other tools."""

from __future__ import annotations

from penstock import Queue, QueueEmpty, ReceiptExpired
from penstock.internal_client.client import InternalClient, run
from penstock.internal_client.queues import NewQueue
from support.eventually import eventually

WAIT_S = 20.0


def test_queue_begins_anew_after_the_deletion_of_its_group(bootstrap: str, topic_name: str) -> None:
    run(
        InternalClient.to(bootstrap, "test", 20.0),
        lambda client: client.queues.create(NewQueue(topic_name, partitions=1)),
    )
    with Queue(topic_name, bootstrap=bootstrap) as queue:
        for value in ("a", "b"):
            queue.send(value)
        with queue.receive(wait_s=WAIT_S) as message:
            assert message.value == "a"
        run(InternalClient.to(bootstrap, "test", 20.0), lambda client: client.groups.delete(topic_name))
        accepted = set()

        def are_accepted() -> bool:
            try:
                with queue.receive(wait_s=1) as message:
                    value = message.value
                accepted.add(value)
            except (QueueEmpty, ReceiptExpired):
                return False  # the leader learns of the deletion a moment later
            return accepted == {"a", "b"}

        eventually(are_accepted)
