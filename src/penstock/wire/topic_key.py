"""Key of a topic in Produce and Fetch: its name in old versions, its id in new ones."""

from __future__ import annotations

from penstock.model import TopicId
from penstock.wire import primitives
from penstock.wire.reader import Reader


class TopicKeys:
    """Reader and writer of topic keys in the versions of one API."""

    def __init__(self, flexible_from: int, id_from: int) -> None:
        self._flexible_from = flexible_from
        self._id_from = id_from

    def read(self, reader: Reader, version: int) -> tuple[str | None, TopicId | None]:
        """Read the topic's name or id, depending on the version. The other value is None."""
        if version >= self._id_from:
            return None, TopicId(reader.uuid())
        return (reader.compact_string() if version >= self._flexible_from else reader.string()), None

    def encode(self, name: str | None, topic_id: TopicId | None, version: int) -> bytes:
        if version >= self._id_from:
            return primitives.uuid(topic_id)
        assert name is not None
        return primitives.compact_string(name) if version >= self._flexible_from else primitives.string(name)
