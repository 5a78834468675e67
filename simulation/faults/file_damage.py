"""Loss and damage of synced data: in files of closed segments, and in files derived from them.

A `Damage` holds the batches that a replica has lost. It is over when the replica has them again, byte for
byte, or does not need them any more, or has the batches of another in-sync replica: the lost ones were then
never committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from penstock.errors import InvalidBatch, PenstockError
from penstock.model import Offset
from penstock.records.batch import crc_matches
from penstock.records.iteration import read_batches
from penstock.replication.replica import Replica
from penstock.storage.log_directories import LOGS
from simulation.machine.disk import SimulatedDisk
from simulation.models.partition_history import Place
from simulation.scenarios.broker_host import BrokerHost
from simulation.scenarios.stage import Stage

_LOG_SUFFIX = ".log"
_MAX_BYTES = 1 << 20
_CRC_POSITION = 17
"""The position of the CRC in a batch; it covers everything behind it."""


@dataclass(frozen=True, slots=True)
class ClosedSegment:
    """The file of a closed segment."""

    place: Place
    path: str
    content: bytes

    @property
    def index_path(self) -> str:
        return self.path.removesuffix(_LOG_SUFFIX) + ".index"

    @property
    def end_offset(self) -> int:
        return max(header.next_offset for header, _ in read_batches(memoryview(self.content)))

    def batch_ends(self) -> list[int]:
        """Return the positions between two batches."""
        return [position for position, _ in _positions(self.content)][1:]


@dataclass(frozen=True, slots=True)
class Damage:
    member: BrokerHost
    segment: ClosedSegment

    def is_over(self, stage: Stage) -> bool:
        """Whether the replica is repaired, or gone."""
        place = self.segment.place
        state = stage.history.now.get(place)
        if state is None or self.member.node_id not in state.replicas:
            return True
        if not self.member.is_serving:
            return False
        members = [stage.member(node_id) for node_id in state.isr if node_id != self.member.node_id]
        others = [replica for other in members if other.is_serving for replica in _replicas(other, place)]
        return any(
            self._is_whole(replica) or any(self._is_equal(replica, other) for other in others)
            for replica in _replicas(self.member, place)
        )

    def _is_whole(self, replica: Replica) -> bool:
        return all(
            header.next_offset <= replica.log.log_start_offset
            or bytes(batch[: header.size]) == _stored(replica, header.base_offset, header.size)
            for header, batch in read_batches(memoryview(self.segment.content))
        )

    def _is_equal(self, replica: Replica, other: Replica) -> bool:
        """Whether both replicas have the same bytes from the first to the last lost offset."""
        mine, theirs = (
            b"".join(
                _stored(each, header.base_offset, header.size)
                for header, _ in read_batches(memoryview(self.segment.content))
            )
            for each in (replica, other)
        )
        return mine == theirs != b""


def _replicas(member: BrokerHost, place: Place) -> list[Replica]:
    return [replica for replica in member.replicas() if _place(replica) == place]


def _stored(replica: Replica, offset: int, length: int) -> bytes:
    log = replica.log
    try:
        found = log.read(Offset(offset), _MAX_BYTES, below=log.log_end_offset, at_least_one=True, wait=True)
        return found.read()[:length]
    except (PenstockError, OSError):
        return b""


def closed_segments(
    stage: Stage, disk: SimulatedDisk, committed: Callable[[Place], int]
) -> list[ClosedSegment]:
    """Return the committed closed segments of ordinary topics that are not compacted."""
    found: list[ClosedSegment] = []
    for place, directory in _directories(stage, disk):
        if stage.topics[place[0]].is_compacted:
            continue
        names = [name for name in disk.names(directory) if name.endswith(_LOG_SUFFIX)]
        for name in names[:-1]:
            path = f"{directory}/{name}"
            found.append(ClosedSegment(place, path, disk.content(path)))
    right = [segment for segment in found if _is_right(segment)]
    return [segment for segment in right if segment.end_offset <= committed(segment.place)]


def derived_files(stage: Stage, disk: SimulatedDisk) -> list[str]:
    """Return the files that a broker rebuilds from its logs."""
    found = [name for name in disk.names("") if name.startswith("checkpoint.")]
    for _, directory in _directories(stage, disk):
        names = disk.names(directory)
        found += [f"{directory}/{name}" for name in names if name.endswith((".index", ".snapshot"))]
    return found


def lose(
    random: Random, disk: SimulatedDisk, segment: ClosedSegment, others: list[ClosedSegment]
) -> list[ClosedSegment]:
    """Delete, shorten or swap the file; return the segments that are damaged then."""
    damaged = [segment]
    kind = random.choice(("delete", "delete", "truncate", "empty", "swap"))
    ends = segment.batch_ends()
    if kind == "truncate" and ends:
        disk.damage(segment.path, segment.content[: random.choice(ends)])
    elif kind == "swap" and others:
        damaged.append(random.choice(others))
        disk.swap(segment.path, damaged[-1].path)
    elif kind == "empty":
        disk.damage(segment.path, b"")
    else:
        disk.damage(segment.path, None)
    if random.random() < 0.5 and disk.has(segment.index_path):
        disk.damage(segment.index_path, None)
    return damaged


def change_byte(random: Random, disk: SimulatedDisk, segment: ClosedSegment) -> None:
    """Change one byte of a batch that its CRC covers, or of the CRC."""
    batches = list(_positions(segment.content))
    position, size = random.choice(batches)
    place = position + random.randrange(_CRC_POSITION, size)
    content = bytearray(segment.content)
    content[place] ^= 1 << random.randrange(8)
    disk.damage(segment.path, bytes(content))


def spoil(random: Random, disk: SimulatedDisk, path: str) -> None:
    """Delete or shorten a derived file, or change a byte of it."""
    content = disk.content(path)
    kind = random.choice(("delete", "truncate", "empty", "byte", "byte"))
    if kind == "delete" or not content:
        disk.damage(path, None)
    elif kind == "truncate":
        disk.damage(path, content[: random.randrange(len(content))])
    elif kind == "empty":
        disk.damage(path, b"")
    else:
        changed = bytearray(content)
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
        disk.damage(path, bytes(changed))


def _positions(content: bytes) -> Iterator[tuple[int, int]]:
    position = 0
    for header, _ in read_batches(memoryview(content)):
        yield position, header.size
        position += header.size


def _is_right(segment: ClosedSegment) -> bool:
    try:
        batches = list(read_batches(memoryview(segment.content)))
        return bool(batches) and all(crc_matches(batch, header) for header, batch in batches)
    except InvalidBatch:
        return False


def _directories(stage: Stage, disk: SimulatedDisk) -> Iterator[tuple[Place, str]]:
    for name in disk.names(LOGS):
        for (topic, index), _ in stage.history.now.items():
            if (
                name.startswith(f"{topic}-{index}-")
                and topic in stage.topics
                and not name.endswith(".deleted")
            ):
                yield (topic, index), f"{LOGS}/{name}"


def _place(replica: Replica) -> Place:
    return replica.name.topic, replica.name.partition
