"""Change list: each metadata change is written atomically with a numbered entry that names what changed.

Any broker writes. The entry tells all brokers what to read again. Its token tells the writer, after an
unknown outcome, whether the change was written. Numbers have no gaps; the controller removes old entries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.cluster import znodes
from penstock.cluster.coordination import (
    Check,
    CoordinationStore,
    Create,
    Delete,
    Operation,
    SessionExpired,
    StoreError,
    StoreUnreachable,
)
from penstock.errors import BrokerError, ErrorCode, UnknownOutcome

MAX_CHANGES = 1_000
TRIMMED_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of a change: names of changed topics, partitions, broker configs, group configs, users, access
    control lists and quotas, and whether registrations changed.
    """

    topics: frozenset[str] = frozenset()
    partitions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    broker_configs: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    members: bool = False
    users: frozenset[str] = frozenset()
    acls: frozenset[str] = frozenset()
    quotas: frozenset[str] = frozenset()


class ChangeList:
    """Writer of change list entries. `writer` must be unique in the cluster."""

    def __init__(self, store: CoordinationStore, writer: str) -> None:
        self._store = store
        self._writer = writer
        self._commits = 0

    async def commit(
        self, operations: Sequence[Operation], scope: Scope, fence: Check | None = None
    ) -> int | None:
        """Write a change. Returns the number of its entry, or None if a condition failed or the write did not
        happen.

        Raises BrokerError NOT_CONTROLLER if the fence failed.
        """
        self._commits += 1
        token = f"{self._writer}-{self._commits}"
        node = znodes.ChangeNode(
            token,
            tuple(sorted(scope.topics)),
            dict(scope.partitions),
            tuple(sorted(scope.broker_configs)),
            tuple(sorted(scope.groups)),
            scope.members,
            tuple(sorted(scope.users)),
            tuple(sorted(scope.acls)),
            tuple(sorted(scope.quotas)),
        )
        entry = Create(znodes.CHANGE_PREFIX, znodes.encode(node), sequential=True)
        try:
            results = await self._store.multi([*([fence] if fence else []), *operations, entry])
        except UnknownOutcome:
            return await self._find(token)
        except (SessionExpired, StoreUnreachable):
            raise
        except StoreError as error:
            if fence is not None and error.path == fence.path:
                raise BrokerError(
                    ErrorCode.not_controller, "this broker is no longer the controller"
                ) from error
            return None
        return znodes.change_number(str(results[-1]))

    async def write_unlisted(self, operations: Sequence[Operation]) -> bool:
        """Write nodes that no broker reads, without an entry. Returns False if the write failed or its
        outcome is unknown.
        """
        try:
            await self._store.multi(operations)
        except (SessionExpired, StoreUnreachable):
            raise
        except (StoreError, UnknownOutcome):
            return False
        return True

    async def trim(self) -> None:
        """Remove the oldest entries, up to `MAX_CHANGES` in one write, once enough of them have accumulated."""
        names = await self._store.children(znodes.CHANGES)
        if len(names) >= MAX_CHANGES + TRIMMED_AT_ONCE:
            old = names[: len(names) - MAX_CHANGES]
            await self.write_unlisted([Delete(f"{znodes.CHANGES}/{name}") for name in old[:MAX_CHANGES]])

    async def _find(self, token: str) -> int | None:
        names = await self._store.children(znodes.CHANGES)
        nodes = await self._store.get_many([f"{znodes.CHANGES}/{name}" for name in names])
        for name, node in zip(names, nodes, strict=True):
            if node is not None and znodes.decode(node.data, znodes.ChangeNode).token == token:
                return znodes.change_number(name)
        return None
