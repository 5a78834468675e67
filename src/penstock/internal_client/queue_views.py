"""Views of queues: a queue that reads a part of a topic has a view of it, with the name of the queue."""

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
    """The part of a topic that a queue reads."""

    of: str
    filter: str


def queue_filter(filter_text: str | None, route: str | None) -> str:
    """Filter of the messages that match a filter, a pattern of routes, or both; empty without either."""
    if not route:
        return filter_text or ""
    quoted = route.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    routed = f'route("{quoted}")'
    end = "\n" if filter_text and "//" in filter_text else ""  # a comment would hide the bracket
    return f"({filter_text}{end}) && {routed}" if filter_text else routed


class QueueViews:
    def __init__(self, topics: TopicCalls, configs: ConfigCalls) -> None:
        self._configs = configs
        self._views = ViewCalls(topics, configs)

    async def parts(self, topics: Iterable[str]) -> dict[str, Part]:
        """Parts of those topics that are views. A topic that is gone, or whose settings are secret, is left out."""
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
        """Create the view of a queue, unless an interrupted creation has left it."""
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
        """Change the filter of a queue; INVALID_REQUEST if the queue has no view of its own."""
        if topic != queue or topic not in await self.parts([topic]):
            raise BrokerError(
                ErrorCode.invalid_request,
                f"queue {queue} was created without a filter and reads {topic}; "
                f"create another queue: `penstock queue create NAME --of {topic} --filter EXPR`",
            )
        await self._views.set_filter(topic, text)
