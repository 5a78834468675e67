"""The coordination store: a small tree of versioned nodes that the cluster agrees on (ZooKeeper's model).

Implementations: `embedded` (SQLite, one broker), `zookeeper` (a cluster), `memory` (tests and simulation). All
pass the same contract tests. Any write may raise UnknownOutcome: it may or may not have happened, the caller
reads again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.errors import PenstockError


class StoreError(PenstockError):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNode(StoreError):
    pass


class NodeExists(StoreError):
    pass


class BadVersion(StoreError):
    pass


class NotEmpty(StoreError):
    pass


class EphemeralParent(StoreError):
    """An ephemeral node has no children."""


class SessionExpired(StoreError):
    """The session and its ephemeral nodes are gone: the holder must stop acting on them."""


class StoreUnreachable(StoreError):
    """No connection to the store within the session timeout; nothing was written. The session may live on."""

    def __str__(self) -> str:
        return f"the coordination store at {self.path} does not answer"


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int
    created: int
    """The store-wide number of the multi that made the node (ZooKeeper's czxid): a later one is greater."""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    path: str
    data: bytes
    version: int = -1
    """The version the node must have; -1 for any."""


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Operation = Create | Set | Delete | Check


class SessionState(Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


class CoordinationStore(Protocol):
    """Paths are absolute and slash-separated; a node's parent must exist.

    A session that expired is over: EXPIRED is told once, from then on calls raise SessionExpired, and the owner
    makes another store.
    """

    async def start(self) -> None: ...

    async def close(self) -> None:
        """End the session: its ephemeral nodes go at once."""
        ...

    async def get(self, path: str) -> Node:
        """NoNode where there is none."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Pipelined reads, in order; None for a node that is not there."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names of the children, sorted."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        """All or nothing. Per operation: Create gives the path made, Set the new Node, Delete and Check None.

        Raises the StoreError of the first operation that fails (NoNode, NodeExists, BadVersion, NotEmpty,
        EphemeralParent) with its path.
        """
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """The path made; a sequential node's has ten digits appended: how many children the parent ever had."""
        ...

    async def set(self, path: str, data: bytes, version: int = -1) -> Node: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the loop after every change of the node or its children; returns what stops it."""
        ...

    def on_session(self, callback: Callable[[SessionState], None]) -> None: ...


class SingleWrites(ABC):
    """One write is a multi of one, in every implementation."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]: ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        [made] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    async def set(self, path: str, data: bytes, version: int = -1) -> Node:
        [node] = await self.multi([Set(path, data, version)])
        assert isinstance(node, Node)
        return node

    async def delete(self, path: str, version: int = -1) -> None:
        await self.multi([Delete(path, version)])
