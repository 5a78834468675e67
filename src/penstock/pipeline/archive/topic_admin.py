"""Topic administration for the archiver: topic configs, archived offsets and truncation."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config.resources import ConfigResourceType
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.records import RecordCalls
from penstock.internal_client.routes import Routes
from penstock.pipeline.offsets import TopicPartition, run

ARCHIVE_REQUIRED, ARCHIVE_OFFSETS = "archive.required", "archive.offsets"


def topic_settings(bootstrap: str, topics: list[str], names: list[str]) -> dict[str, dict[str, str]]:
    """Values of these configs by topic. Configs that the cluster does not support are left out."""

    async def describe(routes: Routes) -> dict[str, dict[str, str]]:
        found = await ConfigCalls(routes).describe(ConfigResourceType.TOPIC, topics, names)
        return {topic: {each.name: each.value or "" for each in entries} for topic, entries in found.items()}

    return run(bootstrap, describe)


def note_archived(bootstrap: str, topics: Mapping[str, Mapping[int, int]]) -> None:
    """Set `archive.offsets` of the topics: the archived end offset of each partition."""
    changes = {topic: {ARCHIVE_OFFSETS: _offsets(offsets)} for topic, offsets in topics.items()}

    async def alter(routes: Routes) -> None:
        await ConfigCalls(routes).alter_many(ConfigResourceType.TOPIC, changes, may_repeat=True)

    run(bootstrap, alter)


def truncate(bootstrap: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Delete the records before these offsets."""

    async def delete(routes: Routes) -> None:
        for (topic, partition), offset in offsets.items():
            await RecordCalls(routes).delete_before(topic, {partition: offset})

    run(bootstrap, delete)


def _offsets(offsets: Mapping[int, int]) -> str:
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))
