"""A member of a share group that a test kills and stops: prints what it gets, and what it has acknowledged.

Each line has the time in nanoseconds, the event, and partition:offset pairs. `D` is a delivery, with the time at which
`poll` was called; `T` are records whose acceptance is sent, `A` those whose acceptance the broker has confirmed, with
the time of the confirmation. `R` and `J` are the same for rejections.
"""

from __future__ import annotations

import random
import sys
import time

from confluent_kafka import AcknowledgeType, KafkaException, ShareConsumer


def main(bootstrap: str, group: str, topic: str, seed: int, rejected_share: float = 0.0) -> None:
    source = random.Random(seed)
    consumer = _consumer(bootstrap, group)
    consumer.subscribe([topic])
    while True:
        called_ns = time.monotonic_ns()
        try:
            messages = consumer.poll(0.5)
        except KafkaException:
            continue
        accepted: dict[int, list[int]] = {}
        rejected: dict[int, list[int]] = {}
        for message in (each for each in messages if each.error() is None):
            _say(called_ns, "D", [(message.partition(), message.offset())])
            if source.random() < 0.05:
                consumer.acknowledge(message, AcknowledgeType.RELEASE)
            elif source.random() < rejected_share:
                consumer.acknowledge(message, AcknowledgeType.REJECT)
                rejected.setdefault(message.partition(), []).append(message.offset())
            else:
                consumer.acknowledge(message, AcknowledgeType.ACCEPT)
                accepted.setdefault(message.partition(), []).append(message.offset())
        for event, chosen in (("T", accepted), ("R", rejected)):
            if chosen:
                _say(
                    called_ns,
                    event,
                    [(partition, each) for partition, some in chosen.items() for each in some],
                )
        try:
            results = consumer.commit_sync(10.0)
        except KafkaException:
            continue
        stored_ns = time.monotonic_ns()
        for partition, error in results.items():
            for event, chosen in (("A", accepted), ("J", rejected)):
                offsets = chosen.get(partition.partition, [])
                if error is None and offsets:
                    _say(stored_ns, event, [(partition.partition, offset) for offset in offsets])


def _consumer(bootstrap: str, group: str) -> ShareConsumer:
    return ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            "socket.timeout.ms": 5_000,
        }
    )


def _say(when_ns: int, event: str, records: list[tuple[int, int]]) -> None:
    places = " ".join(f"{partition}:{offset}" for partition, offset in records)
    sys.stdout.write(f"{when_ns} {event} {places}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
