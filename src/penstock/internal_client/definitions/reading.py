"""Reader of the definitions of a cluster. Responses that several sections need are shared."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from penstock.config.resources import ConfigResourceType
from penstock.internal_client.acls import AclCalls
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.pipelines import DEFINITIONS, LOGS, STATUSES, PipelineCalls
from penstock.internal_client.queues import QueueCalls, QueueSummary
from penstock.internal_client.quotas import QuotaCalls
from penstock.internal_client.retry_policies import RetryPolicyCalls
from penstock.internal_client.schedules import ScheduleCalls
from penstock.internal_client.topic_routes import TopicRoute
from penstock.internal_client.topics import TopicCalls
from penstock.internal_client.users import UserCalls
from penstock.internal_client.views import ViewCalls
from penstock.internal_client.webhooks import WebhookCalls

_STATE_TOPICS: Final = frozenset({DEFINITIONS.name, LOGS.name, STATUSES.name})
"""Internal topics of pipelines, which the first declaration of a pipeline creates."""
Visible = Callable[[str, Sequence[str]], Awaitable[Iterable[str]]]
"""Function that returns the names of a resource type whose settings the user may see."""


class ClusterCalls(Protocol):
    """Interface for requests to a cluster, implemented by the gateway's backend and by a client."""

    topics: TopicCalls
    configs: ConfigCalls
    views: ViewCalls
    queues: QueueCalls
    schedules: ScheduleCalls
    webhooks: WebhookCalls
    retry_policies: RetryPolicyCalls
    pipelines: PipelineCalls
    users: UserCalls
    acls: AclCalls
    quotas: QuotaCalls


async def all_visible(kind: str, names: Sequence[str]) -> Iterable[str]:
    """Return every name, because the brokers decide what the user may see."""
    return names


class DefinitionReading:
    """One reading of the definitions. A request whose response several sections need is sent once."""

    def __init__(self, cluster: ClusterCalls, visible: Visible = all_visible) -> None:
        self.cluster = cluster
        self._visible = visible
        self._topics: dict[str, tuple[TopicRoute, dict[str, str]]] | None = None
        self._groups: dict[str, dict[str, str]] | None = None
        self._queues: dict[str, QueueSummary] | None = None

    async def topics(self) -> Mapping[str, tuple[TopicRoute, dict[str, str]]]:
        """Topics other than internal ones, with the settings that are set on them."""
        if self._topics is None:
            routes = {
                each.name: each
                for each in await self.cluster.topics.all()
                if not each.is_internal and each.name not in _STATE_TOPICS
            }
            own = await self._own(ConfigResourceType.TOPIC, "TOPIC", list(routes))
            self._topics = {name: (routes[name], configs) for name, configs in own.items()}
        return self._topics

    async def groups(self) -> Mapping[str, dict[str, str]]:
        """Settings of the groups that have any."""
        if self._groups is None:
            names = await self.cluster.configs.names(ConfigResourceType.GROUP)
            self._groups = await self._own(ConfigResourceType.GROUP, "GROUP", names)
        return self._groups

    async def queues(self) -> Mapping[str, QueueSummary]:
        if self._queues is None:
            visible = await self.groups()
            self._queues = {
                each.name: each for each in await self.cluster.queues.all() if each.name in visible
            }
        return self._queues

    async def _own(
        self, kind: ConfigResourceType, resource: str, names: Sequence[str]
    ) -> dict[str, dict[str, str]]:
        visible = set(await self._visible(resource, names))
        # A resource may be deleted between the two requests.
        return await self.cluster.configs.own(kind, [name for name in names if name in visible])
