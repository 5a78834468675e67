"""Simulated directories: the names as programs see them, and as a power loss would leave them.

A created, renamed or removed name is durable after a sync of its directory. Until then each such operation
may or may not survive: as the prefix that a journal keeps or, as POSIX allows, as any subset. The change time of
a renamed node survives with its new name, because file systems record both in one transaction.
"""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from simulation.machine.disk_faults import disk_error
from simulation.machine.inode import Inode, Stamp


@dataclass(slots=True, eq=False)
class Directory:
    stamp: Stamp = field(default_factory=Stamp)
    entries: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)


Node = Inode | Directory


@dataclass(frozen=True, slots=True)
class _Change:
    directory: Directory
    name: str
    node: Node | None
    times: tuple[int, int] | None = None
    """Change times of a renamed node, before and after the rename."""

    def undo_times(self) -> None:
        if self.node is not None and self.times is not None and self.node.stamp.changed == self.times[1]:
            self.node.stamp.changed = self.times[0]


class Namespace:
    def __init__(self, counter: Iterator[int] | None = None) -> None:
        self._counter = itertools.count(1) if counter is None else counter
        """The counter of inode numbers and change times; copies share it, so that no two files have the same
        status.
        """
        self.root = Directory(Stamp(self._counter))
        self._unsynced: list[list[_Change]] = []

    def copy(self) -> Namespace:
        """Return a durable copy of all files and directories, made as `cp -a` does."""
        copied = Namespace(self._counter)
        copied.root = _copy_directory(self.root)
        return copied

    # --- looking

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.entries.get(name)
        return node

    def file(self, path: str) -> Inode:
        node = self.find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise disk_error(errno.EISDIR, path)
        return node

    def directory(self, path: str) -> Directory:
        node = self.find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise disk_error(errno.ENOTDIR, path)
        return node

    def files(self) -> Iterator[Inode]:
        """Return every file that has a name, in an order that does not depend on the run."""
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            for _, node in sorted(directory.entries.items()):
                if isinstance(node, Directory):
                    waiting.append(node)
                else:
                    yield node

    # --- changing

    def make_file(self, path: str) -> Inode:
        inode = Inode(Stamp(self._counter))
        self._change([self._entry(path, inode)])
        return inode

    def make_dir(self, path: str) -> None:
        """Make one directory whose parent exists; do nothing where it exists."""
        node = self.find(path)
        if isinstance(node, Inode):
            raise disk_error(errno.EEXIST, path)
        if node is None:
            self._change([self._entry(path, Directory(Stamp(self._counter)))])

    def rename(self, source: str, target: str) -> None:
        node, replaced = self.find(source), self.find(target)
        if node is None:
            raise disk_error(errno.ENOENT, source)
        if isinstance(replaced, Directory):
            if isinstance(node, Inode):
                raise disk_error(errno.EISDIR, target)
            if replaced.entries:
                raise disk_error(errno.ENOTEMPTY, target)
        elif replaced is not None and isinstance(node, Directory):
            raise disk_error(errno.ENOTDIR, target)
        if node is not replaced:
            before = node.stamp.changed
            node.stamp.change()
            added = replace(self._entry(target, node), times=(before, node.stamp.changed))
            self._change([self._entry(source, None), added])

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory."""
        node = self.find(path)
        if node is None:
            raise disk_error(errno.ENOENT, path)
        if isinstance(node, Directory) and node.entries:
            raise disk_error(errno.ENOTEMPTY, path)
        self._change([self._entry(path, None)])

    def swap(self, one: str, other: str) -> None:
        """Swap two files durably."""
        first, second = self.file(one), self.file(other)
        for path, inode in ((one, second), (other, first)):
            self.replace(path, inode)

    def replace(self, path: str, node: Node | None) -> None:
        """Put another node in a place, or none, durably; unsynced operations do not know of it."""
        change = self._entry(path, node)
        _set(change.directory.entries, change)
        _set(change.directory.durable, change)

    def _entry(self, path: str, node: Node | None) -> _Change:
        *parents, name = _parts(path)
        return _Change(self.directory("/".join(parents)), name, node)

    def _change(self, changes: list[_Change]) -> None:
        for change in changes:
            _set(change.directory.entries, change)
            change.directory.stamp.modify()
        self._unsynced.append(changes)

    # --- durability

    def sync_dir(self, path: str) -> None:
        directory = self.directory(path)
        remaining: list[list[_Change]] = []
        for changes in self._unsynced:
            for change in changes:
                if change.directory is directory:
                    _set(directory.durable, change)
            if elsewhere := [change for change in changes if change.directory is not directory]:
                remaining.append(elsewhere)
        self._unsynced = remaining

    def sync_all(self) -> None:
        for changes in self._unsynced:
            for change in changes:
                _set(change.directory.durable, change)
        self._unsynced.clear()

    def power_loss(self, random: random.Random) -> None:
        surviving = self._surviving(random)
        kept = set(map(id, surviving))
        for changes in surviving:
            for change in changes:
                _set(change.directory.durable, change)
        for changes in reversed(self._unsynced):
            if id(changes) not in kept:
                for change in changes:
                    change.undo_times()
        self._unsynced.clear()
        _restore(self.root)

    def _surviving(self, random: random.Random) -> list[list[_Change]]:
        if random.random() < 0.5:
            return self._unsynced[: random.randrange(len(self._unsynced) + 1)]
        likelihood = random.random()
        return [changes for changes in self._unsynced if random.random() < likelihood]


def _copy_directory(directory: Directory) -> Directory:
    entries = {
        name: _copy_directory(node) if isinstance(node, Directory) else node.copy()
        for name, node in directory.entries.items()
    }
    return Directory(directory.stamp.copy(), entries, dict(entries))


def _restore(directory: Directory) -> None:
    directory.entries = dict(directory.durable)
    for node in directory.entries.values():
        if isinstance(node, Directory):
            _restore(node)


def _set(entries: dict[str, Node], change: _Change) -> None:
    if change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise ValueError(f"{path!r} leads out of the data directory")
    return parts
