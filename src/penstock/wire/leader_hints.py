"""Tagged fields of Produce and Fetch responses that tell a client the new leader of a partition and its
address (KIP-951).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from penstock.wire import primitives
from penstock.wire.reader import Reader

_LEADER = Struct(">ii")
_ENDPOINT_BYTES = 11
_NODE_ENDPOINTS_TAG = 0


class CurrentLeader(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_leader(leader: CurrentLeader) -> bytes:
    return _LEADER.pack(*leader) + primitives.NO_TAGS


def read_leader(reader: Reader) -> CurrentLeader:
    leader = CurrentLeader(reader.int32(), reader.int32())
    reader.skip_tags()
    return leader


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [primitives.compact_array_length(len(endpoints))]
    for node_id, host, port, rack in endpoints:
        parts += (
            primitives.INT32(node_id),
            primitives.compact_string(host),
            primitives.INT32(port),
            primitives.nullable_compact_string(rack),
            primitives.NO_TAGS,
        )
    return b"".join(parts)


def encode_endpoints_tag(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Tagged fields of a response with the endpoints, or without any if there are none."""
    if not endpoints:
        return primitives.NO_TAGS
    return b"\x01" + primitives.tagged(_NODE_ENDPOINTS_TAG, encode_endpoints(endpoints))


def read_endpoints_tag(reader: Reader) -> list[NodeEndpoint]:
    """Read the endpoints among the tagged fields of a response."""
    endpoints: list[NodeEndpoint] = []
    last = -1
    for _ in range(reader.tags()):
        last, end = reader.tag(last)
        if last == _NODE_ENDPOINTS_TAG:
            count = reader.compact_array_length(_ENDPOINT_BYTES)
            endpoints = [_read_endpoint(reader) for _ in range(count)]
            reader.close_tag(end)
        reader.position = end
    return endpoints


def _read_endpoint(reader: Reader) -> NodeEndpoint:
    endpoint = NodeEndpoint(
        reader.int32(), reader.compact_string(), reader.int32(), reader.nullable_compact_string()
    )
    reader.skip_tags()
    return endpoint
