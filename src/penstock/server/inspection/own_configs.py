"""Questions for the settings that were set on topics or groups themselves, without the many other settings that
DescribeConfigs returns.
"""

from __future__ import annotations

from typing import Any

from penstock.config import GroupConfig, TopicConfig
from penstock.server.context import BrokerContext
from penstock.server.inspection.question import Arguments, Question, texts
from penstock.server.security import Operation, ResourceType


async def _of_topics(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    topics, config = context.image.topics, context.config
    named = texts(arguments, "names")
    return {name: TopicConfig(config, topics[name].configs).own() for name in named if name in topics}


async def _of_groups(context: BrokerContext, arguments: Arguments) -> dict[str, Any]:
    groups, config = context.image.group_configs, context.config
    named = texts(arguments, "names")
    return {name: GroupConfig(config, groups[name].values).own() for name in named if name in groups}


TOPIC_CONFIGS = Question(
    "topic_configs", Operation.DESCRIBE_CONFIGS, _of_topics, about_each_of=ResourceType.TOPIC
)
GROUP_CONFIGS = Question(
    "group_configs", Operation.DESCRIBE_CONFIGS, _of_groups, about_each_of=ResourceType.GROUP
)
"""The answers leave out names that do not exist, or that the client may not describe."""
