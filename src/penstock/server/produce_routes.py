"""Cache of decoded Produce requests: from the bytes in front of the records to the partition, acks and timeout (a
route).

A route is added after a request has passed every check on the general path. It holds no result of a check that can
change: topic id, authorization and leadership are checked for every request. The table is bounded; a request without a
route takes the general path. Loop thread only.
"""

from __future__ import annotations

from penstock.server.produce_waits import ProduceWaits
from penstock.wire.plain_produce import PlainResponses, encode_route, split_plain
from penstock.wire.produce import ProduceRequest

MAX_ROUTES = 8192
FIRST_RECORD_BATCH_VERSION = 3
_VERSIONS = 14


class ProduceRoute:
    """Decoded form of all plain requests in one version that have the same bytes in front of the records."""

    __slots__ = ("acks", "index", "key", "responses", "topic", "topic_id", "version", "waits")

    def __init__(self, key: bytes, version: int, request: ProduceRequest) -> None:
        self.key = key
        self.version = version
        self.acks = request.acks
        ((self.topic, self.topic_id, (partition,)),) = request.topics
        self.index = partition.index
        self.responses = PlainResponses(version, request)
        self.waits = ProduceWaits(request.acks, request.timeout_ms)


class ProduceRoutes:
    __slots__ = ("_by_version", "_count")

    def __init__(self) -> None:
        self._by_version: list[dict[bytes, ProduceRoute]] = [{} for _ in range(_VERSIONS)]
        self._count = 0

    def find(self, frame: memoryview, position: int, version: int) -> tuple[ProduceRoute, memoryview] | None:
        """Route and records of a plain request; None if the request is not plain or has no route yet."""
        found = split_plain(frame, position, version)
        if found is None:
            return None
        route = self._by_version[version].get(found[0])
        return None if route is None else (route, found[1])

    def remember(self, frame: memoryview, position: int, version: int, request: ProduceRequest) -> None:
        """Add the route of a request that passed every check, if the request is plain."""
        if not _is_plain(version, request):
            return
        found = split_plain(frame, position, version)
        routes = self._by_version[version]
        if found is None or found[0] in routes or found[0] != encode_route(version, request):
            return
        if self._count >= MAX_ROUTES:
            self._clear()
        self._count += 1
        routes[found[0]] = ProduceRoute(found[0], version, request)

    def forget(self, route: ProduceRoute) -> None:
        """Remove a route whose requests take the general path from now on."""
        if self._by_version[route.version].pop(route.key, None) is not None:
            self._count -= 1

    def _clear(self) -> None:
        for routes in self._by_version:
            routes.clear()
        self._count = 0


def _is_plain(version: int, request: ProduceRequest) -> bool:
    return (
        version >= FIRST_RECORD_BATCH_VERSION
        and request.transactional_id is None
        and len(request.topics) == 1
        and len(request.topics[0].partitions) == 1
        and request.topics[0].partitions[0].records is not None
    )
