"""Initialization of a new coordination store, and election of the controller.

Every election increases the controller epoch. Every write of a controller is conditional on the version of
`/controller_epoch`, so a fenced controller writes nothing. Partition leaders are elected in `leader_election.py`.
"""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import dataclass
from random import Random  # noqa: TID251 - the type; the numbers come from the caller

import msgspec

from penstock.cluster import znodes
from penstock.cluster.coordination import BadVersion, CoordinationStore, Create, NodeExists, NoNode, Set
from penstock.cluster.topics import draw_uuid
from penstock.errors import BrokerError, ErrorCode, UnknownOutcome
from penstock.model import BrokerId


@dataclass(frozen=True, slots=True)
class ControllerTerm:
    """Term of a controller: its epoch, and the version of the node `/controller_epoch`, which fences its writes."""

    epoch: int
    epoch_version: int


_ADDED_LATER = (
    znodes.GROUP_CONFIGS,
    znodes.BROKER_DIRECTORIES,
    znodes.DELETED_TOPICS,
    znodes.USERS,
    znodes.ACLS,
    znodes.QUOTAS,
)
"""Nodes that stores created by older versions lack."""


async def initialize_store(store: CoordinationStore, random: Random) -> None:
    """Create the cluster id and the fixed nodes of a new store in one write. Existing nodes are not changed."""
    cluster_id = base64.urlsafe_b64encode(draw_uuid(random).bytes).decode().rstrip("=")
    fixed = [
        Create(znodes.CLUSTER, znodes.encode(znodes.ClusterNode(cluster_id, secret=_draw_secret(random)))),
        Create(znodes.BROKERS),
        Create(znodes.BROKER_IDS),
        Create(znodes.BROKER_EPOCH, znodes.encode(znodes.BrokerEpochNode(0))),
        Create(znodes.BROKER_DIRECTORIES),
        Create(znodes.BROKER_CONFIGS),
        Create(znodes.CONTROLLER_EPOCH, znodes.encode(znodes.ControllerEpochNode(0))),
        Create(znodes.TOPICS),
        Create(znodes.PRODUCER_IDS, znodes.encode(znodes.ProducerIdsNode(0))),
        Create(znodes.CHANGES),
        Create(znodes.GROUP_CONFIGS),
        Create(znodes.USERS),
        Create(znodes.ACLS),
        Create(znodes.QUOTAS),
        Create(znodes.DELETED_TOPICS),
    ]
    while await store.get_many([znodes.CLUSTER]) == [None]:
        try:
            await store.multi(fixed)
        except (NodeExists, UnknownOutcome):
            continue
    await _ensure_secret(store, random)
    for path in _ADDED_LATER:
        while await store.get_many([path]) == [None]:
            try:
                await store.multi([Create(path)])
            except (NodeExists, UnknownOutcome):
                continue


async def _ensure_secret(store: CoordinationStore, random: Random) -> None:
    """Create the cluster secret if the store is from a version without it."""
    while True:
        node = await store.get(znodes.CLUSTER)
        cluster = znodes.decode(node.data, znodes.ClusterNode)
        if cluster.secret:
            return
        mine = msgspec.structs.replace(cluster, secret=_draw_secret(random))
        with suppress(BadVersion, UnknownOutcome):
            await store.set(znodes.CLUSTER, znodes.encode(mine), node.version)


def _draw_secret(random: Random) -> str:
    return f"{random.getrandbits(256):064x}"


async def become_controller(store: CoordinationStore, broker_id: BrokerId) -> ControllerTerm:
    """Become the controller. Raises BrokerError NOT_CONTROLLER while another broker is the controller."""
    while True:
        held = await _current_controller(store)
        node = await store.get(znodes.CONTROLLER_EPOCH)
        epoch = znodes.decode(node.data, znodes.ControllerEpochNode).epoch
        if held is not None:
            if held == znodes.ControllerNode(broker_id, epoch):
                return ControllerTerm(epoch, node.version)
            raise BrokerError(ErrorCode.not_controller, f"broker {held.broker_id} is the controller")
        mine = znodes.ControllerNode(broker_id, epoch + 1)
        try:
            await store.multi(
                [
                    Set(
                        znodes.CONTROLLER_EPOCH,
                        znodes.encode(znodes.ControllerEpochNode(epoch + 1)),
                        node.version,
                    ),
                    Create(znodes.CONTROLLER, znodes.encode(mine), ephemeral=True),
                ]
            )
        except (BadVersion, NodeExists, UnknownOutcome):
            continue


async def _current_controller(store: CoordinationStore) -> znodes.ControllerNode | None:
    try:
        return znodes.decode((await store.get(znodes.CONTROLLER)).data, znodes.ControllerNode)
    except NoNode:
        return None
