"""Reader of a topic as a group member. The offset of a record is committed after the record was printed."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from penstock.cli.cluster_client import ClusterClient, client_config
from penstock.cli.reader import check_event, has_expired, next_messages, read_failure, to_record
from penstock.cli.record import IncomingRecord
from penstock.client.errors import damage_of

_ENDING = (signal.SIGINT, signal.SIGTERM)


def read_group(
    cluster: ClusterClient, topic: str, group: str, *, reset: str, follow: bool, maximum: int | None
) -> Iterator[list[IncomingRecord]]:
    """Yield batches of the member's partitions up to their ends or, with `follow`, without end.

    Requesting the next batch marks the previous one as read. At the end the offsets are committed and the member leaves
    the group, so that other members get its partitions at once.
    """
    cluster.partitions(topic)
    consumer = Consumer(_config(cluster, group, reset))
    progress = _Progress()
    with _Interruption() as interruption:
        try:
            consumer.subscribe([topic], on_assign=progress.assigned, on_revoke=progress.revoked)
            left = maximum
            while left != 0 and not interruption.came and (follow or not progress.at_end):
                found = next_messages(consumer)
                damaged = next((place for place, each in enumerate(found) if damage_of(each)), len(found))
                read, shown = _take_live(filter(progress.take, found[:damaged]), left)
                if read:
                    yield [to_record(message) for message in shown]
                    for message in read:
                        consumer.store_offsets(message)
                    left = None if left is None else left - len(shown)
                if left != 0 and damaged < len(found):
                    check_event(found[damaged])
        except KafkaException as error:
            raise read_failure(f"{topic} as a member of group {group}", error) from None
        finally:
            consumer.close()


def _take_live(messages: Iterable[Message], limit: int | None) -> tuple[list[Message], list[Message]]:
    """Return the first messages until `limit` of them have not expired, and the same messages without the
    expired ones.
    """
    read: list[Message] = []
    shown: list[Message] = []
    for message in messages:
        if len(shown) == limit:
            break
        read.append(message)
        if not has_expired(message):
            shown.append(message)
    return read, shown


class _Interruption:
    """Delays the first SIGINT or SIGTERM until offsets are committed and the member has left the group.

    A second signal takes effect at once.
    """

    came: signal.Signals | None = None

    def __enter__(self) -> _Interruption:
        self._before = {number: signal.signal(number, self._keep) for number in _ENDING}
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()
        if self.came is not None:
            signal.raise_signal(self.came)

    def _keep(self, number: int, frame: object) -> None:
        self.came = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


class _Progress:
    """Partitions of the member that are not read to their end."""

    def __init__(self) -> None:
        self._unfinished: set[int] | None = None

    @property
    def at_end(self) -> bool:
        return self._unfinished is not None and not self._unfinished

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._unfinished = {place.partition for place in partitions} | (self._unfinished or set())

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self._unfinished is not None:
            self._unfinished -= {place.partition for place in partitions}

    def take(self, message: Message) -> bool:
        """Return True if a message is a record. Otherwise handle the end of a partition, or raise the error."""
        if message.error() is None:
            return True
        check_event(message)
        if self._unfinished is not None and message.partition() is not None:
            self._unfinished.discard(message.partition())
        return False


def _config(cluster: ClusterClient, group: str, reset: str) -> dict[str, object]:
    return client_config(cluster.bootstrap) | {
        "group.id": group,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": reset,
        "check.crcs": True,
        "fetch.wait.max.ms": 100,
    }
