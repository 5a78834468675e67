"""The topics that a share group reads, as its coordinator knows them, on this broker or on another one."""

from __future__ import annotations

from typing import Final

from penstock.cluster.config_changes import ConfigChange
from penstock.cluster.dead_letter_topics import check_not_read
from penstock.config import DEAD_LETTER_TOPIC_NAME
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError
from penstock.groups.share.group import ShareGroup
from penstock.server.context import BrokerContext

QUESTION: Final = "share_topics"


def own_topics(context: BrokerContext, group_id: str) -> list[str]:
    """Topics of a share group if its coordinator is on this broker: the subscribed ones, and those it has read."""
    found: set[str] = set()
    for shard in context.groups.shards:
        group = shard.groups.get(group_id)
        if isinstance(group, ShareGroup):
            found |= group.remembered.subscribed
            found |= {topic.name for topic in group.remembered.topics.initialized.values()}
    return sorted(found)


async def _topics(context: BrokerContext, group_id: str) -> set[str]:
    """Topics that a share group reads. If the broker with its coordinator does not respond, the topics are missing
    here; partition leaders still refuse dead letters to the group's own topic.
    """
    assert context.draining is not None, "the broker has started"
    found = set(own_topics(context, group_id))
    for answer in await context.draining.ask_others(QUESTION, {"group": group_id}):
        topics = answer.get("topics") if isinstance(answer, dict) else None
        found.update(each for each in topics or () if isinstance(each, str))
    return found


async def checked_group(
    context: BrokerContext, change: ConfigChange | BrokerError
) -> ConfigChange | BrokerError:
    """The change unmodified, or an error if it sets a topic that the share group reads as the dead-letter topic of the
    group.
    """
    if isinstance(change, BrokerError) or change.kind is not ConfigResourceType.GROUP:
        return change
    named = [each.value for each in change.alterations if each.name == DEAD_LETTER_TOPIC_NAME.name]
    try:
        for topic in filter(None, named):
            check_not_read(context.image, topic, await _topics(context, change.name))
    except BrokerError as error:
        return error
    return change
