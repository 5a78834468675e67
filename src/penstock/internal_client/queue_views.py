"""Views of queues: a queue that reads a part of a topic reads it through a view with the name of the queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.config import VIEW_FILTER, VIEW_OF
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.configs import ConfigCalls
from penstock.internal_client.topics import TopicCalls
from penstock.internal_client.views import View, ViewCalls


class Part(NamedTuple):
    """Part of a topic that a queue reads: the topic and a filter."""

    of: str
    filter: str


def queue_filter(filter_text: str | None, route: str | None) -> str:
    """Filter for messages that match a filter, a route pattern, or both; empty if neither is given."""
    if not route:
        return filter_text or ""
    quoted = route.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    routed = f'route("{quoted}")'
    end = "\n" if filter_text and "//" in filter_text else ""  # A comment would hide the bracket.
    return f"({filter_text}{end}) && {routed}" if filter_text else routed


class QueueViews:
    def __init__(self, topics: TopicCalls, configs: ConfigCalls) -> None:
        self._configs = configs
        self._views = ViewCalls(topics, configs)

    async def parts(self, topics: Iterable[str]) -> dict[str, Part]:
        """Part that each of these topics shows, for those that are views. Deleted topics, and topics whose
        settings the user may not see, are left out.
        """
        names = sorted({each for each in topics if each})
        if not names:
            return {}
        options = (VIEW_OF.name, VIEW_FILTER.name)
        described = await self._configs.describe(ConfigResourceType.TOPIC, names, options, skips_refused=True)
        found = {}
        for name, entries in described.items():
            values = {entry.name: entry.value or "" for entry in entries if not entry.is_default}
            if values.get(VIEW_OF.name):
                found[name] = Part(values[VIEW_OF.name], values.get(VIEW_FILTER.name, ""))
        return found

    async def create(self, queue: str, part: Part) -> None:
        """Create the view of a queue. A view that an interrupted creation has left is used."""
        try:
            await self._views.create(View(queue, *part, is_shared=False))
        except BrokerError as error:
            if error.code is not ErrorCode.topic_already_exists:
                raise
            if (await self.parts([queue])).get(queue) != part:
                raise BrokerError(
                    error.code,
                    f"there is a topic {queue!r} already; a queue with a filter needs a name that no topic has",
                ) from None

    async def set_filter(self, queue: str, topic: str, text: str) -> None:
        """Change the filter of a queue. Raises INVALID_REQUEST if the queue has no view of its own."""
        if topic != queue or topic not in await self.parts([topic]):
            raise BrokerError(
                ErrorCode.invalid_request,
                f"queue {queue} was created without a filter and reads {topic}; "
                f"create another queue: `penstock queue create NAME --of {topic} --filter EXPR`",
            )
        await self._views.set_filter(topic, text)
