"""The comparison of replicas: it finds differences below the high watermark, and ignores batches above it."""

from __future__ import annotations

from pathlib import Path

from replicas import compare, differences

from penstock.records.building import NewRecord, build_batch

TOPIC_ID = "Jd0pZzVhRk2sTnHcYQ8v1w"


def batch(offset: int, value: bytes = b"value", epoch: int = 1) -> bytes:
    return bytes(build_batch([NewRecord(None, value, 0)], base_offset=offset, leader_epoch=epoch))


def copy(root: Path, number: int, *segments: list[bytes]) -> Path:
    """A replica whose segments contain these batches of one record each."""
    directory = root / str(number)
    directory.mkdir()
    offset = 0
    for batches in segments:
        (directory / f"{offset:020}.log").write_bytes(b"".join(batches))
        offset += len(batches)
    return directory


def judge(root: Path, end: int, *copies: list[list[bytes]]) -> list[str]:
    return compare("orders-0", {n: copy(root, n, *segments) for n, segments in enumerate(copies, 1)}, end)


def test_equal_replicas_pass_with_different_segment_boundaries(tmp_path: Path) -> None:
    assert judge(tmp_path, 3, [[batch(0), batch(1), batch(2)]], [[batch(0)], [batch(1), batch(2)]]) == []


def test_uncommitted_batches_may_differ(tmp_path: Path) -> None:
    assert judge(tmp_path, 1, [[batch(0), batch(1, b"one")]], [[batch(0), batch(1, b"other")]]) == []


def test_replica_comparison_finds_different_bytes_and_their_offset(tmp_path: Path) -> None:
    [told] = judge(tmp_path, 2, [[batch(0), batch(1)]], [[batch(0), batch(1, epoch=2)]])
    assert told.startswith("orders-0: copies differ: batch 1: brokers [1]: (1, 2,")


def test_replica_comparison_finds_a_replica_that_ends_too_early(tmp_path: Path) -> None:
    assert judge(tmp_path, 2, [[batch(0), batch(1)]], [[batch(0)]])[0] == (
        "orders-0: broker 2 ends at 1, committed is 2"
    )


def test_looks_into_the_directory_of_the_partition(tmp_path: Path) -> None:
    for number in (1, 2):
        logs = tmp_path / str(number) / "logs"
        for name, value in ((f"orders-1-{TOPIC_ID}", b"same"), (f"orders-1-0-{TOPIC_ID}", b"%d" % number)):
            (logs / name).mkdir(parents=True)
            (logs / name / f"{0:020}.log").write_bytes(batch(0, value))
        (logs / f"orders-0-{TOPIC_ID}").mkdir()
    data_dirs = {number: tmp_path / str(number) for number in (1, 2)}
    assert differences(data_dirs, "orders", [(1, 2), (1, 2)], [0, 1]) == []
    assert differences(data_dirs, "orders-1", [(1, 2)], [1]) != []
