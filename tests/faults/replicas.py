"""Comparison of the replicas of a partition, byte by byte, in the files of stopped brokers."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from penstock.records.batch import BatchHeader
from penstock.storage.disk import RealDisk
from penstock.storage.inspection import describe_segment
from penstock.storage.segment import LOG_SUFFIX

TOPIC_ID_CHARACTERS = 22
Digest = tuple[int, int, str]
"""Position of a batch, the offset after it, and its bytes."""


def differences(
    data_dirs: Mapping[int, Path], topic: str, replicas: Sequence[Collection[int]], ends: Sequence[int]
) -> list[str]:
    """Differences between the replicas of a topic on these brokers, below these high watermarks."""
    found: list[str] = []
    for partition, (numbers, end) in enumerate(zip(replicas, ends, strict=True)):
        copies = {number: find_log(data_dirs[number], topic, partition) for number in numbers}
        found += compare(f"{topic}-{partition}", copies, end)
    return found


def compare(name: str, replicas: Mapping[int, Path], end: int) -> list[str]:
    """Differences between the replicas of one partition; each replica must have all batches below `end`."""
    groups: dict[tuple[Digest, ...], list[int]] = defaultdict(list)
    found = []
    for number, directory in replicas.items():
        batches = tuple(_batches(directory, end))
        groups[batches].append(number)
        if end and (not batches or batches[-1][1] < end):
            stored = batches[-1][1] if batches else 0
            found.append(f"{name}: broker {number} ends at {stored}, committed is {end}")
    if len(groups) > 1:
        found.append(f"{name}: copies differ: {_first_difference(groups)}")
    return found


def find_log(data_dir: Path, topic: str, partition: int) -> Path:
    """Directory of the partition; its name ends with the topic id."""
    pattern = f"{topic}-{partition}-" + "?" * TOPIC_ID_CHARACTERS
    [directory] = (data_dir / "logs").glob(pattern)
    return directory


def _batches(directory: Path, end: int) -> Iterator[Digest]:
    disk = RealDisk(str(directory))
    for segment in sorted(directory.glob(f"*{LOG_SUFFIX}")):
        content = segment.read_bytes()
        for position, header in describe_segment(disk, segment.name):
            assert isinstance(header, BatchHeader), f"{segment} at {position}: {header}"
            if header.base_offset >= end:
                return
            digest = hashlib.sha1(content[position : position + header.size]).hexdigest()
            yield header.base_offset, header.next_offset, digest


def _first_difference(groups: Mapping[tuple[Digest, ...], list[int]]) -> str:
    lists = list(groups)
    shortest = min(map(len, lists))
    place = next((n for n in range(shortest) if len({each[n] for each in lists}) > 1), shortest)
    shown = [
        f"brokers {numbers}: {batches[place] if place < len(batches) else 'nothing'}"
        for batches, numbers in groups.items()
    ]
    return f"batch {place}: " + "; ".join(shown)
