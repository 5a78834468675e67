"""Conversion of a single broker to a cluster: copies the broker's coordination store, with all topics and
ids, to an empty target store.

The copy can be interrupted and repeated. `/adopting` names the cluster that is being copied. `/cluster` is
written last, after all other nodes were verified, and the cluster exists from then on. Nothing may write to
the source during the copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.cluster import znodes
from penstock.cluster.coordination import (
    CoordinationStore,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
)
from penstock.cluster.topic_writes import MAX_NODE_BYTES
from penstock.errors import PenstockError, UnknownOutcome

ROOT = "/"
ADOPTING = "/adopting"
OF_ZOOKEEPER = "/zookeeper"
"""Node of ZooKeeper itself, at the root of every server."""

NUMBERED = (f"{znodes.CHANGES}/", f"{znodes.DELETED_TOPICS}/")

MAX_ATTEMPTS = 20
MAX_OPERATIONS = 500

Nodes = Mapping[str, bytes]


class AdoptionFailed(PenstockError):
    """The target store belongs to another cluster or is not empty, or the copy did not complete."""


@dataclass(frozen=True, slots=True)
class AdoptionResult:
    cluster_id: str
    topics: int
    partitions: int
    nodes: int


async def adopt(source: CoordinationStore, target: CoordinationStore) -> AdoptionResult:
    """Copy all persistent nodes of the source. Raises AdoptionFailed if the target holds another cluster or
    other nodes.
    """
    wanted = await _read_lasting(source)
    for _ in range(MAX_ATTEMPTS):
        try:
            if await _copy(wanted, target):
                return _summary(wanted)
        except (UnknownOutcome, NoNode, NodeExists, NotEmpty):
            continue  # the next attempt reads the target again
    raise AdoptionFailed("the outcome in the coordination store is unknown; run the command again")


async def _copy(wanted: dict[str, bytes], target: CoordinationStore) -> bool:
    """Do the next step of the copy. Returns True when the copy is complete."""
    cluster = wanted[znodes.CLUSTER]
    present = await _read(target)
    if znodes.CLUSTER in present:
        _check_same(present[znodes.CLUSTER], cluster)
        return True
    if ADOPTING not in present:
        if present.keys() - {ROOT}:
            raise AdoptionFailed("the chroot is not empty; give an empty one as HOST:PORT/CHROOT")
        await target.create(ADOPTING, cluster)
        return False
    _check_same(present[ADOPTING], cluster)
    rest = {path: data for path, data in wanted.items() if path != znodes.CLUSTER} | {
        ADOPTING: present[ADOPTING]
    }
    operations = list(_differences(present, rest))
    if operations:
        for some in _batches(operations):
            await target.multi(some)
        return False
    await target.multi([Create(znodes.CLUSTER, cluster), Delete(ADOPTING)])
    return False


def _differences(present: Nodes, wanted: Nodes) -> Iterator[Operation]:
    for path in sorted(present.keys() - wanted.keys(), reverse=True):
        yield Delete(path)
    for path in sorted(wanted):
        if path not in present:
            yield Create(path, wanted[path])
        elif wanted[path] != present[path]:
            yield Set(path, wanted[path])


def _batches(operations: Iterable[Operation]) -> Iterator[Sequence[Operation]]:
    """Split operations into batches that fit into one multi."""
    batch: list[Operation] = []
    size = 0
    for operation in operations:
        more = len(operation.path) + len(getattr(operation, "data", b""))
        if batch and (len(batch) == MAX_OPERATIONS or size + more > MAX_NODE_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(operation)
        size += more
    if batch:
        yield batch


async def _read_lasting(source: CoordinationStore) -> dict[str, bytes]:
    """All nodes of the source by path, without ephemeral nodes and without the change list and the list of
    deleted topics, which no broker of the new cluster needs.
    """
    nodes = await _read(source)
    if znodes.CLUSTER not in nodes:
        raise AdoptionFailed("the broker has never been started")
    return {path: data for path, data in nodes.items() if not path.startswith(NUMBERED)}


async def _read(store: CoordinationStore) -> dict[str, bytes]:
    """All nodes that are not ephemeral, by path."""
    found: dict[str, bytes] = {}
    level = [ROOT]
    while level:
        nodes = await store.get_many(level)
        here = {
            path: node.data
            for path, node in zip(level, nodes, strict=True)
            if node is not None and not node.ephemeral
        }
        found |= here
        children = await asyncio.gather(*(store.children(path) for path in here))
        level = [
            path
            for parent, names in zip(here, children, strict=True)
            for name in names
            if (path := f"{parent.rstrip('/')}/{name}") != OF_ZOOKEEPER
        ]
    return found


def _check_same(present: bytes, wanted: bytes) -> None:
    here = znodes.decode(present, znodes.ClusterNode).cluster_id
    ours = znodes.decode(wanted, znodes.ClusterNode).cluster_id
    if here != ours:
        raise AdoptionFailed(f"the chroot holds cluster {here}; this broker belongs to cluster {ours}")


def _summary(nodes: Nodes) -> AdoptionResult:
    topics = [path for path in nodes if path.startswith(f"{znodes.TOPICS}/")]
    partitions = sum(path.count("/") > 2 for path in topics)
    cluster_id = znodes.decode(nodes[znodes.CLUSTER], znodes.ClusterNode).cluster_id
    return AdoptionResult(cluster_id, len(topics) - partitions, partitions, len(nodes))
