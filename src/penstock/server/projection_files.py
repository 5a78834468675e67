"""Files that list the records of a segment that a projection shows. They are written for closed segments, and removed
when the view is deleted or its filter changes.

Loop thread only; work that waits for the disk runs in a thread pool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.cluster.image import ClusterImage
from penstock.errors import StorageError
from penstock.observability.logs import Logger
from penstock.replication.replica import Replica
from penstock.server.context import BrokerContext
from penstock.server.projection_kinds import projection_of
from penstock.storage.projection.match_index import matches_suffix
from penstock.storage.segment import MATCHES_SUFFIX, Segment

UNREAD_SECONDS = 600.0
"""Time in seconds for which a projection keeps its entries in memory after its last read."""
_NONE: frozenset[str] = frozenset()


class ProjectionFiles:
    def __init__(self, context: BrokerContext, logger: Logger, goes_on: Callable[[], bool]) -> None:
        self._context = context
        self._logger = logger
        self._goes_on = goes_on
        self._image: ClusterImage | None = None
        """Cluster image at the last removal of files."""
        self._wanted: Mapping[str, frozenset[str]] = {}

    async def maintain(self) -> None:
        """Write missing files, and remove the files of deleted views and earlier filters."""
        await self._remove_unwanted()
        for replica in self._context.replicas.upkeep:
            replica.projections.drop_unread(UNREAD_SECONDS)
            for projected in replica.projections:
                try:
                    while replica.truncating is None and self._goes_on():
                        if not await projected.maintain(self._goes_on):
                            break
                except (OSError, StorageError) as error:
                    self._logger.error_rarely(
                        "file of matching records could not be written", error, partition=replica.name
                    )

    async def _remove_unwanted(self) -> None:
        image = self._context.metadata.image
        if image is self._image:
            return
        is_first, self._image = self._image is None, image
        before, self._wanted = self._wanted, _wanted_suffixes(image)
        for replica in self._context.replicas:
            topic = replica.name.topic
            wanted = self._wanted.get(topic, _NONE)
            if is_first or before.get(topic, _NONE) != wanted:
                await self._remove(replica, wanted)

    async def _remove(self, replica: Replica, wanted: frozenset[str]) -> None:
        for segment in replica.log.segments:
            for suffix in segment.derived - wanted:
                if suffix.endswith(MATCHES_SUFFIX) and self._goes_on():
                    await self._remove_file(replica, segment, suffix)

    async def _remove_file(self, replica: Replica, segment: Segment, suffix: str) -> None:
        segment.derived -= {suffix}
        disk, path = replica.log.files.disk, segment.derived_path(suffix)
        try:
            await self._context.threads.run("background", lambda: disk.remove(path))
        except OSError as error:
            self._logger.error_rarely(
                "file of matching records could not be removed", error, partition=replica.name
            )


def _wanted_suffixes(image: ClusterImage) -> dict[str, frozenset[str]]:
    """Suffixes of the files that are in use, by the topic that stores the records."""
    wanted: dict[str, frozenset[str]] = {}
    for name in image.projected:
        projection, source = projection_of(image, name), image.views.get(name, name)
        if projection is not None:
            wanted[source] = wanted.get(source, _NONE) | {matches_suffix(projection.identity)}
    return wanted
