"""Questions about partition counts: set a smaller count, show the progress of draining, and exchange reports between
brokers.
"""

from __future__ import annotations

from typing import Any

from penstock.cluster.image import TopicImage
from penstock.cluster.internal_topics import refuse_internal
from penstock.cluster.metadata_change import existing_topic
from penstock.cluster.shrinking import CountChange, WantedCount
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.slices import in_slices
from penstock.model import TopicPartition
from penstock.server.context import BrokerContext
from penstock.server.draining.draining import CONSUMER_SEEN, QUESTION, Draining
from penstock.server.draining.group_positions import GroupPositions, collect
from penstock.server.draining.known_clients import ClientIdentity
from penstock.server.inspection.question import Arguments, Question, integer, text
from penstock.server.security import Operation


async def _set(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    topic = text(arguments, "topic")
    refuse_internal(topic)
    try:
        change = CountChange(arguments.get("change", CountChange.SET.value))
    except ValueError:
        raise BrokerError(
            ErrorCode.invalid_request, "the argument change must be set, seal-now or drop-sealed"
        ) from None
    waits = bool(integer(arguments, "waits_for_groups", 1))
    wanted = WantedCount(topic, integer(arguments, "count"), change, waits)
    changed = await _draining(context).counts.set(wanted, validate_only=bool(integer(arguments, "dry_run")))
    await context.replicas.settled()
    return _phases(changed)


async def _show_phases(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    topic = existing_topic(context.image, text(arguments, "topic"))
    return _phases(context.image.shown(topic))


async def _show_progress(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    """Progress of the partitions that this broker leads and that are being removed, and positions of the groups that it
    coordinates.

    With the argument `count`, show the partitions that a change to this count would remove. Their writers are then
    observed for a moment (`Draining.observe`).
    """
    topic = existing_topic(context.image, text(arguments, "topic"))
    count = integer(arguments, "count") or topic.active_count
    going = [TopicPartition(topic.name, index) for index in range(count, len(topic.partitions))]
    draining = _draining(context)
    led = {replica.name: replica for replica in context.replicas if replica.partition.is_leader}
    observed = draining.writers
    if count < topic.active_count:
        observed = await draining.observe([led[name] for name in going if name in led])
    positions = GroupPositions()
    await in_slices(collect(context, positions, {topic.name: count}))
    verdicts = draining.advancer.verdicts
    return {
        **_phases(topic),
        "led": {
            name.partition: {
                "log_start_offset": led[name].log.log_start_offset,
                "high_watermark": led[name].log.high_watermark,
                "bytes": led[name].log.size_bytes,
                "waits_for": list(verdicts[name].reasons) if name in verdicts else [],
                "writers": [[*client, last_ms] for client, last_ms in observed.of(name)],
            }
            for name in going
            if name in led
        },
        "groups": {
            name.partition: list(found) for name, found in positions.found.items() if name.topic == topic.name
        },
    }


async def _report(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    return await _draining(context).report(with_groups=bool(integer(arguments, "groups")))


async def _know_consumer(context: BrokerContext, arguments: Arguments) -> None:
    """Remember a consumer that another broker has reported."""
    names = (text(arguments, field) for field in ClientIdentity._fields)
    _draining(context).clients.add([ClientIdentity(*names)], ())


def _phases(topic: TopicImage) -> dict[str, Any]:
    return {
        "active": topic.active_count,
        "phases": [state.phase.name.lower() for state in topic.partitions],
        "since_ms": [state.phase_since_ms for state in topic.partitions],
    }


def _draining(context: BrokerContext) -> Draining:
    assert context.draining is not None, "the broker has started"
    return context.draining


SET_PARTITION_COUNT = Question("set_partition_count", Operation.ALTER, _set, is_about_topic=True)
PARTITION_PHASES = Question("partition_phases", Operation.DESCRIBE, _show_phases, is_about_topic=True)
DRAIN_PROGRESS = Question("drain_progress", Operation.DESCRIBE, _show_progress, is_about_topic=True)
DRAIN_REPORT = Question(QUESTION, Operation.CLUSTER_ACTION, _report)
CONSUMER_FOUND = Question(CONSUMER_SEEN, Operation.CLUSTER_ACTION, _know_consumer)
