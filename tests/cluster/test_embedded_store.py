from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster import embedded
from penstock.cluster.coordination import Create, Delete
from penstock.cluster.embedded import EmbeddedStore
from penstock.errors import StorageError, UnknownOutcome
from penstock.threads import ThreadPools

Scenario = Callable[[EmbeddedStore], Awaitable[None]]


@pytest.fixture
def threads() -> Iterator[ThreadPools]:
    pools = ThreadPools()
    yield pools
    pools.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "metadata.sqlite")


def run(path: str, threads: ThreadPools, scenario: Scenario, *, crash: bool = False) -> None:
    async def body() -> None:
        store = EmbeddedStore(path, threads)
        await store.start()
        await scenario(store)
        if crash:  # the file is released as by a killed process
            assert store._file is not None
            store._file.close()
        else:
            await store.close()

    asyncio.run(body())


async def fill(store: EmbeddedStore) -> None:
    await store.multi([Create("/topics"), *(Create(f"/topics/t{n}", b"x" * 50) for n in range(200))])


def test_committed_writes_and_counters_survive_a_crash(path: str, threads: ThreadPools) -> None:
    async def write(store: EmbeddedStore) -> None:
        await store.create("/a", b"0")
        await store.set("/a", b"1")
        await store.create("/e", ephemeral=True)

    async def read(store: EmbeddedStore) -> None:
        node = await store.get("/a")
        assert (node.data, node.version) == (b"1", 1)
        assert await store.children("/") == ["a"], (
            "the crashed session's ephemeral nodes go at the next start"
        )

    run(path, threads, write, crash=True)
    run(path, threads, read)


def test_store_at_rest_is_one_synced_file(path: str, threads: ThreadPools) -> None:
    async def look(store: EmbeddedStore) -> None:
        assert store._file is not None
        connection = store._file._connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)

    run(path, threads, look)
    run(path, threads, fill)
    copy = path + ".copy"
    Path(copy).write_bytes(Path(path).read_bytes())

    async def read(store: EmbeddedStore) -> None:
        assert len(await store.children("/topics")) == 200

    run(copy, threads, read)


def test_a_second_broker_on_the_same_file_is_refused(path: str, threads: ThreadPools) -> None:
    async def scenario(_: EmbeddedStore) -> None:
        with pytest.raises(StorageError, match="another broker"):
            await EmbeddedStore(path, threads).start()

    run(path, threads, scenario)


def test_interrupted_first_start_leaves_no_store(path: str, threads: ThreadPools) -> None:
    Path(path + ".new").write_bytes(b"half a file")
    Path(path + ".new-journal").write_bytes(b"junk")
    run(path, threads, fill)


@pytest.mark.parametrize("damage", ["empty", "short", "header", "page", "row", "schema", "text"])
def test_damaged_file_is_refused_and_unchanged(path: str, threads: ThreadPools, damage: str) -> None:
    run(path, threads, fill)
    content = bytearray(Path(path).read_bytes())
    match damage:
        case "empty":
            content = bytearray()
        case "short":
            del content[len(content) // 2 :]
        case "header":
            content[:100] = bytes(100)
        case "page":
            content[-4096:] = b"\xff" * 4096
        case "row":
            content[content.index(b"x" * 50) + 3] ^= 1
        case "schema":
            os.remove(path)
            sqlite3.connect(path).executescript("CREATE TABLE other (x); DROP TABLE other;").close()
            content = bytearray(Path(path).read_bytes())
        case "text":
            content = bytearray(b"this is not a database" * 1000)
    Path(path).write_bytes(content)
    with pytest.raises(StorageError, match=r"damaged .*Restore the file"):
        run(path, threads, fill)
    assert Path(path).read_bytes() == content


def test_checksum_covers_every_bit_of_a_row(path: str, threads: ThreadPools) -> None:
    async def one(store: EmbeddedStore) -> None:
        await store.create("/a", b"data")

    run(path, threads, one)
    for column in ("path", "data", "version", "created", "ephemeral", "next_sequence", "checksum"):
        connection = sqlite3.connect(path)
        before = connection.execute("SELECT * FROM nodes WHERE path = '/a'").fetchone()
        value = {"path": "/b", "data": b"dbta"}.get(column, 5)
        connection.execute(f"UPDATE nodes SET {column} = ? WHERE path = '/a'", (value,))
        connection.commit()
        with pytest.raises(StorageError, match="checksum"):
            run(path, threads, fill)
        connection.execute("DELETE FROM nodes WHERE path IN ('/a', '/b')")
        connection.execute("INSERT INTO nodes VALUES (?, ?, ?, ?, ?, ?, ?)", before)
        connection.commit()
        connection.close()


def test_row_without_parent_is_damage(path: str, threads: ThreadPools) -> None:
    run(path, threads, fill)
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM nodes WHERE path = '/topics'")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="parent of /topics/t"):
        run(path, threads, fill)


def test_a_newer_format_is_refused(path: str, threads: ThreadPools) -> None:
    run(path, threads, fill)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE store SET format = 99")
    connection.commit()
    connection.close()
    with pytest.raises(StorageError, match="format 99"):
        run(path, threads, fill)


def test_a_full_disk_refuses_the_write_and_later_ones_work(path: str, threads: ThreadPools) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await store.create("/a", b"kept")
        assert store._file is not None
        connection = store._file._connection
        [(pages,)] = connection.execute("PRAGMA page_count")
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StorageError, match="no space"):
            await store.multi([Create("/big", b"x" * 100_000), Create("/c")])
        assert await store.children("/") == ["a"]
        connection.execute("PRAGMA max_page_count = 100000")
        await store.create("/b")

    async def read(store: EmbeddedStore) -> None:
        assert await store.children("/") == ["a", "b"]

    run(path, threads, scenario)
    run(path, threads, read)


def test_io_error_has_unknown_outcome_and_blocks_later_writes(
    path: str, threads: ThreadPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        await store.create("/a")

        def broken(*_: object) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(embedded._SqliteFile, "_put", broken)
        with pytest.raises(UnknownOutcome, match="disk I/O error"):
            await store.create("/b")
        monkeypatch.undo()
        with pytest.raises(StorageError, match="restart the broker"):
            await store.create("/c")
        assert await store.children("/") == ["a"]

    run(path, threads, scenario)


def test_cancelled_write_keeps_file_and_tree_consistent(path: str, threads: ThreadPools) -> None:
    async def scenario(store: EmbeddedStore) -> None:
        write = asyncio.ensure_future(store.create("/a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        write.cancel()
        await asyncio.gather(write, return_exceptions=True)
        await store.create("/b")
        assert await store.children("/") == ["a", "b"]

    async def read(store: EmbeddedStore) -> None:
        assert await store.children("/") == ["a", "b"]
        await store.multi([Delete("/a"), Delete("/b")])

    run(path, threads, scenario)
    run(path, threads, read)
