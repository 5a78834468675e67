"""Tree of versioned nodes behind the embedded and the in-memory store. Pure, without time or IO.

A multi is prepared, which checks it without changing the tree, and applied later, so that a store can make it
durable in between. There is at most one prepared write that was not applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.cluster.coordination import (
    BadVersion,
    Check,
    Create,
    Delete,
    EphemeralParent,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Set,
)

NO_OWNER = 0
ROOT = "/"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    data: bytes
    version: int
    created: int
    owner: int = NO_OWNER
    """Session that owns the node, if it is ephemeral."""
    next_sequence: int = 0
    """Number of the next sequential child, which counts all children so far, as in ZooKeeper."""

    def node(self) -> Node:
        return Node(self.data, self.version, self.created, self.owner != NO_OWNER)


@dataclass(frozen=True, slots=True)
class PreparedWrite:
    """Valid multi: the changed entries by path (None for removed ones) and the results of the operations."""

    changes: dict[str, TreeEntry | None]
    results: list[str | Node | None]
    touched: frozenset[str]
    """Paths whose watchers must be notified: changed nodes, and created or removed nodes with their parents."""
    last_change: int


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or ROOT


def check_path(path: str) -> None:
    if path != ROOT and (not path.startswith("/") or path.endswith("/") or "//" in path):
        raise ValueError(f"not an absolute path: {path!r}")


class Tree:
    def __init__(self) -> None:
        self.entries: dict[str, TreeEntry] = {ROOT: TreeEntry(b"", 0, 0)}
        self.last_change = 0
        self._children: dict[str, set[str]] = {ROOT: set()}

    def copy(self) -> Tree:
        tree = Tree()
        tree.put(self.entries.items())
        tree.last_change = self.last_change
        return tree

    def get(self, path: str) -> Node:
        check_path(path)
        entry = self.entries.get(path)
        if entry is None:
            raise NoNode(path)
        return entry.node()

    def children(self, path: str) -> list[str]:
        check_path(path)
        if path not in self.entries:
            raise NoNode(path)
        return sorted(self._children[path])

    def child_count(self, path: str) -> int:
        return len(self._children.get(path, ()))

    def owned_by(self, session: int) -> list[str]:
        return [path for path, entry in self.entries.items() if entry.owner == session]

    def prepare(self, operations: Sequence[Operation], session: int) -> PreparedWrite:
        return _Preparation(self, session).run(operations)

    def apply(self, transaction: PreparedWrite) -> None:
        self.put(transaction.changes.items())
        self.last_change = transaction.last_change

    def put(self, changes: Iterable[tuple[str, TreeEntry | None]]) -> None:
        """Set entries without checks, in any order. Used by `apply` and to load a stored tree."""
        for path, entry in changes:
            parent, name = parent_of(path), path.rpartition("/")[2]
            if entry is not None:
                self.entries[path] = entry
                self._children.setdefault(path, set())
                if path != ROOT:
                    self._children.setdefault(parent, set()).add(name)
            else:
                self.entries.pop(path, None)
                self._children.pop(path, None)
                self._children.get(parent, set()).discard(name)


class _Preparation:
    """Check of one multi. Changes are collected in an overlay, so the tree does not change."""

    def __init__(self, tree: Tree, session: int) -> None:
        self._tree = tree
        self._session = session
        self._changes: dict[str, TreeEntry | None] = {}
        self._child_count_change: Counter[str] = Counter()
        self._touched: set[str] = set()
        self._last_change = tree.last_change

    def run(self, operations: Sequence[Operation]) -> PreparedWrite:
        results = [self._run_one(operation) for operation in operations]
        return PreparedWrite(self._changes, results, frozenset(self._touched), self._last_change)

    def _run_one(self, operation: Operation) -> str | Node | None:
        check_path(operation.path)
        match operation:
            case Create():
                return self._create(operation)
            case Set():
                return self._set(operation)
            case Delete():
                self._delete(operation)
            case Check():
                self._expect(operation.path, operation.version)
        return None

    def _entry(self, path: str) -> TreeEntry | None:
        if path in self._changes:
            return self._changes[path]
        return self._tree.entries.get(path)

    def _expect(self, path: str, version: int) -> TreeEntry:
        entry = self._entry(path)
        if entry is None:
            raise NoNode(path)
        if version not in (-1, entry.version):
            raise BadVersion(path)
        return entry

    def _change(self, path: str, entry: TreeEntry | None) -> None:
        self._changes[path] = entry
        self._touched.add(path)
        self._last_change += 1

    def _create(self, operation: Create) -> str:
        parent_path = parent_of(operation.path)
        parent = self._entry(parent_path)
        if parent is None:
            raise NoNode(parent_path)
        if parent.owner != NO_OWNER:
            raise EphemeralParent(parent_path)
        path = operation.path
        if operation.sequential:
            path = f"{path}{parent.next_sequence:010d}"
        if self._entry(path) is not None:
            raise NodeExists(path)
        self._changes[parent_path] = replace(parent, next_sequence=parent.next_sequence + 1)
        owner = self._session if operation.ephemeral else NO_OWNER
        self._change(path, TreeEntry(operation.data, 0, self._last_change + 1, owner))
        self._child_count_change[parent_path] += 1
        self._touched.add(parent_path)
        return path

    def _set(self, operation: Set) -> Node:
        entry = self._expect(operation.path, operation.version)
        changed = replace(entry, data=operation.data, version=entry.version + 1)
        self._change(operation.path, changed)
        return changed.node()

    def _delete(self, operation: Delete) -> None:
        self._expect(operation.path, operation.version)
        if operation.path == ROOT:
            raise ValueError("the root cannot be deleted")
        if self._tree.child_count(operation.path) + self._child_count_change[operation.path] > 0:
            raise NotEmpty(operation.path)
        self._change(operation.path, None)
        self._child_count_change[parent_of(operation.path)] -= 1
        self._touched.add(parent_of(operation.path))
