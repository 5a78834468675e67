"""Coordination store of one machine: one SQLite file.

A single broker uses it directly, as the only session. `store_server.py` opens sessions for the brokers of one
machine. The tree is held in memory and read from there. A multi is committed to the file and synced before it
becomes visible. Each start is a new session and removes the ephemeral nodes of the previous one. A new file
is written under another name and renamed when it is complete, so a file without content is damaged, never
new.

    nodes(path, data, version, created, ephemeral, next_sequence, checksum)     one row per node
    store(format, last_change)                                                  one row
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import zlib
from collections.abc import Callable, Sequence
from functools import partial

from penstock.cluster.coordination import (
    Delete,
    Node,
    NoNode,
    Operation,
    SessionState,
    SingleWrites,
)
from penstock.cluster.tree import NO_OWNER, PreparedWrite, Tree, TreeEntry, parent_of
from penstock.cluster.watches import Watches
from penstock.errors import StorageError, UnknownOutcome
from penstock.threads import Threads

FORMAT = 1
OUR_SESSION = 1
LAST_SESSION = -1

SCHEMA = f"""
BEGIN;
CREATE TABLE nodes (
    path TEXT PRIMARY KEY, data BLOB NOT NULL, version INTEGER NOT NULL, created INTEGER NOT NULL,
    ephemeral INTEGER NOT NULL, next_sequence INTEGER NOT NULL, checksum INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE store (format INTEGER NOT NULL, last_change INTEGER NOT NULL);
INSERT INTO store VALUES ({FORMAT}, 0);
COMMIT;
"""


class EmbeddedStore(SingleWrites):
    def __init__(self, path: str, threads: Threads) -> None:
        self._path = path
        self._threads = threads
        self._tree = Tree()
        self._watches = Watches()
        self._session_callbacks: list[Callable[[SessionState], None]] = []
        self._file: _SqliteFile | None = None
        self._writing = asyncio.Lock()
        self._failure: str | None = None

    async def start(self) -> None:
        self._file = await self._threads.run("background", partial(_SqliteFile, self._path))
        self._tree = await self._threads.run("background", self._file.load)
        await self.end_session(LAST_SESSION)
        for callback in self._session_callbacks:
            callback(SessionState.CONNECTED)

    async def close(self) -> None:
        if self._file is None:
            return
        if self._failure is None:
            await self.end_session(OUR_SESSION)
        async with self._writing:
            file, self._file = self._file, None
            await self._threads.run("background", file.close)

    async def get(self, path: str) -> Node:
        return self._tree.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        return [self._get_or_none(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        return self._tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        return await self.multi_of(OUR_SESSION, operations)

    async def multi_of(self, session: int, operations: Sequence[Operation]) -> list[str | Node | None]:
        """Run a multi for a session, which owns the ephemeral nodes that the multi creates."""
        return await self._write(lambda: self._tree.prepare(operations, session))

    async def end_session(self, session: int) -> None:
        """Remove the ephemeral nodes of a session. The session must have no multi in progress."""

        def prepare() -> PreparedWrite:
            return self._tree.prepare([Delete(path) for path in self._tree.owned_by(session)], session)

        await self._write(prepare)

    async def _write(self, prepare: Callable[[], PreparedWrite]) -> list[str | Node | None]:
        # Shielded: a cancelled caller must not leave the file ahead of the tree.
        return await asyncio.shield(asyncio.ensure_future(self._write_in_turn(prepare)))

    async def _write_in_turn(self, prepare: Callable[[], PreparedWrite]) -> list[str | Node | None]:
        async with self._writing:
            if self._failure is not None:
                raise StorageError(self._failure)
            transaction = prepare()
            if transaction.changes:
                await self._commit(transaction)
                self._tree.apply(transaction)
        self._watches.notify(transaction.touched)
        return transaction.results

    async def _commit(self, transaction: PreparedWrite) -> None:
        assert self._file is not None, "the store is not started"
        try:
            await self._threads.run("background", partial(self._file.write, transaction))
        except UnknownOutcome as error:
            # The next start may or may not find this write, so no later write may build on it.
            self._failure = f"{error}; restart the broker when the disk works again"
            raise

    def watch(self, path: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._watches.add(path, callback)

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._session_callbacks.append(callback)

    def _get_or_none(self, path: str) -> Node | None:
        try:
            return self._tree.get(path)
        except NoNode:
            return None


class _SqliteFile:
    """SQLite file. Methods block and must not run concurrently."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            if not os.path.exists(path):
                _create(path)
            self._connection = _connect(path)
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def load(self) -> Tree:
        try:
            return self._load()
        except sqlite3.Error as error:
            self.close()
            raise self._refusal(error) from error

    def write(self, transaction: PreparedWrite) -> None:
        """Commit and sync. Raises StorageError if nothing was written (disk full), UnknownOutcome for other
        failures.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for path, entry in transaction.changes.items():
                self._put(path, entry)
            self._connection.execute("UPDATE store SET last_change = ?", (transaction.last_change,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            if self._roll_back() and _primary_code(error) == sqlite3.SQLITE_FULL:
                raise StorageError(f"{self._path}: no space left on the disk") from error
            raise UnknownOutcome(f"{self._path} could not be written: {error}") from error

    def close(self) -> None:
        self._connection.close()

    def _load(self) -> Tree:
        [(verdict,)] = self._connection.execute("PRAGMA quick_check(1)")
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict.rpartition("\n")[2])
        tree = Tree()
        [(stored_format, tree.last_change)] = self._connection.execute(
            "SELECT format, last_change FROM store"
        )
        if stored_format != FORMAT:
            raise StorageError(
                f"{self._path} has format {stored_format}; this version of Penstock reads {FORMAT}"
            )
        tree.put(_read(row) for row in self._connection.execute("SELECT * FROM nodes"))
        for path in tree.entries:
            if parent_of(path) not in tree.entries:
                raise sqlite3.DatabaseError(f"the parent of {path} is missing")
        # Take the exclusive lock and keep it: a second broker on the same directory must fail before it
        # touches a log.
        self._connection.execute("BEGIN EXCLUSIVE")
        self._connection.execute("COMMIT")
        return tree

    def _put(self, path: str, entry: TreeEntry | None) -> None:
        if entry is None:
            self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
            return
        numbers = (entry.version, entry.created, int(entry.owner != NO_OWNER), entry.next_sequence)
        row = (path, entry.data, *numbers, _checksum(path, entry.data, *numbers))
        self._connection.execute("INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?)", row)

    def _roll_back(self) -> bool:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            return False
        return True

    def _refusal(self, error: sqlite3.Error) -> StorageError:
        if _primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StorageError(f"{self._path} is in use: does another broker run on this data directory?")
        if _primary_code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return StorageError(f"{self._path} cannot be opened for writing: check its owner and permissions")
        return StorageError(
            f"{self._path} is damaged ({error}). It holds the topics and settings of this broker, which "
            f"does not start without them; no log was touched. Restore the file from a backup. To start with no "
            f"topics, move it and meta.json away: existing log directories are kept, but not served."
        )


def _create(path: str) -> None:
    """Create an empty store. The file gets its name only when it is complete and durable."""
    unfinished = path + ".new"
    for leftover in (unfinished, unfinished + "-journal"):
        if os.path.exists(leftover):
            os.remove(leftover)
    connection = _connect(unfinished)
    connection.executescript(SCHEMA)
    connection.close()
    os.rename(unfinished, path)
    directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    # Rollback journal instead of a write-ahead log: at rest, the one file holds everything.
    connection.execute("PRAGMA journal_mode = TRUNCATE")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _primary_code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF


def _checksum(path: str, data: bytes, version: int, created: int, ephemeral: int, next_sequence: int) -> int:
    return zlib.crc32(data, zlib.crc32(f"{path} {version} {created} {ephemeral} {next_sequence}".encode()))


def _read(row: tuple[str, bytes, int, int, int, int, int]) -> tuple[str, TreeEntry]:
    path, data, version, created, ephemeral, next_sequence, checksum = row
    if checksum != _checksum(path, data, version, created, ephemeral, next_sequence):
        raise sqlite3.DatabaseError(f"the checksum of {path} is wrong")
    return path, TreeEntry(data, version, created, LAST_SESSION if ephemeral else NO_OWNER, next_sequence)
