"""Retry policies of consumer groups: set, read and delete them.

The policy of a group is stored in the configs of its retry topic (`delay/retry_policy.py`), so that the
leaders of the topic apply it and Kafka's tools show it.
"""

from __future__ import annotations

from penstock.config.resources import ConfigResourceType
from penstock.delay.retry_names import retry_topic
from penstock.delay.retry_policy import OPTIONS, RetryPolicy, read_policy
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.routes import Routes
from penstock.internal_client.topics import NewTopic, TopicCalls


class RetryPolicyCalls:
    def __init__(self, routes: Routes) -> None:
        self._topics = TopicCalls(routes)
        self._configs = ConfigCalls(routes)

    async def set(self, policy: RetryPolicy, partitions: int = -1) -> RetryPolicy:
        """Set the policy of a group. Creates the retry topic and the dead-letter topic if they do not exist."""
        if policy.dead_letter == policy.topic:
            raise BrokerError(
                ErrorCode.invalid_config,
                f"{policy.dead_letter} cannot be the dead-letter topic: it is the retry topic itself; name another one",
            )
        letters = NewTopic(policy.dead_letter, partitions)
        if policy.dead_letter:
            await self._create(letters, validate_only=True)
        topic = NewTopic(policy.topic, partitions, configs=policy.topic_configs)
        if await self._create(topic):
            await self._check_retry_topic(policy)
            changes = dict(policy.configs)
            await self._configs.alter(ConfigResourceType.TOPIC, policy.topic, changes, may_repeat=True)
        if policy.dead_letter:
            await self._create(letters)
        return await self.get(policy.group)

    async def _create(self, topic: NewTopic, *, validate_only: bool = False) -> bool:
        """Create a topic. Returns True if it existed before."""
        try:
            await self._topics.create(topic, validate_only=validate_only)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
            return True
        return False

    async def _check_retry_topic(self, policy: RetryPolicy) -> None:
        configs = await self._read(policy.topic, ["delivery.delay"])
        if configs.get("delivery.delay") != "true":
            raise BrokerError(
                ErrorCode.invalid_config,
                f"there is a topic {policy.topic} without delivery.delay=true, and the group {policy.group[:80]} needs "
                "its name for the retry topic; delete that topic first",
            )

    async def _read(self, topic: str, options: list[str]) -> dict[str, str | None]:
        found = await self._configs.describe(ConfigResourceType.TOPIC, [topic], options)
        return {each.name: each.value for each in found[topic]}

    async def get(self, group: str) -> RetryPolicy:
        """Read the policy of a group. Raises RESOURCE_NOT_FOUND if it has none."""
        try:
            policy = read_policy(group, await self._read(retry_topic(group), list(OPTIONS)))
        except BrokerError as error:
            if error.code is not ErrorCode.unknown_topic_or_partition:
                raise
            policy = None
        if policy is None:
            raise BrokerError(
                ErrorCode.resource_not_found,
                f"group {group[:80]!r} has no retry policy; `penstock retry-policy set` sets one",
            )
        return policy

    async def delete(self, group: str) -> RetryPolicy:
        """Delete the policy of a group and return it. The retry topic stays, because it may hold messages."""
        policy = await self.get(group)
        removed = dict.fromkeys(OPTIONS)
        await self._configs.alter(ConfigResourceType.TOPIC, policy.topic, removed, may_repeat=True)
        return policy
