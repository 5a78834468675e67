"""The controller's writes: all of a change or nothing of it, fenced by its epoch, with one entry in the list.

The entry tells other brokers what to read again, and its token tells the writer, after an unknown outcome,
whether the change happened. The list keeps the last thousand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.cluster import znodes
from penstock.cluster.coordination import (
    Check,
    CoordinationStore,
    Create,
    Delete,
    Node,
    Operation,
    SessionExpired,
    StoreError,
)
from penstock.cluster.election import Office
from penstock.errors import BrokerError, ErrorCode, StorageError, UnknownOutcome

MAX_CHANGES = 1_000


class ChangeList:
    def __init__(self, store: CoordinationStore, office: Office) -> None:
        self._store = store
        self._office = office
        self._paths: deque[str] = deque()
        self._commits = 0

    async def load(self) -> None:
        names = await self._store.children(znodes.CHANGES)
        self._paths = deque(f"{znodes.CHANGES}/{name}" for name in names)

    async def commit(self, operations: Sequence[Operation], topics: Sequence[str]) -> bool:
        """Whether they are in the store now; False where a condition failed or the write got lost.

        NOT_CONTROLLER when this broker is controller no more, KAFKA_STORAGE_ERROR when the disk refuses.
        """
        self._commits += 1
        token = f"{self._office.epoch}-{self._commits}"
        trim = [Delete(self._paths[0])] if len(self._paths) >= MAX_CHANGES else []
        data = znodes.encode(znodes.ChangeNode(token, tuple(topics)))
        entry = Create(znodes.CHANGE_PREFIX, data, sequential=True)
        try:
            results = await self._write([*trim, *operations, entry])
        except UnknownOutcome:
            return await self._contains(token)
        if results is None:
            return False
        if trim:
            self._paths.popleft()
        self._paths.append(str(results[-1]))
        return True

    async def write_unseen(self, operations: Sequence[Operation]) -> bool:
        """Write what no broker looks at, so without an entry; False where it failed or may have."""
        try:
            return await self._write(operations) is not None
        except UnknownOutcome:
            return False

    async def _write(self, operations: Sequence[Operation]) -> list[str | Node | None] | None:
        """None where a condition failed."""
        fence = Check(znodes.CONTROLLER_EPOCH, self._office.epoch_version)
        try:
            return await self._store.multi([fence, *operations])
        except StoreError as error:
            if isinstance(error, SessionExpired) or error.path == znodes.CONTROLLER_EPOCH:
                raise BrokerError(ErrorCode.not_controller, "this broker is controller no more") from error
            return None
        except StorageError as error:
            raise BrokerError(ErrorCode.kafka_storage_error, str(error)) from error

    async def _contains(self, token: str) -> bool:
        await self.load()
        nodes = await self._store.get_many(list(self._paths))
        return any(node and znodes.decode(node.data, znodes.ChangeNode).token == token for node in nodes)
