"""`python -m bench.mailbox_index`: lookups by key of one user's messages among ten million users.

Twenty million messages: the hottest user has a million, the others follow Zipf's law. A producer writes them.
Lookups draw users by their number of messages and evenly, and pages of the hottest user from any position.
Then a file of the index is damaged under the running broker, and the time until every lookup is right again
is measured; at the end the broker is killed, and the time until its first correct lookup after the restart is
measured.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.measure import cpu_seconds, percentile, rss_mb
from bench.servers import Penstock
from penstock.config import Address
from penstock.internal_client.keyed_reads import KeyedRead, KeyedReads
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.routes import Routes
from penstock.net.network import TcpNetwork
from penstock.records.iteration import iterate, read_batches

TOPIC = "mailbox"
PARTITIONS = 8
BATCH_RECORDS = 500
VALUE = b"x" * 100
PAGE_RECORDS = 100
ALL_RECORDS = 10_000
ORDINARY = 1_000
"""A user with about a thousand messages."""
STRIDE = 50_000
LOOKUPS = 3_000
HOTTEST_TOP_UP = 0.007
"""Extra messages of the first user, on top of Zipf's law: a twentieth of all."""
_PATIENCE_S = 600
_ANSWER_S = 120.0


class Users:
    """Draw numbers from 1; the probability of n is proportional to 1/n."""

    def __init__(self, count: int, seed: int) -> None:
        self._count = count
        self._random = Random(seed)

    def by_messages(self) -> int:
        if self._random.random() < HOTTEST_TOP_UP:
            return 1
        return int(self._count ** self._random.random())

    def evenly(self) -> int:
        return self._random.randint(1, self._count)


def key_of(user: int) -> bytes:
    return b"user-%d" % user


def load(bootstrap: str, messages: int, users: Users) -> list[int]:
    """Write all messages, and return the message counts of the users up to a thousand."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2",
            "acks": "all",
            "linger.ms": 20,
            "batch.num.messages": BATCH_RECORDS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    counts = [0] * 1_001
    for _ in range(messages):
        user = users.by_messages()
        if user < len(counts):
            counts[user] += 1
        while True:
            try:
                producer.produce(TOPIC, VALUE, key_of(user))
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return counts


def wait_for_files(data: Path) -> float:
    """Wait until every closed segment has its key file, and return the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < _PATIENCE_S:
        closed = []
        for directory in data.glob(f"logs/{TOPIC}-*"):
            closed += sorted(directory.glob("*.log"))[:-1]
        if all(path.with_suffix(".keys").exists() for path in closed):
            return time.monotonic() - began
        time.sleep(0.2)
    raise TimeoutError("the index does not get ready")


class Reader:
    def __init__(self, port: int) -> None:
        network = TcpNetwork()
        self._routes = Routes(network, [Address("127.0.0.1", port)], "bench")
        self._reads = KeyedReads(network, self._routes, "bench")

    def close(self) -> None:
        self._reads.close()
        self._routes.close()

    async def page(self, user: int, from_offset: int = 0, max_records: int = PAGE_RECORDS) -> list[int]:
        """Offsets of a page of a user's messages."""
        key = key_of(user)
        wanted = KeyedRead(TOPIC, partition_for(key, PARTITIONS), key, from_offset, max_records)
        result = await self._reads.read(wanted, _ANSWER_S)
        return [
            record.offset
            for header, batch in read_batches(memoryview(result.records))
            for record in iterate(batch, header)
        ]

    async def count(self, user: int) -> int:
        found, offset = 0, 0
        while page := await self.page(user, offset, ALL_RECORDS):
            found += len(page)
            offset = page[-1] + 1
        return found

    async def timed(self, draw: Callable[[], tuple[int, int]], at_once: int) -> list[float]:
        """Latencies of lookups in milliseconds, for this many sequential clients."""
        times: list[float] = []

        async def ask() -> None:
            while len(times) < LOOKUPS:
                user, offset = draw()
                began = time.perf_counter()
                await self.page(user, offset)
                times.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(ask() for _ in range(at_once)))
        return times


def show(what: str, times: Sequence[float]) -> None:
    marks = " ".join(f"p{share * 100:g} {percentile(times, share):.2f}" for share in (0.5, 0.99, 0.999))
    print(f"{what}: {marks} ms, the longest {max(times):.2f} ms", flush=True)


async def measure(server: Penstock, users: int, counts: list[int]) -> None:
    reader, drawn = Reader(server.port), Users(users, 2)
    random, hottest = Random(3), counts[1]
    for user in (1, 2, 10, ORDINARY):
        assert await reader.count(user) == counts[user], user
    ends = (0, hottest * 2)
    for at_once in (1, 8):
        show(
            f"users by messages, {at_once} at once",
            await reader.timed(lambda: (drawn.by_messages(), 0), at_once),
        )
        show(f"users evenly, {at_once} at once", await reader.timed(lambda: (drawn.evenly(), 0), at_once))
        show(
            f"pages of the hottest, {at_once} at once",
            await reader.timed(lambda: (1, random.randrange(*ends)), at_once),
        )
    print(f"memory of the broker after it: {rss_mb(server.pid):.0f} MB", flush=True)
    await damage(server, reader, counts)
    reader.close()


async def damage(server: Penstock, reader: Reader, counts: list[int]) -> None:
    """Overwrite a page of every file of the hottest user's partition."""
    partition = partition_for(key_of(1), PARTITIONS)
    [directory] = (server.directory / "data/logs").glob(f"{TOPIC}-{partition}-*")
    files = sorted(directory.glob("*.keys"))
    for path in files:
        with path.open("r+b") as file:
            file.seek(path.stat().st_size // 2)
            file.write(b"damage" * 1_000)
    began = time.monotonic()
    for offset in range(0, 2 * counts[1], STRIDE):
        await reader.page(1, offset)
    print(f"{len(files)} damaged files are made again after {time.monotonic() - began:.1f} s", flush=True)


async def first_answer(server: Penstock, counts: list[int]) -> None:
    began = time.monotonic()
    reader = Reader(server.port)
    assert await reader.count(ORDINARY) == counts[ORDINARY]
    print(
        f"after a kill all of one user is there {time.monotonic() - began:.1f} s after the start", flush=True
    )
    reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000_000)
    parser.add_argument("--users", type=int, default=10_000_000)
    options = parser.parse_args()
    server = Penstock()
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"index.by.key": "true"})
        admin.create_topics([topic])[TOPIC].result(60)
        began = time.monotonic()
        counts = load(server.bootstrap, options.messages, Users(options.users, 1))
        loaded_s = time.monotonic() - began
        print(f"{options.messages} messages in {loaded_s:.0f} s, {counts[1]} of the hottest user", flush=True)
        waited_s = wait_for_files(server.directory / "data")
        print(f"all files of keys are there {waited_s:.1f} s later", flush=True)
        print(f"processor time of the broker: {cpu_seconds(server.pid):.0f} s", flush=True)
        print(f"memory of the broker: {rss_mb(server.pid):.0f} MB", flush=True)
        sizes = [path.stat().st_size for path in server.directory.glob("data/logs/*/*.keys")]
        print(f"files of keys: {len(sizes)}, {sum(sizes) / 1e6:.0f} MB", flush=True)
        asyncio.run(measure(server, options.users, counts))
        server.kill()
        assert server.process is not None
        server.process.wait()
        server.start()
        asyncio.run(first_answer(server, counts))
    finally:
        server.stop()
        server.remove()


if __name__ == "__main__":
    main()
