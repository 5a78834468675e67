"""Taking a broker that is dead out of the cluster at once, instead of waiting for its session to expire.

The controller may do so with any broker, every broker with the controller. A broker that was wrongly taken for dead
finds its registration gone and joins again; until it knows, it may take itself for a leader. That costs no write that
was acknowledged with acks=all. Its successor comes from the recorded in-sync set, and the wrong one acknowledges only
what every member of that set has: what it did acknowledge the successor has, and once the successor leads it fetches
no more, so nothing further is acknowledged. To take the successor out of the set is a write on condition of the
partition's version, which the election has changed. Alone in the set it has no successor, and keeps what it has.
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
        """Whether it was this broker that removed it; that is in the image then. Elections follow from there."""
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
        """Nothing, where this registration is gone or it is not for us to remove it."""
        directory_path, broker_path = znodes.directory_path(dead.node_id), znodes.broker_path(dead.node_id)
        paths = [znodes.CONTROLLER_EPOCH, znodes.CONTROLLER, directory_path, broker_path]
        # Every controller changes the first and every registration the third: both are as they are read here, or
        # nothing is written.
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
