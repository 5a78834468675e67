"""OffsetCommit requests get the same response and leave the same state, whether they are plain or not."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from penstock.cluster.internal_topics import OFFSETS_TOPIC
from penstock.errors import ErrorCode
from penstock.groups.record_codec import decode_record
from penstock.groups.records import OffsetKey, OffsetValue
from penstock.model import Offset
from penstock.net.response import PendingResponse
from penstock.records.iteration import iterate, read_batches
from penstock.server.dispatch import Session
from penstock.server.known_requests import MAX_CREDIT, KnownCommit
from penstock.server.security import ANONYMOUS, Operation, ResourceType
from penstock.wire import offset_commit
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.headers import read_request_header
from penstock.wire.messages import encode_request_frame
from support.group_wire import OFFSET_COMMIT, SETTINGS, Member, commit_fields, joined, topic_offsets
from support.harness import Harness, Right, serve

REQUESTS = 250
PLAIN, GENERAL = "group-p", "group-g"
SECRET, DENIED = "secret", "denied"
DENIED_ALWAYS: list[Right] = [
    (Operation.READ, ResourceType.TOPIC, SECRET),
    (Operation.READ, ResourceType.GROUP, PLAIN + DENIED),
    (Operation.READ, ResourceType.GROUP, GENERAL + DENIED),
]


class Wish(NamedTuple):
    """Request for either of two groups with the same state."""

    version: int
    topics: list[tuple[str, UUID, int, int, int, str | None]]
    """Name, id, partition, offset, leader epoch and metadata."""
    member: str | None
    """Member id; None is the member of the group."""
    generation_change: int
    instance_id: str | None
    group_suffix: str


def wishes(random: Random, ids: dict[str, UUID]) -> list[Wish]:
    names = ["orders", "orders", "orders", SECRET, "nothing"]

    def topic() -> tuple[str, UUID, int, int, int, str | None]:
        name = random.choice(names)
        metadata = random.choice(["", "", None, "note", "x" * 101, "ü" * 60])
        index = random.choice([0, 1, 2, 2, -1, 2**31 - 1])
        return name, ids[name], index, random.randrange(2**40), random.choice([-5, -1, 0, 7]), metadata

    return [
        Wish(
            random.randrange(2, 11),
            [topic() for _ in range(random.choice([1, 1, 1, 1, 2, 0]))],
            random.choice([None, None, None, "", "stranger"]),
            random.choice([0, 0, 0, -1, 1, -100]),
            random.choice([None, None, None, "", "here"]),
            random.choice(["", "", "", "", "-other", DENIED]),
        )
        for _ in range(REQUESTS)
    ]


def frame_of(wish: Wish, group: str, me: Member) -> memoryview:
    offsets = [
        topic_offsets(name, {index: offset}, leader_epoch=epoch, metadata=metadata, topic_id=topic_id)
        for name, topic_id, index, offset, epoch, metadata in wish.topics
    ]
    changed = {
        "generation_id_or_member_epoch": max(-(2**31), me.generation + wish.generation_change),
        "member_id": me.member_id if wish.member is None else wish.member,
        "group_instance_id": wish.instance_id,
    }
    fields = commit_fields(group + wish.group_suffix, offsets, me, **changed)
    return memoryview(encode_request_frame(OFFSET_COMMIT, wish.version, 7, "test", fields))[SIZE_PREFIX:]


async def answer(broker: Harness, session: Session, frame: memoryview) -> bytes:
    given = broker._broker._dispatcher.dispatch(session, frame)
    if isinstance(given, PendingResponse):
        done = asyncio.Event()
        given.when_done(done.set)
        await done.wait()
        given = given.parts
    assert given is not None
    [part] = given
    assert isinstance(part, bytes)
    return part


def offsets_of(broker: Harness, group: str) -> dict[Any, Any]:
    """Committed offsets of the group and its relatives, without the time of their commit."""
    return {
        (name.removeprefix(group), topic, partition): value._replace(commit_timestamp_ms=0)
        for shard in broker.context.groups.shards
        for name, topic, partition, value in shard.offsets.all()
        if name.startswith(group)
    }


def records_of(broker: Harness, group: str) -> list[Any]:
    """Offset records of the group and its relatives in the log, without the time of their commit."""
    found: list[Any] = []
    for index in range(len(broker.context.image.topics[OFFSETS_TOPIC].partitions)):
        log = broker.context.replicas.get(OFFSETS_TOPIC, index).log
        if log.log_end_offset == log.log_start_offset:
            continue
        content = log.read(Offset(0), 10**8, below=log.log_end_offset, at_least_one=True, wait=True).read()
        for header, batch in read_batches(memoryview(content)):
            for record in iterate(batch, header):
                key, value = decode_record(bytes(record.key or b""), record.value and bytes(record.value))
                if isinstance(key, OffsetKey) and key.group_id.startswith(group):
                    assert isinstance(value, OffsetValue)
                    suffix = key.group_id.removeprefix(group)
                    found.append((suffix, key.topic, key.partition, value._replace(commit_timestamp_ms=0)))
    return sorted(found, key=lambda each: each[0])


@pytest.mark.parametrize("seed", range(3))
def test_plain_offset_commits_get_the_response_of_the_general_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Send each request and its repetitions with other offsets, while rights come and go: on one connection, which
    knows its last request, and on new connections, which know none and use the general decoder.
    """
    read_plain = offset_commit.read_plain_commit
    random = Random(seed)
    denials: list[list[Right]] = [
        [],
        [(Operation.READ, ResourceType.TOPIC, "orders")],
        [(Operation.READ, ResourceType.GROUP, PLAIN), (Operation.READ, ResourceType.GROUP, GENERAL)],
    ]

    async def scenario(broker: Harness) -> None:
        ids = {"nothing": UUID(int=99)}
        for name in ("orders", SECRET):
            ids[name] = (await broker.create(name, partitions=3)).topic_id
        members = {group: await joined(broker, group) for group in (PLAIN, GENERAL)}
        codes, known = set(), 0
        for wish in wishes(random, ids):
            for _ in range(random.choice([1, 3])):
                repeated = wish._replace(
                    topics=[(*topic[:3], random.randrange(2**40), *topic[4:]) for topic in wish.topics]
                )
                broker.deny(*DENIED_ALWAYS, *random.choice(denials))
                monkeypatch.setattr(offset_commit, "read_plain_commit", read_plain)
                plain = await answer(broker, broker.session, frame_of(repeated, PLAIN, members[PLAIN]))
                known += broker.session.commit is not None and broker.session.commit.repetitions > 0
                monkeypatch.setattr(offset_commit, "read_plain_commit", lambda *_: None)
                general = frame_of(repeated, GENERAL, members[GENERAL])
                assert await answer(broker, Session("test:2", "test", ANONYMOUS), general) == plain, repeated
                codes.add(plain[-2:] if wish.version < offset_commit.FLEXIBLE_FROM else plain[-5:-3])
        assert len(codes) >= 6, codes
        assert known > REQUESTS / 10
        assert ErrorCode.none.to_bytes(2, "big") in codes
        assert offsets_of(broker, PLAIN) == offsets_of(broker, GENERAL) != {}
        assert records_of(broker, PLAIN) == records_of(broker, GENERAL) != []

    serve(tmp_path, scenario, {**SETTINGS, "offset.metadata.max.bytes": "100"})


def test_every_changed_byte_of_a_known_request_is_noticed(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        ids = {"orders": (await broker.create("orders", partitions=3)).topic_id}
        me = await joined(broker, PLAIN)
        for version in range(offset_commit.FIRST_VERSION, offset_commit.LAST_VERSION + 1):
            wish = Wish(version, [("orders", ids["orders"], 1, 2**40 + 5, 3, "")], None, 0, None, "")
            session = Session("test:1", "test", ANONYMOUS)
            good = frame_of(wish, PLAIN, me)
            await answer(broker, session, good)
            known = session.commit
            assert known is not None
            offset_at = bytes(good).index((2**40 + 5).to_bytes(8, "big"))
            position = read_request_header(good)[4]
            assert known.offset_in(good, position, version) == 2**40 + 5
            assert known.offset_in(good, position, version + 1) is None
            assert known.offset_in(memoryview(bytes(good) + b"\x00"), position, version) is None
            for at in range(position, len(good)):
                changed = bytearray(good)
                changed[at] ^= 0x11
                found = known.offset_in(memoryview(changed), position, version)
                assert (found is None) == (not offset_at <= at < offset_at + 8), (version, at)

    serve(tmp_path, scenario, SETTINGS)


def test_connection_that_alternates_between_requests_learns_few_of_them(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders", partitions=3)
        me = await joined(broker, PLAIN)
        known: dict[KnownCommit | None, None] = {}
        for number in range(10 * MAX_CREDIT):
            wish = Wish(7, [("orders", UUID(int=0), number % 2, number, 3, "")], None, 0, None, "")
            await answer(broker, broker.session, frame_of(wish, PLAIN, me))
            known[broker.session.commit] = None
        repetitions = sum(each.repetitions for each in known if each is not None)
        assert len(known) <= MAX_CREDIT + repetitions + 1 < 5 * MAX_CREDIT

    serve(tmp_path, scenario, SETTINGS)
