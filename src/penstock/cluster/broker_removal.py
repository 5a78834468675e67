"""Removal of a dead broker's registration, without waiting for its session to expire.

The controller may remove any broker, and every broker may remove the controller. A broker that was removed
although it is alive finds its registration gone and registers again. Until then it may act as a leader, but
no write acknowledged with acks=all is lost: the new leader is a member of the recorded in-sync set, and the
former leader acknowledges only records that all members of that set have. Once the new leader leads, it stops
fetching from the former leader, which then acknowledges nothing further. The former leader cannot remove the
new one from the set, because that write is conditional on the partition epoch, which the election has
changed. A leader that is alone in the set has no successor and keeps its partition.
"""

from __future__ import annotations

from penstock.cluster import znodes
from penstock.cluster.change_list import ChangeList, Scope
from penstock.cluster.coordination import Check, CoordinationStore, Delete, Node, Operation
from penstock.cluster.image import RegisteredBroker
from penstock.cluster.metadata import ClusterMetadata
from penstock.model import BrokerId

MAX_ATTEMPTS = 3


class BrokerRemoval:
    def __init__(
        self, store: CoordinationStore, metadata: ClusterMetadata, change_list: ChangeList, node_id: BrokerId
    ) -> None:
        self._store = store
        self._metadata = metadata
        self._change_list = change_list
        self._node_id = node_id

    async def remove(self, dead: RegisteredBroker) -> bool:
        """Remove the registration. Returns True if this broker removed it; the image shows the removal then,
        and the controller elects new leaders.
        """
        for _ in range(MAX_ATTEMPTS):
            operations = await self._operations(dead)
            if not operations:
                return False
            entry = await self._change_list.commit(operations, Scope(members=True))
            if entry is not None:
                await self._metadata.applied(entry)
                return True
        return False

    async def _operations(self, dead: RegisteredBroker) -> list[Operation]:
        """Operations of the removal; empty if the registration is gone or this broker may not remove it."""
        directory_path, broker_path = znodes.directory_path(dead.node_id), znodes.broker_path(dead.node_id)
        paths = [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER, directory_path, broker_path]
        # Every new controller changes the first node and every registration the third one, so the checks make
        # the removal conditional on both.
        epoch, controller, directory, registration = await self._store.get_many(paths)
        if epoch is None or directory is None or registration is None or not _is(registration, dead):
            return []
        holder = znodes.decode(controller.data, znodes.ControllerNode).broker_id if controller else None
        if holder not in (dead.node_id, self._node_id):
            return []
        operations: list[Operation] = [
            Check(znodes.CONTROLLER_EPOCH, epoch.version),
            Check(directory_path, directory.version),
            Delete(broker_path, registration.version),
        ]
        if holder == dead.node_id:
            operations.append(Delete(znodes.CONTROLLER))
        return operations


def _is(registration: Node, broker: RegisteredBroker) -> bool:
    return znodes.decode(registration.data, znodes.BrokerNode).epoch == broker.epoch
