"""Views of a cluster: list and create them, and get the shared view of a topic and filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.config import VIEW_FILTER, VIEW_OF, VIEW_SHARED
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.filters.shared_names import shared_view_name
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.topics import NewTopic, TopicCalls

_TOPICS_PER_REQUEST = 1_000
_OPTIONS = (VIEW_OF.name, VIEW_FILTER.name, VIEW_SHARED.name)


@dataclass(frozen=True, slots=True)
class View:
    name: str
    of: str
    filter: str
    is_shared: bool
    """True if the cluster removes the view when it is no longer used."""


class ViewCalls:
    def __init__(self, topics: TopicCalls, configs: ConfigCalls) -> None:
        self._topics = topics
        self._configs = configs

    async def all(self) -> Sequence[View]:
        """Read every view, sorted by name."""
        names = [topic.name for topic in await self._topics.all() if not topic.is_internal]
        found: list[View] = []
        for start in range(0, len(names), _TOPICS_PER_REQUEST):
            found += await self._read(names[start : start + _TOPICS_PER_REQUEST])
        return sorted(found, key=lambda view: view.name)

    async def get(self, name: str) -> View | None:
        """Read a view; None if the topic is not a view. Raises UNKNOWN_TOPIC_OR_PARTITION if it does not exist."""
        await self._topics.get(name, fresh=True)
        return next(iter(await self._read([name])), None)

    async def create(self, view: View, *, validate_only: bool = False) -> None:
        configs = {VIEW_OF.name: view.of, VIEW_FILTER.name: view.filter}
        if view.is_shared:
            configs[VIEW_SHARED.name] = "true"
        await self._topics.create(NewTopic(view.name, configs=configs), validate_only=validate_only)

    async def share(self, topic: str, text: str) -> str:
        """Create the shared view of a topic and a filter, or mark the existing one as used. Returns its name."""
        view = View(shared_view_name(topic, text), topic, text.strip(), is_shared=True)
        try:
            await self.create(view)
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
            # The time until the view is removed as unused starts again.
            await self.set_filter(view.name, view.filter)
        return view.name

    async def set_filter(self, name: str, text: str) -> None:
        await self._configs.alter(ConfigResourceType.TOPIC, name, {VIEW_FILTER.name: text})

    async def _read(self, names: Sequence[str]) -> list[View]:
        if not names:
            return []
        described = await self._configs.describe(ConfigResourceType.TOPIC, names, _OPTIONS)
        found = []
        for name, entries in described.items():
            values = {entry.name: entry.value or "" for entry in entries if not entry.is_default}
            if values.get(VIEW_OF.name):
                shared = values.get(VIEW_SHARED.name) == "true"
                found.append(View(name, values[VIEW_OF.name], values[VIEW_FILTER.name], shared))
        return found
