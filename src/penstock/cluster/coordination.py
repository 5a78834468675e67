"""Interface of the coordination store: a small tree of versioned nodes, as in ZooKeeper.

Implementations: `embedded` (SQLite, one broker), `zookeeper` (a cluster), `memory` (tests and simulation).
All pass the same contract tests. Any write may raise UnknownOutcome: the write may or may not have happened,
and the caller has to read the nodes again.
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
    """The parent is an ephemeral node, which cannot have children."""


class SessionExpired(StoreError):
    """The session has expired and its ephemeral nodes are gone. Its owner must no longer rely on them."""


class StoreUnreachable(StoreError):
    """No connection to the store within the session timeout. Nothing was written. The session may still be alive."""

    def __str__(self) -> str:
        return f"the coordination store at {self.path} does not respond"


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int
    created: int
    """Store-wide number of the multi that created the node (ZooKeeper's czxid). Later multis have higher numbers."""
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
    """Version that the node must have; -1 accepts any version."""


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
    """One session of a coordination store. Paths are absolute and separated by slashes; a node's parent must
    exist.

    An expired session is final: EXPIRED is reported once, then calls raise SessionExpired, and the owner
    creates another store.
    """

    async def start(self) -> None: ...

    async def close(self) -> None:
        """End the session, which removes its ephemeral nodes at once."""
        ...

    async def get(self, path: str) -> Node:
        """Read a node. Raises NoNode if it does not exist."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Read nodes in one pipeline, in order. A node that does not exist is None."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names of the node's children, sorted."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        """Run all operations atomically. Results: the created path for Create, the new Node for Set, None for
        Delete and Check.

        Raises the StoreError of the first operation that fails (NoNode, NodeExists, BadVersion, NotEmpty,
        EphemeralParent) with its path.
        """
        ...

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node and return its path. Ten digits are appended to the path of a sequential node: the
        number of children that the parent has had so far.
        """
        ...

    async def set(self, path: str, data: bytes, version: int = -1) -> Node: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back on the loop after every change of the node or its children. Returns a function that ends
        the watch.
        """
        ...

    def on_session(self, callback: Callable[[SessionState], None]) -> None: ...


class SingleWrites(ABC):
    """Base class that implements single writes as a multi of one operation."""

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
